"""undertorch: what training looks like under PyTorch. See it, check it, fuse it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from undertorch.records import Gpu, Step

__version__ = "0.1.0"
__all__ = ["__version__", "see"]


def see(
    script: "str | Path",
    args: Sequence[str] = (),
    gpu: "str | Gpu" = "H200",
    step: int = 2,
    assume: Mapping[str, str] | None = None,
) -> "Step":
    """Runs a training script in a fresh process, without a GPU, and returns one of its steps as `gpu` would run it.

    `gpu` is a name, the path of a spec sheet (`my_gpu.toml`), or a Gpu; `step` counts from 1; `assume` gives the value
    of a line where the script asks for one: `{"31": "true"}`.
    Raises undertorch.steps.record.errors.RecordError, undertorch.gpus.UnknownGpu or undertorch.gpus.BadSheet.
    """
    from pathlib import Path

    from undertorch.gpus import find
    from undertorch.steps.see import see as see_script

    sheet = find(gpu) if isinstance(gpu, str) else gpu
    return see_script(Path(script), args, sheet, step=step, assume=assume)
