"""Settings by which libraries keep to what they have on the disk, and send nothing, of their own accord.

Without them a download would be tried, refused, and perhaps tried again; with them a library goes to its cache at once,
or says in its own words what is missing there.
"""

from collections.abc import Mapping

SETTINGS = {
    # huggingface_hub, transformers and datasets: their pages on environment variables.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Offline, wandb starts a program that libraries cannot be loaded into; disabled, it starts none.
    "WANDB_MODE": "disabled",
    # A tracking server that cannot be reached is otherwise asked for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "CLEARML_OFFLINE_MODE": "1",
    "NEPTUNE_MODE": "debug",
    # A convention of several libraries that count their users.
    "DO_NOT_TRACK": "1",
}
GIVEN_WAY = {
    # A figure opens no window, which would wait for its user.
    "MPLBACKEND": "Agg",
}
"""Settings that the user's own go before."""


def settings(given: Mapping[str, str]) -> dict[str, str]:
    """What is to be added to an environment."""
    return {name: value for name, value in GIVEN_WAY.items() if name not in given} | SETTINGS
