"""Runs a launch under all checks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import numpy as np

from undertorch.checks.banks import check_banks
from undertorch.checks.barriers import check_barriers
from undertorch.checks.coalescing import check_coalescing
from undertorch.checks.detector import Detector
from undertorch.checks.divergence import check_divergence
from undertorch.checks.local import LocalMemory, check_local
from undertorch.checks.memory import check_memory
from undertorch.checks.occupancy import check_occupancy, skipped
from undertorch.checks.races import check_races
from undertorch.checks.samples import Samples
from undertorch.checks.told import Told, demangled, names_of
from undertorch.checks.traffic import counts
from undertorch.records import Checked, Finding, FindingKind, Gpu, Scope, Severity
from undertorch.simt.codegen.sites import Site
from undertorch.simt.errors import BadLaunch, Deadlock, Fault
from undertorch.simt.events import counters
from undertorch.simt.faults import extents
from undertorch.simt.frontends.kernels import SOURCE_NAME, Kernel
from undertorch.simt.frontends.pointers import check_pointers
from undertorch.simt.launch import Dim, Memory, Result, launch, three
from undertorch.simt.schedule import Schedule

RACES = {FindingKind.RACE_SHARED, FindingKind.RACE_GLOBAL}
Check = Callable[[Told], Iterable[Finding]]
CHECKS: tuple[Check, ...] = (check_races, check_barriers, check_memory, check_local, check_banks, check_coalescing,
                             check_divergence, check_occupancy)  # fmt: skip
"""Each looks at all that a launch told."""


def check(
    kernel: Kernel,
    grid: Dim,
    block: Dim,
    arguments: Sequence[object],
    *,
    gpu: Gpu,
    dynamic_shared: int = 0,
    seeds: int = 1,
    empty: Sequence[int] = (),
    source_name: str = SOURCE_NAME,
) -> Checked:
    """Findings of a kernel, run once in ascending order of warps, and once more for each further seed.

    `empty`: numbers of arguments that hold nothing at first. `source_name`: what the kernel's lines are reported under.
    Raises PtxError, Unsupported and BadLaunch.
    """
    if not hasattr(seeds, "__index__") or index(seeds) < 1:
        raise BadLaunch(f"seeds={seeds!r}: it is a number of orders of warps to try, from 1 on.")
    _check_empty(empty, arguments)
    source = kernel.file.source
    if source is not None:
        check_pointers(kernel.name, arguments)
    sources = {**({} if source is None else {source_name: source}), **kernel.file.included}
    found: list[Finding] = []
    saved = list(contents(arguments))
    told: Told | None = None
    for seed in range(seeds):
        for now, before in saved if seed else ():
            now[:] = before
        told = run(kernel, grid, block, arguments, gpu=gpu, dynamic_shared=dynamic_shared, seed=seed or None,
                   empty=empty, sources=sources)  # fmt: skip
        found += findings(told)
    assert told is not None
    return Checked(
        kernel=demangled(kernel.name),
        file=told.file(),
        grid=three(grid, "grid"),
        block=three(block, "block"),
        gpu=gpu.name,
        target=told.program.module.target,
        runs=seeds,
        findings=merged(found),
        sources=sources,
        origins={} if kernel.file.origin is None else {"PTX" if source is None else source_name: kernel.file.origin},
        counts=counts(told),
        skipped=skipped(told),
    )


def run(
    kernel: Kernel,
    grid: Dim,
    block: Dim,
    arguments: Sequence[object],
    *,
    gpu: Gpu,
    dynamic_shared: int,
    seed: int | None,
    empty: Sequence[int],
    sources: dict[str, str],
) -> Told:
    """One launch, watched. Its global variables are fresh: it is the first of its file."""
    spans = [(e.start, e.bytes) for e in extents(arguments) if e.number in empty]
    _, told = watched(
        kernel.file.text,
        kernel.name,
        grid,
        block,
        arguments,
        gpu=gpu,
        dynamic_shared=dynamic_shared,
        seed=seed,
        memory=Memory(),
        sources=sources,
        names=names_of(sources, kernel.name),
        empty=spans,
    )
    return told


def watched(*arguments: Any, empty: Sequence[tuple[int, int]] = (), **settings: Any) -> tuple[Result | None, Told]:
    """A launch (simt.launch's arguments, but for what looks on), and what it told. None: a fault or deadlock ended it.

    `empty`: address and bytes of memory that holds nothing at first.
    """
    watch = Watch(empty)
    result: Result | None = None
    ended_by: Fault | Deadlock | None = None
    try:
        result = launch(*arguments, **settings, instrument="events", on_start=watch.start, on_events=watch.take)
    except (Fault, Deadlock) as error:
        ended_by = error
    return result, watch.told(ended_by)


@dataclass(slots=True)
class Watch:
    """Looks on while a launch runs: `start` is its on_start, `take` its on_events. One thread of the host."""

    empty: Sequence[tuple[int, int]] = ()
    """Address and bytes of buffers that hold nothing at first."""
    detector: Detector | None = None
    samples: Samples | None = None
    local: LocalMemory | None = None

    def start(self, schedule: Schedule) -> None:
        """Before the first block. Raises BadLaunch for a launch whose rows would come out of order."""
        if schedule.threads != 1:
            raise BadLaunch("check needs the launch in order: on one thread of the host.")
        self.detector = Detector(schedule, self.empty)
        self.samples = Samples(len(schedule.program.by_number))
        self.local = LocalMemory(schedule.program.local_bytes)

    def take(self, rows: "np.ndarray[Any, Any]", sites: Sequence[Site]) -> None:
        """Rows of events."""
        assert self.detector is not None
        assert self.samples is not None
        assert self.local is not None
        self.samples.take(rows)
        self.local.take(rows, sites)
        self.detector.take(rows, sites)

    def told(self, ended_by: Fault | Deadlock | None = None) -> Told:
        """What the launch told, after its end."""
        assert self.detector is not None
        assert self.samples is not None
        assert self.local is not None
        schedule = self.detector.schedule
        blocks, sites = schedule.counts()
        return Told(
            program=schedule.program,
            given=schedule.given,
            grid=schedule.grid,
            block=schedule.block,
            pairs=self.detector.collect(),
            flags=[int(f) for f in self.detector.facts["flags"]],
            ended_by=ended_by,
            gpu=schedule.gpu,
            counters=counters(schedule.program, blocks, sites),
            blocks=[(int(times), int(lanes)) for times, lanes in blocks],
            samples=self.samples,
            local=self.local.reads,
        )


def findings(told: Told) -> Iterator[Finding]:
    """Of all checks."""
    for one in CHECKS:
        yield from one(told)


def merged(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """One Finding for each kind and pair of lines, the gravest and widest of them, with the count of all; the gravest
    first, then by line.

    Where values differed somewhere, the same pair's note on equal values goes; so does a read of what nobody has
    written where that read races: a barrier too few makes both.
    """
    kept: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        lines = [(p.file, p.line) for p in (finding.place, finding.other) if p is not None]
        key = (finding.kind, *lines)
        old = kept.get(key)
        if old is None:
            kept[key] = finding
            continue
        graver = min(old, finding, key=_graver_first)
        kept[key] = replace(graver, count=old.count + finding.count)
    racing = {p for f in kept.values() if f.kind in RACES for p in (f.place, f.other)}
    order = list(Severity)
    told = [f for f in kept.values() if f.kind is not FindingKind.UNINITIALIZED or f.place not in racing]
    return tuple(sorted(told, key=lambda f: (order.index(f.severity), f.place.file, f.place.line, f.kind)))


def _graver_first(finding: Finding) -> tuple[int, int]:
    """Of races that are as grave the one among more threads: its barrier orders the others, and theirs not it."""
    width = -1 if finding.scope is None else list(Scope).index(finding.scope)
    return list(Severity).index(finding.severity), -width


def contents(arguments: Sequence[object]) -> "Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]":
    """The bytes of each argument that is memory, and a copy of them."""
    import ctypes

    for start, size in dict.fromkeys((e.start, e.bytes) for e in extents(arguments) if e.bytes):
        now = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))
        yield now, now.copy()


def _check_empty(empty: Sequence[int], arguments: Sequence[object]) -> None:
    memory = {e.number for e in extents(arguments)}
    for number in empty:
        if number not in memory:
            raise BadLaunch(
                f"empty={number!r}: argument {number} is no array or tensor; give numbers of those, from 0."
            )
