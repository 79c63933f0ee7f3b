"""`see` without a GPU: a script's step, recorded and predicted."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from undertorch.records import Gpu, Step
from undertorch.steps.predict import predict
from undertorch.steps.record import record


def see(
    script: Path,
    arguments: Sequence[str],
    gpu: Gpu,
    step: int = 2,
    assume: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Step:
    """Runs the script in a fresh process on made-up values and predicts the step of that number for the GPU.

    `assume` gives values that the script asks for, by `LINE` or `FILE:LINE`. `progress` is told each stage.
    Raises RecordError, whose message is one sentence for the user.
    """
    recording = record(script, arguments, gpu, step=step, assume=assume or {}, progress=progress)
    if progress:
        progress(f"costing {len(recording.ops)} ops")
    return predict(recording, gpu)
