"""What a caller asks for from Python, as the command line asks for it: a GPU, a number of a step, answers."""

import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undertorch import gpus
from undertorch.records import Gpu
from undertorch.steps.record.errors import BadAssumption, RecordError
from undertorch.steps.record.ordinary import SECOND


def asked_gpu(gpu: object) -> Gpu:
    """The GPU of a name or of a sheet's path; a Gpu is itself. Raises UnknownGpu or BadSheet."""
    if isinstance(gpu, Gpu):
        return gpu
    if isinstance(gpu, str | Path):
        return gpus.find(gpu)
    raise gpus.UnknownGpu(f"gpu={gpu!r} names no GPU; give a name such as 'H200', the path of a sheet, or a Gpu.")


def asked_step(step: Any) -> int:
    """A whole number from 1 on, also NumPy's. Raises RecordError."""
    wrong = RecordError(f"step={step!r} is no step; give a whole number, counted from 1.")
    if isinstance(step, bool):
        raise wrong
    try:
        number = operator.index(step)
    except TypeError:
        raise wrong from None
    if number < 1:
        raise wrong
    return number


def asked_answers(assume: object) -> Mapping[str, str]:
    """None is no answer. Raises BadAssumption for what is no mapping; the recorder looks at lines and values."""
    if assume is None:
        return {}
    if not isinstance(assume, Mapping):
        raise BadAssumption(f"assume={assume!r} gives no line a value; write assume={{'31': 'true'}}.")
    return assume


def ended_before(asked: int | None, shown: int | None) -> str | None:
    """What to say where there was no step of that number, and the last that there was is shown; otherwise None. Asked
    for none: that of an ordinary one (steps/record/ordinary.py)."""
    wanted = SECOND if asked is None else asked
    if shown in (None, asked) or (asked is None and shown is not None and shown >= wanted):
        return None
    return f"there is no step {wanted}: the script ended after step {shown}, which is shown."
