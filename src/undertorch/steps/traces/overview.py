"""A first look over a whole file: which steps it holds, from when to when, and how much of it is damaged.

It keeps numbers in arrays and no events, since a file may hold millions of them of which one step is shown.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from undertorch.steps.traces import damage
from undertorch.steps.traces.decoding import decoded
from undertorch.steps.traces.errors import BadTrace
from undertorch.steps.traces.fields import CATEGORIES, ON_GPU, Args, Count, Head, Is, number
from undertorch.steps.traces.pieces import Place, pieces
from undertorch.steps.traces.starts import count_from, counted_from, origin
from undertorch.steps.traces.windows import (
    STEP,
    Extent,
    Moments,
    belongs,
    cut,
    extents,
    misplaced,
    numbered_streams,
    stream_of,
)

Array = np.ndarray[Any, Any]

NUMBERS = {kind: place for place, kind in enumerate(Is)}
"""Kinds as they stand in arrays."""

CODES = {category: NUMBERS[kind] for category, kind in CATEGORIES.items()}
ALLOCATIONS = frozenset(category for category, kind in CATEGORIES.items() if kind is Is.MEMORY)
GPU_CODES = [NUMBERS[kind] for kind in ON_GPU]

RANK = re.compile(r"rank[-_]?(\d+)")
"""In the name of a file."""

LARGEST = 2**62
"""Correlations beyond it are damaged, and belong to nothing."""


class GlanceArgs(msgspec.Struct, kw_only=True, gc=False):
    """Of `fields.Args`, what a first look needs."""

    correlation: Count = None
    device: Count = None
    stream: Count = None


class Glance(msgspec.Struct, kw_only=True, gc=False):
    """Of `fields.Event`, likewise."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: GlanceArgs | None = None


class GlanceFile(Head, kw_only=True, gc=False):
    """A file, or a piece of one."""

    events: list[Glance] | None = msgspec.field(name="traceEvents", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What a first look tells of a file."""

    name: str
    head: Head
    device: int
    """Number of the one GPU that did anything."""
    steps: tuple[Extent, ...]
    """Those that did something on the GPU, in order."""
    starts: Array
    """Of everything that ran on the GPU; `correlations` and `places` of their steps likewise."""
    correlations: Array
    places: Array
    middle: float
    """The start that half of the events lie before: what is a day from it is damaged."""
    origin_us: int
    """Microseconds that are taken off every start as it is written: see `starts`."""
    pieces: tuple[Place, ...]
    """Of the file, to be read anew where they are wanted."""
    spans: tuple[tuple[float, float], ...]
    """Of each piece of the file, the first start and the last end of its events: what is read anew is told by them.
    Infinite where something of it is damaged."""
    repaired: int
    """Places in the text that were mended."""
    misplaced: frozenset[tuple[float, int]]
    """Start and correlation of what ran on the GPU at a time that cannot be: see `windows.misplaced`."""
    cuts: Mapping[tuple[float, int], float]
    """By start and correlation, how long what `windows.cut` cut lasts."""

    @property
    def rank(self) -> int | None:
        """Of the process that wrote it, as it says, otherwise as its name does; None where neither does."""
        if self.head.distributed is not None and self.head.distributed.rank is not None:
            return self.head.distributed.rank
        named = RANK.search(Path(self.name).name)
        return int(named[1]) if named else None

    def lasts(self, start: float, said: float, args: Args | None, kind: Is) -> float:
        """Microseconds of an event that is said to last so long."""
        if not self.cuts or kind not in ON_GPU:
            return said
        return self.cuts.get((start, correlation_of(None if args is None else args.correlation)), said)

    def on_gpu(self, step: Extent) -> frozenset[tuple[float, int]]:
        """Start and correlation of everything that ran on the GPU for a step."""
        own = self.places == step.place
        return frozenset(zip(self.starts[own].tolist(), self.correlations[own].tolist(), strict=True))


@dataclass(slots=True, kw_only=True)
class _Columns:
    """The events that last, column by column, a list of arrays of each piece's."""

    kinds: list[Array] = field(default_factory=list)
    starts: list[Array] = field(default_factory=list)
    lasts: list[Array] = field(default_factory=list)
    instants: list[Array] = field(default_factory=list)
    """When allocations were, which do not last."""
    on_gpu: list[Array] = field(default_factory=list)
    """Of what ran on the GPU: its place in its piece, and its correlation."""
    launched: list[Array] = field(default_factory=list)
    """Of launches, likewise."""
    streams: list[object] = field(default_factory=list)
    """Of what ran on the GPU, in the order of the file."""
    devices: set[Count] = field(default_factory=set)
    processes: set[object] = field(default_factory=set)
    """That launched something."""
    ranges: list[tuple[int, int, str]] = field(default_factory=list)
    """Steps: piece, place in it, name."""


def look_over(path: Path) -> Overview:
    """Raises BadTrace."""
    name = str(path)
    if path.is_fifo():
        raise BadTrace(f"{name} is a pipe, and a trace is read twice; write it to a file, and name that.")
    decoder = msgspec.json.Decoder(GlanceFile, strict=False)
    columns, head, repaired, any_events = _Columns(), Head(), 0, False
    origin_us: int | None = None
    places = []
    for piece in pieces(path):
        places.append(piece.place)
        if origin_us is None:
            file, text, mends = decoded(piece, decoder, name)
            origin_us = origin(file.events or ())
            count_from(origin_us or 0, file.events or (), text)
        else:
            file, mends = counted_from(origin_us, piece, decoder, name)
        head = _merged(head, file)
        repaired += mends
        any_events |= file.events is not None
        _take(columns, file.events or ())
    if not any_events:
        if head.schema is not None:
            raise BadTrace(f"{name} is a step that undertorch wrote, and no trace; `undertorch compare` reads those.")
        raise BadTrace(f"{name} is JSON without traceEvents, so it is no trace of torch.profiler.")
    return _judged(name, head, columns, tuple(places), repaired, origin_us or 0)


def _take(columns: _Columns, events: Sequence[Glance]) -> None:
    """Adds a piece's events."""
    piece = len(columns.kinds)
    lasting = [event for event in events if event.ph == "X" and event.cat in CATEGORIES]
    kinds = np.array([CODES[event.cat or ""] for event in lasting], np.int8)
    columns.kinds.append(kinds)
    columns.starts.append(np.array([event.ts for event in lasting], float))  # None becomes NaN
    columns.lasts.append(np.array([event.dur for event in lasting], float))
    allocated = [event.ts for event in events if event.cat in ALLOCATIONS and event.ts is not None]
    columns.instants.append(np.array(allocated, float))
    on_gpu = np.flatnonzero(np.isin(kinds, GPU_CODES))
    launched = np.flatnonzero(kinds == NUMBERS[Is.LAUNCH])
    columns.on_gpu.append(_with_correlation(on_gpu, lasting))
    columns.launched.append(_with_correlation(launched, lasting))
    columns.streams += [_stream(lasting[place]) for place in on_gpu.tolist()]
    columns.devices.update({_device(lasting[place]) for place in on_gpu.tolist()})
    columns.processes.update({lasting[place].pid for place in launched.tolist()})
    for place in np.flatnonzero(kinds == NUMBERS[Is.RANGE]).tolist():
        if STEP.fullmatch(lasting[place].name):
            columns.ranges.append((piece, place, lasting[place].name))


def _device(event: Glance) -> Count:
    return None if event.args is None else event.args.device


def _stream(event: Glance) -> object:
    return stream_of(None if event.args is None else event.args.stream, event.tid)


def _with_correlation(places: Array, events: Sequence[Glance]) -> Array:
    """Place and correlation, one row each; -1 where there is none."""
    found = np.full((len(places), 2), -1, np.int64)
    found[:, 0] = places
    for row, place in enumerate(places.tolist()):
        args = events[place].args
        found[row, 1] = correlation_of(None if args is None else args.correlation)
    return found


def correlation_of(value: Count) -> int:
    """-1 where there is none that can be."""
    known = value if type(value) is int else number(value)
    return known if known is not None and 0 <= known < LARGEST else -1


def _merged(head: Head, more: Head) -> Head:
    """What stands before the events, and what stands behind them."""
    return Head(**{name: getattr(head, name) or getattr(more, name) for name in Head.__struct_fields__})


def _judged(
    name: str, head: Head, columns: _Columns, read: tuple[Place, ...], repaired: int, origin_us: int
) -> Overview:
    """Raises BadTrace for what no step can be read from."""
    starts, lasts, kinds = map(_joined, (columns.starts, columns.lasts, columns.kinds))
    middle = damage.middle(starts)
    sound = damage.can_be(starts, lasts, middle)
    firsts = np.cumsum([0, *map(len, columns.starts)])
    steps = [(firsts[piece] + place, said) for piece, place, said in columns.ranges]
    why = damage.why_not_trusted(
        sound=_counted(kinds[sound]),
        damaged=_counted(kinds[~sound]),
        steps=[said for place, said in steps if not sound[place]],
        no_time=not lasts[sound & (kinds == NUMBERS[Is.KERNEL])].any(),
    )
    if why is not None:
        raise BadTrace(f"{name} is damaged: {why}; record it anew.")
    everything = _numbered(columns.on_gpu, firsts)
    there = sound[everything[:, 0]]
    on_gpu = everything[there]
    if not len(on_gpu):
        raise BadTrace(
            f"{name} holds nothing that ran on a GPU; record it with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA] where there is one."
        )
    device = _only_device(columns.devices, name)
    _only_process(columns.processes, name)
    launched = _numbered(columns.launched, firsts)
    launched = launched[sound[launched[:, 0]]]
    moments = Moments(
        starts=starts[on_gpu[:, 0]],
        ends=starts[on_gpu[:, 0]] + lasts[on_gpu[:, 0]],
        launched=_launched(on_gpu[:, 1], launched[:, 1], starts[launched[:, 0]]),
        streams=numbered_streams(columns.streams)[there],
    )
    sorted_steps = sorted((float(starts[place]), -float(lasts[place]), said) for place, said in steps if sound[place])
    ranges = [(start, start - less, said) for start, less, said in sorted_steps]
    places = belongs(moments, ranges)
    wrong = misplaced(moments, places)
    off = frozenset(zip(moments.starts[wrong].tolist(), on_gpu[wrong, 1].tolist(), strict=True))
    moments, places, on_gpu = moments.where(~wrong), places[~wrong], on_gpu[~wrong]
    cuts = cut(moments, places, on_gpu[:, 1])
    for place, lasts_now in cuts.items():
        moments.ends[place] = moments.starts[place] + lasts_now
    return Overview(
        name=name,
        head=head,
        device=device,
        steps=extents(moments, ranges, places, name),
        starts=moments.starts,
        correlations=on_gpu[:, 1],
        places=places,
        middle=middle,
        origin_us=origin_us,
        pieces=read,
        spans=tuple(_spans(columns, sound, firsts)),
        repaired=repaired,
        misplaced=off,
        cuts={(float(moments.starts[place]), int(on_gpu[place, 1])): lasts_now for place, lasts_now in cuts.items()},
    )


def _spans(columns: _Columns, sound: Array, firsts: Array) -> Iterator[tuple[float, float]]:
    """Of each piece. Where something is damaged, no one can say when it was."""
    for piece, (starts, lasts, instants) in enumerate(
        zip(columns.starts, columns.lasts, columns.instants, strict=True)
    ):
        if not sound[firsts[piece] : firsts[piece + 1]].all():
            yield -inf, inf
        else:
            moments = np.concatenate([starts, starts + lasts, instants])
            yield (float(moments.min()), float(moments.max())) if len(moments) else (inf, -inf)


def _launched(correlations: Array, of_launches: Array, starts: Array) -> Array:
    """When what has these correlations was launched; NaN where no launch has it. Of several the last in the file."""
    order = np.argsort(of_launches, kind="stable")
    known = of_launches[order]
    places = np.searchsorted(known, correlations, side="right") - 1
    there = (places >= 0) & (correlations >= 0)
    there[there] = known[places[there]] == correlations[there]
    found = np.full(len(correlations), np.nan)
    found[there] = starts[order][places[there]]
    return found


def _numbered(parts: Sequence[Array], firsts: Array) -> Array:
    """Rows of place and correlation with the place in the whole file."""
    rows = np.concatenate([np.empty((0, 2), np.int64), *parts])
    rows[:, 0] += np.repeat(firsts[: len(parts)], [len(part) for part in parts])
    return np.asarray(rows)


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if parts else np.empty(0)


def _counted(kinds: Array) -> Counter[Is]:
    counts = np.bincount(kinds, minlength=len(NUMBERS))
    return Counter({kind: int(counts[place]) for kind, place in NUMBERS.items()})


def _only_device(devices: set[Count], name: str) -> int:
    numbers = {number(device) for device in devices} - {None} or {None}  # what does not say ran where the others did
    if len(numbers) > 1:
        listed = ", ".join(str(device) for device in sorted(numbers, key=str))
        raise BadTrace(
            f"{name} holds what ran on {len(numbers)} GPUs ({listed}), and a step is shown for one; "
            "export a trace of each rank."
        )
    return next(iter(numbers)) or 0


def _only_process(processes: set[object], name: str) -> None:
    if len(processes) > 1:
        raise BadTrace(
            f"{name} holds {len(processes)} processes that launched kernels, and a step is shown for one; "
            "export a trace of each rank."
        )
