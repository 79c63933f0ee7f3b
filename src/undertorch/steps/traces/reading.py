"""From a file to the events of a trace, or of one of its steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

import msgspec

from undertorch.steps.traces.damage import can_be
from undertorch.steps.traces.errors import BadTrace
from undertorch.steps.traces.fields import CATEGORIES, ON_GPU, Args, Count, Event, File, Head, Is, number, printable
from undertorch.steps.traces.overview import Overview, correlation_of, look_over
from undertorch.steps.traces.pieces import GZIP, again
from undertorch.steps.traces.starts import counted_from
from undertorch.steps.traces.windows import Extent

__all__ = ["BadTrace", "Seen", "Trace", "is_trace", "read"]

SUFFIXES = (".json", ".json.gz", ".gz")

NO_ARGS = Args()


@dataclass(slots=True, kw_only=True, eq=False)
class Seen:
    """An event that lasts, with what it was decoded to."""

    kind: Is
    name: str
    start: float
    end: float
    """Microseconds, from the origin of its trace."""
    lasts: float
    """Microseconds, as they were written."""
    thread: tuple[object, object]
    """Process and thread; of something on the GPU, device and stream."""
    args: Args
    parent: "Seen | None" = None
    """The innermost call, range or Python function of its thread that it lies in."""

    @property
    def correlation(self) -> int | None:
        """The number that a launch shares with what it launched."""
        return number(self.args.correlation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a file holds, each list in order of time."""

    name: str
    on_gpu: tuple[Seen, ...]
    on_cpu: tuple[Seen, ...]
    allocations: tuple[tuple[float, int], ...]
    """When, and bytes alive on the GPU after it."""
    device: int
    """Number of the one GPU that did anything."""
    gpu_name: str | None
    """As the driver calls it."""
    versions: dict[str, str]
    origin_ns: int
    """What its moments count from, itself counted from whatever the file counts from, which is 1970 or not told."""
    rank: int | None
    """Of the process that wrote it; None where it does not say."""
    world_size: int | None
    repaired: int
    """Places in the text that were mended."""
    damaged: tuple[Event, ...]
    """Events that were left out, as their times cannot be."""
    twice: int = 0
    """Events on the GPU that were left out, as each is there once more."""
    cut: int = 0
    """Events on the GPU that were cut where the next on their stream begins: see `windows.cut`."""


def is_trace(path: Path) -> bool:
    """Whether a file is a trace and no script: by its name, otherwise by how it begins. A pipe is taken for one, to be
    refused: it cannot be read to see what it is."""
    if path.name.endswith(SUFFIXES) or path.is_fifo():
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(GZIP)) == GZIP
    except OSError:
        return False


def read(path: Path, step: Extent | None = None, overview: Overview | None = None) -> Trace:
    """All of a file; or of one of its steps what ran on the GPU for it, and what the CPU did meanwhile.

    Raises BadTrace. `overview` is that of the file, where it was looked over already.
    """
    known = look_over(path) if overview is None else overview
    since, until = (-inf, inf) if step is None else (step.since, step.until)
    own = None if step is None else known.on_gpu(step)
    decoder = msgspec.json.Decoder(File, strict=False)
    seen: list[Seen] = []
    negative = 0
    damaged: list[Event] = []
    allocations: list[tuple[float, int]] = []
    wanted = [first <= until and last >= since for first, last in known.spans]
    for piece in again(path, known.pieces, wanted):
        file, _ = counted_from(known.origin_us, piece, decoder, known.name)
        for event in file.events or ():
            kind = CATEGORIES.get(event.cat or "")
            if kind is Is.MEMORY:
                allocations += _allocation(event, since, until)
            elif kind is not None and event.ph == "X":
                off = kind in ON_GPU and _key(event) in known.misplaced
                if off or event.ts is None or event.dur is None or not can_be(event.ts, event.dur, known.middle):
                    damaged.append(event)
                elif event.ts <= until and event.ts + event.dur >= since and _belongs(event, kind, own):
                    negative += _unknown_where_negative(event)
                    seen.append(_seen(event, kind, event.ts, known.lasts(event.ts, event.dur, event.args, kind)))
    on_cpu = [one for one in seen if one.kind not in ON_GPU]
    # The profiler may write a buffer twice. A stream runs one after the other: these are no two.
    on_gpu = {
        (one.thread, one.args.stream, one.start, one.lasts, one.correlation, one.name): one
        for one in seen
        if one.kind in ON_GPU
    }
    return Trace(
        name=known.name,
        on_gpu=tuple(sorted(on_gpu.values(), key=lambda one: one.start)),
        on_cpu=tuple(sorted(on_cpu, key=lambda one: (one.start, -one.end))),
        allocations=tuple(allocations),
        device=known.device,
        gpu_name=next(
            (printable(each.name) for each in known.head.devices or () if each.id == known.device and each.name), None
        ),
        versions=_versions(known.head),
        origin_ns=(number(known.head.base) or 0) + 1000 * known.origin_us,
        rank=known.rank,
        world_size=None if known.head.distributed is None else known.head.distributed.world_size,
        repaired=known.repaired + negative,
        damaged=tuple(damaged),
        twice=len(seen) - len(on_cpu) - len(on_gpu),
        cut=sum((one.start, correlation_of(one.args.correlation)) in known.cuts for one in on_gpu.values()),
    )


def _unknown_where_negative(event: Event) -> bool:
    """Whether a size of a launch was, which no size can be; it is no longer said then."""
    args, found = event.args, False
    if args is not None:
        for field in ("registers", "shared", "bytes", "size"):
            if (number_of := getattr(args, field)) is not None and (_negative(number_of)):
                setattr(args, field, None)
                found = True
        for field in ("grid", "block"):
            sizes = getattr(args, field)
            if isinstance(sizes, list) and any(size < 0 for size in sizes):
                setattr(args, field, None)
                found = True
    return found


def _negative(value: Count) -> bool:
    return value.strip().startswith("-") if isinstance(value, str) else value is not None and value < 0


def _belongs(event: Event, kind: Is, own: frozenset[tuple[float, int]] | None) -> bool:
    """Whether it ran on the GPU for the step that is read, if on the GPU."""
    if own is None or kind not in ON_GPU:
        return True
    return _key(event) in own


def _key(event: Event) -> tuple[float | None, int]:
    """Start and correlation."""
    return event.ts, correlation_of(None if event.args is None else event.args.correlation)


def _seen(event: Event, kind: Is, start: float, lasts: float) -> Seen:
    return Seen(
        kind=kind,
        name=printable(event.name),
        start=start,
        end=start + lasts,
        lasts=lasts,
        thread=(event.pid, event.tid),
        args=event.args or NO_ARGS,
    )


def _allocation(event: Event, since: float, until: float) -> Iterator[tuple[float, int]]:
    if event.args is not None and event.ts is not None and since <= event.ts <= until:
        alive, device_type = number(event.args.allocated), number(event.args.device_type)
        if alive is not None and device_type:
            yield event.ts, alive


def _versions(file: Head) -> dict[str, str]:
    """CUDA writes 1000 · major + 10 · minor (CUDART_VERSION), HIP 10⁷ · major + 10⁵ · minor + patch (HIP_VERSION)."""
    versions = {}
    if file.cuda:
        versions["cuda"] = f"{file.cuda // 1000}.{file.cuda % 1000 // 10}"
    if file.hip:
        versions["hip"] = f"{file.hip // 10**7}.{file.hip // 10**5 % 100}"
    return versions
