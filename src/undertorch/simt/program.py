"""A kernel made ready to run: laid out, compiled, linked."""

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from undertorch.simt.codegen.flow import Flow, flow
from undertorch.simt.codegen.objects import linker
from undertorch.simt.codegen.places import Places
from undertorch.simt.codegen.sites import Site, list_sites
from undertorch.simt.errors import BadLaunch
from undertorch.simt.loops import computing
from undertorch.simt.numerics import TensorNumerics
from undertorch.simt.ptx import parse
from undertorch.simt.ptx.instructions import Module, Symbol, Variable
from undertorch.simt.ptx.special import RESERVED as RESERVED_REGISTERS
from undertorch.simt.ptx.special import WORKSPACE, special_registers
from undertorch.simt.runtime.layout import RESERVED

if TYPE_CHECKING:
    from undertorch.simt.codegen.kernel import KernelCode, Mode

MMA = {"mma", "wmma"}
LEVELS = {"none": 0, "counters": 1, "events": 2}


@dataclass(kw_only=True)
class Program:
    """One kernel at one level of instrumentation."""

    text: str
    """Of the whole file."""
    module: Module
    digest: str
    name: str
    level: int
    flow: Flow
    places: Places
    sites: dict[int, Site]
    static_shared: int
    """Bytes of shared memory that the kernel declares; dynamic memory follows."""
    reserved_shared: int
    """Bytes before them that are the system's, where the kernel asks for their place; else 0."""
    cooperative: bool
    """Whether it asks for the workspace of a cooperative launch: that of `this_grid().sync()`."""
    local_bytes: int
    """Of a thread."""
    numerics: TensorNumerics | None = None
    """How mma adds; None: by fused multiply-adds."""
    loaded: dict[str, tuple[Any, int]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a mode is compiled: what a second one would replace may be running."""

    def address(self, mode: "Mode") -> int:
        """Where the machine code of a mode lies; compiles it when first asked."""
        with self.lock:
            if mode not in self.loaded:
                key = (self.digest, self.name, str(self.level), mode, str(self.numerics))
                self.loaded[mode] = linker().kernel(key, mode, lambda: self._code(mode))
        return self.loaded[mode][1]

    def _code(self, mode: "Mode") -> "KernelCode":
        from undertorch.simt.codegen.kernel import KernelWriter  # most of codegen, which a kept object does not need
        from undertorch.simt.codegen.specials import Addresses

        p = self.places
        addresses = Addresses(shared=p.shared, local=p.local, parameters=p.parameters, symbols=p.symbols)
        return KernelWriter(
            flow=self.flow,
            addresses=addresses,
            sites=self.sites,
            mode=mode,
            level=self.level,
            numerics=self.numerics,
        ).write()

    @cached_property
    def placed(self) -> tuple[Variable, ...]:
        """What has an address for as long as the file is loaded: its variables, and functions that are pointed to."""
        return _placed(self.module, self.flow)

    def alignment(self, space: str) -> int:
        """The greatest that a variable of shared or local memory asks for."""
        variables = (*self.module.variables, *self.flow.variables)
        return max((1, *(v.align for v in variables if v.space in {space, "param" if space == "local" else space})))

    @cached_property
    def allocates(self) -> bool:
        """Whether it calls malloc."""
        calls = [s.instruction.sources[1] for s in self.sites.values() if s.instruction.name == "hostcall"]
        return Symbol("malloc") in calls

    @cached_property
    def written(self) -> frozenset[int]:
        """Numbers of the parameters by which the kernel may write: what its stores' addresses are computed from."""
        return self._reached(site for site in self.by_number if site.writes)

    @cached_property
    def read(self) -> frozenset[int]:
        """Likewise of those by which it may read."""
        return self._reached(site for site in self.by_number if site.reads)

    def _reached(self, sites: Iterable[Site]) -> frozenset[int]:
        from undertorch.simt.faults import origins

        names = [p.name for p in self.flow.function.parameters]
        ours = [site for site in sites if site.space in {"global", "generic"}]
        found = {getattr(origin, "name", "") for site in ours for origin in origins(self, site)}
        return frozenset(number for number, name in enumerate(names) if name in found)

    @cached_property
    def computing(self) -> frozenset[int]:
        """Blocks of loops that wait for nobody."""
        return computing(self.flow)

    @cached_property
    def by_number(self) -> tuple[Site, ...]:
        """Sites in order."""
        return tuple(sorted(self.sites.values(), key=lambda site: site.number))

    @staticmethod
    def runtime(name: str) -> int:
        """The address of a function that the schedule calls."""
        return linker().address(name)


@lru_cache(maxsize=64)
def parsed(text: str) -> tuple[Module, str]:
    """A file of PTX, and its hash."""
    return parse(text), hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=256)
def prepare(text: str, kernel: str, instrument: str, numerics: TensorNumerics | None = None) -> Program:
    """Lays out a kernel; `numerics` says how mma adds.

    Raises PtxError, Unsupported, or BadLaunch where there is no such kernel.
    """
    module, digest = parsed(text)
    if kernel not in module.kernels:
        names = ", ".join(module.kernels) or "none"
        raise BadLaunch(f"The PTX has no kernel {kernel}; its kernels are: {names}.")
    if instrument not in LEVELS:
        raise BadLaunch(f"instrument={instrument!r}: it is one of {', '.join(LEVELS)}.")
    laid_out = flow(module, kernel)
    specials = special_registers(module, kernel)
    reserved = 0 if specials.isdisjoint(RESERVED_REGISTERS) else RESERVED
    shared, end = _offsets([v for v in (*module.variables, *laid_out.variables) if v.space == "shared"], reserved)
    local, local_bytes = _offsets([v for v in laid_out.variables if v.space in {"local", "param"}])
    widest = max((16, *(v.align for v in laid_out.variables if v.space in {"local", "param"})))
    parameters, _ = _offsets(list(laid_out.function.parameters))
    places = Places(
        shared=shared,
        local=local,
        parameters=parameters,
        symbols={v.name: number for number, v in enumerate(_placed(module, laid_out))},
    )
    sites = list_sites(laid_out)
    program = Program(
        text=text,
        module=module,
        digest=digest,
        name=kernel,
        level=LEVELS[instrument],
        flow=laid_out,
        places=places,
        sites=sites,
        static_shared=end - reserved,
        reserved_shared=reserved,
        cooperative=not specials.isdisjoint(WORKSPACE),
        local_bytes=-(-local_bytes // widest) * widest,
        numerics=numerics if any(site.instruction.name in MMA for site in sites.values()) else None,
    )
    program.address("full")  # what cannot be compiled is said before anything runs
    return program


def _placed(module: Module, laid_out: Flow) -> tuple[Variable, ...]:
    variables = [v for v in (*module.variables, *laid_out.variables) if v.space in {"global", "const"}]
    return (*variables, *(Variable(name=name, space="code", size=1, align=1) for name in module.pointed_to))


def _offsets(variables: list[Variable], at: int = 0) -> tuple[dict[str, int], int]:
    """Where variables lie one behind the other from `at` on, and where they end. Arrays without a size start there."""
    places: dict[str, int] = {}
    for variable in variables:
        if not variable.extern or variable.size:
            at = -(-at // variable.align) * variable.align
            places[variable.name] = at
            at += variable.size
    open_ended = [v for v in variables if v.extern and not v.size]
    if open_ended:
        most = max(v.align for v in open_ended)
        at = -(-at // most) * most
        places |= {v.name: at for v in open_ended}
    return places, at
