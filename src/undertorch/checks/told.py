"""What a launch told: all that a check gets. A check is a function from this to Findings."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undertorch.checks.samples import Samples
from undertorch.checks.words import Words, words_of
from undertorch.records import Figures, Finding, FindingKind, Gpu, Place, Scope, Severity
from undertorch.simt.codegen.sites import Site
from undertorch.simt.errors import Deadlock, Fault
from undertorch.simt.events import Counters
from undertorch.simt.faults import Given, extents, source_line
from undertorch.simt.frontends import mangled
from undertorch.simt.program import Program
from undertorch.simt.ptx.instructions import Instruction

if TYPE_CHECKING:
    import numpy as np

    from undertorch.checks.local import Unwritten


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One launch, after its end."""

    program: Program
    given: Given
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    pairs: "Sequence[np.void]"
    """Rows of layout.PAIR."""
    flags: Sequence[int]
    """Of each instruction, as layout.py names them."""
    ended_by: Fault | Deadlock | None
    gpu: Gpu
    counters: Counters
    blocks: Sequence[tuple[int, int]]
    """Of each basic block: how often a warp ran it, and with how many lanes in all."""
    samples: Samples
    local: "Mapping[int, Unwritten]"
    """Reads of what a thread has not written of its own memory, by instruction."""

    def site(self, number: int) -> Site:
        """An instruction."""
        return self.program.by_number[number]

    def place(self, site: Site) -> Place:
        """An instruction's source position."""
        return self.place_of(site.instruction)

    def place_of(self, instruction: Instruction) -> Place:
        """Its source position: of code of a header, the line that called it; without any, its line of the PTX."""
        place = instruction.place
        own = place
        while own is not None and (_library(own.file) or own.file not in self.given.sources):
            own = own.inlined_at
        place = own or place
        if place is None:
            return Place(file="PTX", line=instruction.text_line)
        chain: list[Place] = []
        outer = place.inlined_at
        while outer is not None:
            chain.append(Place(file=outer.file, line=outer.line, column=outer.column))
            outer = outer.inlined_at
        return Place(file=place.file, line=place.line, column=place.column or None, inlined_at=tuple(chain))

    def file(self) -> str | None:
        """The source file of the kernel's first instruction that has one."""
        return next((s.instruction.place.file for s in self.program.by_number if s.instruction.place), None)

    @property
    def words(self) -> Words:
        """What things are called in the kernel's language."""
        return words_of(self.file())

    def thread(self, number: int) -> str:
        """`thread 5`, or `thread (5, 0, 2)` of a block with more than one dimension."""
        x, y, z = self.block
        index = (number % x, number // x % y, number // (x * y))
        return f"thread {number}" if y == z == 1 else f"thread ({index[0]}, {index[1]}, {index[2]})"

    def block_named(self, number: int) -> str:
        """`block 5`, or `block (5, 0, 2)`; of Triton's kernels `program 5`."""
        x, y, z = self.grid
        index = (number % x, number // x % y, number // (x * y))
        word = self.words.block
        return f"{word} {number}" if y == z == 1 else f"{word} ({index[0]}, {index[1]}, {index[2]})"

    def memory(self, pair: "np.void") -> str:
        """What lies at a pair's address: a shared variable's, an argument's, or a variable's element."""
        mask, address = int(pair["bytes"]), int(pair["address"])
        first = (mask & -mask).bit_length() - 1 if mask else 0
        at = (address & ~3) + first
        return self.shared_at(at) if int(pair["shared"]) else self.global_at(at)

    def shared_at(self, at: int) -> str:
        """`byte 12 of shared s`."""
        places = {name: start for name, start in self.program.places.shared.items() if start <= at}
        if not places:
            return f"byte {at} of shared memory"
        name, start = max(places.items(), key=lambda item: item[1])
        return f"byte {at - start} of shared `{plain(name)}`"

    def global_at(self, at: int) -> str:
        """`x[3]`, by the argument's dtype."""
        for extent in extents(self.given.arguments):
            if extent.start <= at < extent.start + extent.bytes:
                array: Any = self.given.arguments[extent.number]
                size = int(getattr(array, "itemsize", 1) or 1)
                offset = at - extent.start
                over = f" (byte {offset % size})" if offset % size else ""
                name = self.given.argument(extent.number)
                return (
                    f"{name.removeprefix('argument ') if self._named(extent.number) else name}[{offset // size}]{over}"
                )
        return f"global memory at {at:#x}"

    def _named(self, number: int) -> bool:
        return number < len(self.given.names)

    def text(self, place: Place) -> str | None:
        """A source line."""
        return source_line(self.given.sources, place.file, place.line)

    def finding(
        self,
        kind: FindingKind,
        severity: Severity,
        place: Place,
        *,
        message: str,
        evidence: str,
        remedy: str,
        other: Place | None = None,
        count: int = 1,
        cost: str | None = None,
        figures: Figures | None = None,
        scope: Scope | None = None,
    ) -> Finding:
        """A Finding with its fingerprint: the kernel, the kind, and the text of its lines."""
        lines = [self._said(p) for p in (place, other) if p is not None]
        digest = hashlib.sha256("\0".join([self.program.name, kind, *lines]).encode()).hexdigest()[:16]
        return Finding(
            kind=kind,
            severity=severity,
            place=place,
            message=message,
            evidence=evidence,
            other=other,
            count=count,
            cost=cost,
            remedy=remedy,
            fingerprint=digest,
            figures=figures,
            scope=scope,
        )

    def _said(self, place: Place) -> str:
        """A line's text without its blanks, and which of those with this text it is; else its number."""
        text = self.text(place)
        if text is None:
            return f"{place.file}:{place.line}"
        lines = [_bare(line) for line in self.given.sources[place.file].split("\n")]
        return f"{_bare(text)}\0{lines[: place.line].count(_bare(text))}"

    def line(self, place: Place, beside: Place | None = None) -> str:
        """`line 12`, or `file.cu:12` where the other place is in another file."""
        if place.file == "PTX":
            return f"PTX line {place.line}"
        return f"line {place.line}" if beside is None or beside.file == place.file else f"{place.file}:{place.line}"


def _library(file: str) -> bool:
    """Whether a line belongs to Triton's own library (tl.sum, tl.sort, …), which is inlined into kernels."""
    return "/triton/language/" in file


def _bare(text: str) -> str:
    return "".join(text.split())


def plain(name: str) -> str:
    """A variable's name in the source: of `_ZZ6kernelPfE4tile` `tile` (Itanium C++ ABI, 5.1: lengths and names)."""
    inner = name.rpartition("E")[2] if name.startswith("_ZZ") else name.removeprefix("_Z").removeprefix("N")
    found = re.match(r"\d+", inner)
    if found is None:
        return name
    start = found.end()
    return inner[start : start + int(found.group())]


def names_of(sources: Mapping[str, str], kernel: str) -> tuple[str, ...]:
    """What a kernel's parameters are called in its source; nothing where that cannot be told."""
    name = own_name(kernel)
    for text in sources.values():
        bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
        found = re.search(rf"__global__[^;{{}}]*?\b{re.escape(name)}\s*\(", bare)
        if found is None:
            continue
        depth, start, parts = 1, found.end(), [""]
        for character in bare[start:]:
            depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(character, 0)
            if depth == 0:
                break
            if character == "," and depth == 1:
                parts.append("")
            else:
                parts[-1] += character
        words = [re.findall(r"[A-Za-z_]\w*", re.sub(r"\[[^]]*\]|=.*", "", part)) for part in parts]
        return tuple(found_words[-1] for found_words in words if found_words)
    return ()


def demangled(kernel: str) -> str:
    """The C++ name of a kernel, `ns::reduce<float>`; where that cannot be read, the first name in it."""
    whole = mangled.demangled(kernel)
    if whole is not None:
        return whole
    found = re.match(r"_Z(?:N\w*?)?(\d+)", kernel)
    if found is None:
        return kernel
    start = found.end()
    return kernel[start : start + int(found.group(1))]


def own_name(kernel: str) -> str:
    """As its definition says it: `reduce`."""
    return demangled(kernel).partition("<")[0].rpartition("::")[2]
