"""When in a step something happens: stretches of launches that belong together, the start of each Op."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from undertorch.records import Launch, Step

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(Generic[Key]):
    """From the start of its first launch to the end of its last; gaps between them count as its own."""

    key: Key
    device: int
    start_us: float
    end_us: float
    launches: int


def segments(launches: Sequence[Launch], key: Callable[[int], Key]) -> Iterator[Segment[Key]]:
    """Device by device, in order of time. `key` answers for the launch of that index.

    Segments of a device do not overlap: where launches do (streams), the time is the first one's, as in the totals.
    """
    order = sorted(range(len(launches)), key=lambda i: (launches[i].device, launches[i].start_us, i))
    open_one: Segment[Key] | None = None
    covered = 0.0
    for index in order:
        launch, of = launches[index], key(index)
        if open_one is not None and open_one.device != launch.device:
            yield open_one
            open_one = None
        begin = launch.start_us if open_one is None else max(launch.start_us, covered)
        covered = max(launch.end_us, begin)
        if open_one is not None and open_one.key == of:
            open_one = _grown(open_one, covered)
            continue
        if open_one is not None:
            yield open_one
        open_one = Segment(key=of, device=launch.device, start_us=begin, end_us=covered, launches=1)
    if open_one is not None:
        yield open_one


def _grown(segment: Segment[Key], end_us: float) -> Segment[Key]:
    return Segment(
        key=segment.key,
        device=segment.device,
        start_us=segment.start_us,
        end_us=end_us,
        launches=segment.launches + 1,
    )


def op_starts(step: Step) -> dict[int, float]:
    """When each Op starts: with its first launch, or where it has none, with the one before it, and never before that
    one: the curve of what is alive does not turn back. Empty: no launches."""
    firsts: dict[int, float] = {}
    for launch in step.launches:
        for number in launch.ops:
            firsts[number] = min(firsts.get(number, launch.start_us), launch.start_us)
    if not firsts:
        return {}
    found: dict[int, float] = {}
    latest = min(firsts.values())
    for op in step.ops:
        latest = max(firsts.get(op.id, latest), latest)
        found[op.id] = latest
    return found
