"""Whether traces are of ranks of one run."""

from collections import Counter
from collections.abc import Sequence

from undertorch.records.ranks import RankedStep


def why_not_one_run(steps: Sequence[RankedStep]) -> str | None:
    """A sentence that says why traces that name their ranks cannot be joined; None where they can."""
    why = _why(steps)
    return None if why is None else f"The traces are not joined as ranks of one run: {why}."


def _why(steps: Sequence[RankedStep]) -> str | None:
    sizes = {step.world_size for step in steps}
    if len(sizes) > 1:
        known = sorted(size for size in sizes if size is not None)
        also = ["a number that is not said"] if None in sizes else []
        return f"the runs are of {' and '.join([*map(str, known), *also])} ranks"
    for step in steps:
        if step.rank < 0 or (step.world_size is not None and step.rank >= step.world_size):
            of = "" if step.world_size is None else f" of {step.world_size}"
            return f"{step.step.environment.script} says that it is of rank {step.rank}{of}, which there is not"
    rank, times = Counter(step.rank for step in steps).most_common(1)[0]
    if times > 1:
        return f"{times} are of rank {rank}"
    gpus = sorted({step.step.gpu for step in steps})
    if len(gpus) > 1:
        return f"they are of different GPUs ({', '.join(gpus)})"
    return None
