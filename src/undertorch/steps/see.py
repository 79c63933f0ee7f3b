"""`see` without a GPU: a script's step, recorded, predicted, and advised on; for one GPU or for several."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from undertorch.records import Gpu, Recording, Step
from undertorch.steps.advice import advise
from undertorch.steps.predict import predict
from undertorch.steps.record import RecordError, record

Progress = Callable[[str], None]
"""Is told each stage."""


def see(
    script: Path,
    arguments: Sequence[str],
    gpu: Gpu,
    step: int | None = None,
    assume: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Step:
    """Runs the script in a fresh process on made-up values and predicts the step of that number for the GPU, with what
    is worth changing in it. Without a number it is an ordinary one: the second, or the third where that is without what
    the script does now and then.

    `assume` gives values that the script asks for, by `LINE` or `FILE:LINE`. `progress` is told each stage.
    Raises RecordError, whose message is one sentence for the user.
    """
    recording = record(script, arguments, gpu, step=step, assume=assume or {}, progress=progress)
    if progress:
        progress(f"costing {len(recording.ops)} ops")
    return predicted(recording, gpu)


def predicted(recording: Recording, gpu: Gpu) -> Step:
    """The step of a recording on a GPU, with what is worth changing in it."""
    step = predict(recording, gpu)
    return replace(step, advice=advise(step, gpu))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a script on one of several GPUs: a step, or the sentence that says why there is none."""

    gpu: Gpu
    step: Step | None
    failure: str | None


def see_many(
    script: Path,
    arguments: Sequence[str],
    gpus: Sequence[Gpu],
    step: int | None = None,
    assume: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> tuple[Outcome, ...]:
    """`see` for each GPU, in the order given: the script runs once for each, since scripts ask which GPU they have.

    As many at a time as there are cores. A GPU for which the script fails has its sentence; the others go on.
    """

    def one(gpu: Gpu) -> Outcome:
        told = None if progress is None else _named(progress, gpu)
        try:
            seen = see(script, arguments, gpu, step=step, assume=assume, progress=told)
        except RecordError as error:
            return Outcome(gpu=gpu, step=None, failure=str(error))
        return Outcome(gpu=gpu, step=seen, failure=None)

    with ThreadPoolExecutor(max_workers=max(1, min(len(gpus), cores()))) as pool:
        try:
            return tuple(pool.map(one, gpus))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # interrupted: those that have not begun do not begin
            raise


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _named(progress: Progress, gpu: Gpu) -> Progress:
    return lambda stage: progress(f"{gpu.name}: {stage}")
