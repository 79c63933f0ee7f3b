"""Which of two steps is an ordinary one. What a script does after its first step and then every so many (it prints the
loss, evaluates, saves) belongs to its second, and not to the third.
"""

from collections.abc import Iterable, Sequence

from undertorch.records import Assumption, Op, Phase
from undertorch.steps.predict.timeline import SYNCHRONIZING

SECOND = 2
"""The step that is shown where none is named: the first one makes the optimizer's state."""
PATIENCE = 3
"""So many times the Ops of the second step are waited for the third one's end: an evaluation at the end of an epoch may
be long."""
NAMED = 3
"""Lines that are named."""

Place = tuple[str, int] | None


def asides(ops: Iterable[Op]) -> frozenset[Place]:
    """Lines that wait for the GPU or call a model, and train nothing."""
    return frozenset(
        None if op.where is None else (op.where.file, op.where.line)
        for op in ops
        if op.phase is Phase.OTHER and (op.module is not None or op.name in SYNCHRONIZING or _to_host(op))
    )


def _to_host(op: Op) -> bool:
    tensors = (*op.inputs, *op.results)
    return any(tensor.device == "cpu" for tensor in op.results) and any(tensor.device != "cpu" for tensor in tensors)


def now_and_then(second: Sequence[Op], third: Sequence[Op]) -> tuple[Place, ...]:
    """Lines of the second step that its successor is without; none where that has others of its own."""
    one, other = asides(second), asides(third)
    return tuple(sorted(one - other, key=lambda place: place or ("", 0))) if other <= one else ()


def shown_instead(places: Sequence[Place]) -> Assumption:
    """Says why the third step is shown, and what the second has besides."""
    lines = [f"{place[0]}:{place[1]}" for place in places if place is not None]
    more = f" and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    at = f", at {', '.join(lines[:NAMED])}{more}" if lines else ""
    what = (
        f"step 3 is shown: step 2 has also what the script does only now and then{at} (a wait for the GPU, or a model "
        "that runs without being trained); --step 2 shows it."
    )
    return Assumption(where=None, what=what)
