"""All launches that a program makes, each looked at as it runs: `Launches` stands in the place of `simt.launch`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

import numpy as np

from undertorch.checks.check import contents, findings, merged, watched
from undertorch.checks.occupancy import skipped
from undertorch.checks.told import Told, demangled, names_of
from undertorch.checks.traffic import counts
from undertorch.records import Checked, Counts, Dim3, Finding, Gpu, TextOrigin
from undertorch.simt.errors import BadLaunch
from undertorch.simt.launch import Result, launch, three
from undertorch.simt.program import parsed

Key = tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class Seen:
    """One kernel, over its launches."""

    name: str
    file: str | None
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    gpu: str
    target: str
    launches: int = 0
    watched: int = 0
    sizes: set[tuple[Dim3, Dim3]] = field(default_factory=set)
    """Different grids and blocks."""
    findings: list[Finding] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    origins: dict[str, TextOrigin] = field(default_factory=dict)
    missed: str | None = None
    counts: Counts | None = None
    skipped: str | None = None


@dataclass(slots=True, kw_only=True)
class Launches:
    """Runs launches and remembers what was found in them.

    Of equal launches - one kernel, compiled once, with one grid and block, on arguments of the same types, shapes and
    strides - the 1st, 2nd, 4th, 8th, … are looked at and the others only run: of a thousand 10.
    """

    every: bool = False
    """Whether each is looked at."""
    seeds: int = 1
    """Orders of warps that each is run in."""
    empty: Sequence[tuple[int, int]] = ()
    """Address and bytes of memory that holds nothing at first."""
    equal: dict[Key, int] = field(default_factory=dict)
    """How often a launch was made, and others equal to it."""
    kernels: dict[Key, Seen] = field(default_factory=dict)
    """By name and file."""
    _named: dict[tuple[str, str], Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises BadLaunch for what is no number of orders."""
        if not hasattr(self.seeds, "__index__") or index(self.seeds) < 1:
            raise BadLaunch(f"seeds={self.seeds!r}: it is a number of orders of warps to try, from 1 on.")

    def __call__(
        self, ptx: str, kernel: str, grid: Any, block: Any, arguments: Sequence[object], **settings: Any
    ) -> Result:
        """Runs one. Raises what `simt.launch` raises: a fault or a deadlock too, after it was noted."""
        key = (ptx, kernel, three(grid, "grid"), three(block, "block"), settings.get("dynamic_shared"),
               *map(kind_of, arguments))  # fmt: skip
        number = self.equal[key] = self.equal.get(key, 0) + 1
        one = (ptx, kernel, grid, block, arguments)
        settings = settings | {"instrument": "none"}
        seen = self._named.get((ptx, kernel))
        if seen is not None and not self.every and number & (number - 1):
            result = launch(*one, **settings)
            seen.launches += 1
            return result
        try:
            return self._watched(*one, settings)
        except BadLaunch as error:
            result = launch(*one, **settings)  # who asks for what no GPU does is told so here
            self._missed(ptx, kernel, result, settings["gpu"], str(error))
            return result

    def _watched(
        self, ptx: str, kernel: str, grid: Any, block: Any, arguments: Sequence[object], settings: dict[str, Any]
    ) -> Result:
        sources = settings.get("sources") or {}
        names = settings.get("names") or names_of(sources, kernel)
        seed = settings.get("seed")
        saved = list(contents(arguments)) if self.seeds > 1 else []
        settings = {**settings, "sources": sources, "names": names, "threads": 1, "empty": self.empty}
        del settings["instrument"]
        result: Result | None = None
        for number in range(self.seeds):
            for now, before in saved if number else ():
                now[:] = before
            order = seed if number == 0 else (seed or 0) + number
            result, told = watched(ptx, kernel, grid, block, arguments, **settings | {"seed": order})
            self._note(ptx, told, settings["gpu"].name, first=number == 0)
            if told.ended_by is not None:
                raise told.ended_by
        assert result is not None
        return result

    def _note(self, ptx: str, told: Told, gpu: str, *, first: bool) -> None:
        name = demangled(told.program.name)
        new = Seen(name=name, file=told.file(), grid=told.grid, block=told.block, gpu=gpu,
                   target=told.program.module.target)  # fmt: skip
        seen = self.kernels.setdefault((name, told.file()), new)
        self._named[ptx, told.program.name] = seen
        seen.launches += first
        seen.watched += first
        if first:
            seen.counts = counts(told) if seen.counts is None else seen.counts + counts(told)
        seen.skipped = skipped(told)
        seen.origins.update(told.given.origins)
        seen.sizes.add((told.grid, told.block))
        found = merged(findings(told))
        if found and not seen.findings:
            seen.grid, seen.block = told.grid, told.block
        seen.findings = list(merged([*seen.findings, *found]))
        for place in (place for finding in found for place in (finding.place, finding.other) if place is not None):
            text = told.given.sources.get(place.file, "")
            if text:
                seen.sources[place.file] = text

    def _missed(self, ptx: str, kernel: str, result: Result, gpu: Gpu, why: str) -> None:
        name = demangled(kernel)
        new = Seen(name=name, file=None, grid=result.grid, block=result.block, gpu=gpu.name,
                   target=parsed(ptx)[0].target)  # fmt: skip
        seen = self.kernels.setdefault((name, None), new)
        seen.launches += 1
        seen.missed = why

    def checked(self) -> tuple[Checked, ...]:
        """What was found, a kernel each, in the order in which they were first launched."""
        return tuple(
            Checked(
                kernel=seen.name,
                file=seen.file,
                grid=seen.grid,
                block=seen.block,
                gpu=seen.gpu,
                target=seen.target,
                runs=self.seeds,
                launches=seen.launches,
                watched=seen.watched,
                sizes=tuple(sorted(seen.sizes)),
                missed=seen.missed,
                findings=tuple(seen.findings),
                sources=seen.sources,
                origins=seen.origins,
                counts=seen.counts,
                skipped=seen.skipped,
            )
            for seen in self.kernels.values()
        )

    def begin(self) -> None:
        """Forgets what was found and counted: a test begins."""
        self.equal.clear()
        self.kernels.clear()
        self._named.clear()


def kind_of(argument: Any) -> Key:
    """What has to be the same of two launches' arguments for them to be equal: of memory its type, shape, strides and
    alignment; of integers about how large they are (a loop's counter is passed, too); of other values the type."""
    if isinstance(argument, np.ndarray):
        return (argument.dtype.str, argument.shape, argument.strides, argument.ctypes.data % 16)
    if hasattr(argument, "untyped_storage"):
        tensor = argument
        return (str(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), tensor.data_ptr() % 16)
    if isinstance(argument, int | np.integer):
        return ("integer", int(argument).bit_length(), int(argument) % 16 == 0)
    return (type(argument).__name__,)


def joined(checked: Sequence[Checked]) -> tuple[Checked, ...]:
    """Each kernel once: what several runs found of it, with launches and findings counted together."""
    kernels: dict[Key, Checked] = {}
    for one in checked:
        key = (one.kernel, one.file, one.target)
        old = kernels.get(key)
        if old is None:
            kernels[key] = one
            continue
        first = old if old.findings or not one.findings else one
        kernels[key] = replace(
            first,
            launches=old.launches + one.launches,
            watched=old.watched + one.watched,
            sizes=tuple(sorted({*old.sizes, *one.sizes})),
            missed=old.missed or one.missed,
            counts=one.counts if old.counts is None else old.counts if one.counts is None else old.counts + one.counts,
            skipped=old.skipped or one.skipped,
            findings=merged([*old.findings, *one.findings]),
            sources={**old.sources, **one.sources},
            origins={**old.origins, **one.origins},
        )
    return tuple(kernels.values())
