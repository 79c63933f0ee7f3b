"""What a Fault says: who did what where, which argument was meant, and how the source line reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertorch.records import TextOrigin
from undertorch.simt.codegen.sites import Site
from undertorch.simt.errors import Fault, Thread
from undertorch.simt.program import Program
from undertorch.simt.ptx.instructions import Address, Group, Operand, Pair, Register, Symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a launch was given, as far as a message needs it."""

    arguments: Sequence[object]
    dynamic_shared: int
    """Bytes."""
    sources: Mapping[str, str]
    """Text of source files, by the names that the PTX gives them; of files that are not known, nothing."""
    origins: Mapping[str, TextOrigin] = field(default_factory=dict)
    """Where those of them that are no files stand."""
    names: Sequence[str] = ()
    """What the arguments are called; where they have no names, they are counted."""

    def argument(self, number: int) -> str:
        """What one is called in a message."""
        return f"argument {self.names[number] if number < len(self.names) else number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The memory that one argument gives to a launch."""

    number: int
    start: int
    bytes: int
    what: str
    """Its dtype and elements."""


def fault(program: Program, given: Given, site: Site, thread: Thread, kind: str, what: str) -> Fault:
    """The error of one thread; the source line, where its text is known, stands below."""
    place = site.instruction.place
    where = f"{place.file}:{place.line}" if place else f"PTX line {site.instruction.text_line}"
    text = source_line(given.sources, place.file, place.line) if place else None
    return Fault(
        f"{where}: {kind}: {thread} of {program.name} {what} ({site.instruction.text})."
        + (f"\n    {text}" if text else ""),
        kind=kind,
        thread=thread,
        file=place.file if place else None,
        line=place.line if place else None,
    )


def source_line(sources: Mapping[str, str], file: str | None, line: int | None) -> str | None:
    """The text of a line, without its indent; None where it is not known."""
    lines = sources.get(file or "", "").split("\n")
    return lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else None


def access(program: Program, given: Given, site: Site, address: int, kind: str) -> str:
    """What an access did that ended the launch: `out-of-bounds`, or `misaligned`."""
    verb = "updates" if site.reads and site.writes else "writes" if site.writes else "reads"
    if site.space == "shared" and 1 << 31 <= address < 1 << 32:
        address -= 1 << 32  # an offset before the block's memory
    did = f"{verb} {site.bytes} bytes at {address:#x} of {site.space} memory, "
    if kind == "misaligned":
        return did + f"which is no multiple of {site.bytes}"
    if site.space == "shared":
        return did + _beyond_shared(program, given, site)
    return did + (_beyond_arguments(program, given, site, address) if site.space != "local" else "which it has not")


def _beyond_shared(program: Program, given: Given, site: Site) -> str:
    declared = {v.name for v in (*program.module.variables, *program.flow.variables) if v.extern and not v.size}
    meant = {origin.name for origin in origins(program, site) if isinstance(origin, Symbol)}
    if declared & meant and not given.dynamic_shared:
        return (
            "which the launch gave no dynamic shared memory for; the kernel declares some (extern __shared__): launch "
            "it as [grid, block, bytes]"
        )
    return f"outside of the {program.static_shared + given.dynamic_shared} bytes that the block has"


def _beyond_arguments(program: Program, given: Given, site: Site, address: int) -> str:
    outside = "outside of what the launch was given"
    parameters = [p.name for p in program.flow.function.parameters]
    meant = {parameters.index(o.name) for o in origins(program, site) if getattr(o, "name", None) in parameters}
    nothing = [n for n in sorted(meant) if given.arguments[n] is None]
    spans = list(extents(given.arguments))
    inside = [e for e in spans if e.start <= address and address + site.bytes <= e.start + e.bytes]
    if inside:
        return f"in {given.argument(inside[0].number)} ({inside[0].what}), which may not be written to"
    candidates = [extent for extent in spans if extent.number in meant]
    if nothing and not candidates:
        return f"{outside}: {given.argument(nothing[0])} is None"
    if not candidates:
        return f"{outside}: not in any argument; what a kernel reaches through memory is named by reachable=[…]"
    nearest = min(candidates, key=lambda e: max(e.start - address, address - e.start - e.bytes))
    return f"{outside}: {_distance(nearest, address, site.bytes)} {given.argument(nearest.number)} ({nearest.what})"


def _distance(extent: Extent, address: int, size: int) -> str:
    end = extent.start + extent.bytes
    if address == end:
        return "just past the end of"
    if address > end:
        return f"{_bytes(address - end)} past the end of"
    if address < extent.start:
        return f"{_bytes(extent.start - address)} before the start of"
    return f"{_bytes(address + size - end)} over the end of"


def _bytes(count: int) -> str:
    return f"{count} byte" if count == 1 else f"{count} bytes"


def extents(arguments: Sequence[object]) -> Iterator[Extent]:
    """Of arguments that are memory: the bytes that an array spans, and all of a tensor's storage."""
    for number, argument in enumerate(arguments):
        array: Any = argument
        if isinstance(argument, np.ndarray):
            low, high = np.lib.array_utils.byte_bounds(argument)
            start, size = low, high - low if argument.size else 0
            own, dtype = argument.nbytes, str(argument.dtype)
        elif hasattr(argument, "untyped_storage"):
            storage = array.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
            own, dtype = array.numel() * array.element_size(), str(array.dtype).removeprefix("torch.")
        else:
            continue
        elements = int(np.prod(array.shape, dtype=np.int64))
        several = f"{elements} element" if elements == 1 else f"{elements} elements"
        view = "" if own == size else f" of memory that has {size} bytes"
        yield Extent(number=number, start=start, bytes=size, what=f"{dtype}, {several}{view}")


Computed = Mapping[str, Sequence[tuple[Operand, ...]]]
"""Of each register what its values are computed from."""


def computed(program: Program) -> Computed:
    """Of a kernel's registers; what is loaded from memory is computed from nothing."""
    instructions = [i for block in program.flow.blocks for part in block.parts for i in part.instructions]
    found: dict[str, list[tuple[Operand, ...]]] = {}
    for i in instructions:
        for result in _plain(i.results):
            if isinstance(result, Register) and (i.name != "ld" or i.options.get("space", "").startswith("param")):
                found.setdefault(result.name, []).append(i.sources)
    return found


def origins(program: Program, site: Site, registers: Computed | None = None) -> list[Symbol]:
    """Parameters and variables that the address of an access was computed from, through registers and not memory.

    `registers`: as `computed` gives them, for who asks for many accesses.
    """
    written = computed(program) if registers is None else registers
    found: list[Symbol] = []
    seen: set[str] = set()
    left = [o for o in _plain((*site.instruction.sources, *site.instruction.results)) if isinstance(o, Address)]
    operands: list[Operand] = list(left)
    while operands:
        operand = operands.pop()
        if isinstance(operand, Address) and operand.base is not None:
            operands.append(operand.base)
        elif isinstance(operand, Symbol) and operand not in found:
            found.append(operand)
        elif isinstance(operand, Register) and operand.name not in seen:
            seen.add(operand.name)
            operands += [o for sources in written.get(operand.name, []) for o in _plain(sources)]
    return found


def _plain(operands: Sequence[Operand]) -> Iterator[Operand]:
    for operand in operands:
        if isinstance(operand, Group):
            yield from _plain(operand.items)
        elif isinstance(operand, Pair):
            yield from _plain((operand.first, operand.second))
        else:
            yield operand
