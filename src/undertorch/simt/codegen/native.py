"""The runtime's functions as LLVM IR: which there are, and what the constants of one translation are."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from undertorch.simt.codegen.dialect import Program
from undertorch.simt.runtime import layout

HOST, SHARED, LOCAL = range(3)
"""An address: the host's, or an offset into the block's shared memory, or into the thread's local memory."""


@cache
def sources() -> dict[str, ast.FunctionDef]:
    """The runtime's functions by name, as syntax trees: their files are read, never imported."""
    folder = Path(layout.__file__).parent / "native"
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


ALWAYS: dict[str, object] = {
    **{name: value for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)},
    "BARRIER_BYTES": layout.BARRIER.itemsize,
    "COPY_BYTES": layout.COPY.itemsize,
    "HOST": HOST,
    "SHARED": SHARED,
    "LOCAL": LOCAL,
}


@dataclass(frozen=True, slots=True)
class Native:
    """One function of the runtime, under the constants that it is translated with."""

    name: str
    constants: tuple[tuple[str, object], ...] = ()

    @property
    def symbol(self) -> str:
        """Its name in object code."""
        return "_".join(["rt", self.name, *(str(value).replace(" ", "") for _, value in self.constants)])

    def text(self) -> str:
        """Its IR, with all that it calls."""
        return Program(sources(), ALWAYS | dict(self.constants)).text(self.name, self.symbol)


def access_function(
    *, space: int, store: bool, memory: int, register: int, signed: bool, count: int, address: int, level: int
) -> Native:
    """A load or store: bits of the memory's element, of the register, of the address register."""
    total = memory // 8 * count
    return Native(
        "access",
        (
            *_address_constants(space, total, address, level, memory // 8, count),
            ("STORE", int(store)),
            ("M", f"i{memory}"),
            ("R", f"i{register}"),
            ("SIGNED", int(signed)),
        ),
    )


def atomic_function(
    *, space: int, bits: int, address: int, level: int, kind: int, op: str, floating: str, up: bool
) -> Native:
    """An atomic: `op` as LLVM names it; `floating` the float type that it computes in."""
    return Native(
        "atomics",
        (
            *_address_constants(space, bits // 8, address, level, bits // 8, 1),
            ("STORE", 1),
            ("M", f"i{bits}"),
            ("KIND", kind),
            ("OP", op),
            ("F", floating),
            ("UP", int(up)),
        ),
    )


def _address_constants(
    space: int, total: int, address: int, level: int, element: int, count: int
) -> tuple[tuple[str, object], ...]:
    passes = max(1, total // 4)
    return (
        ("SPACE", space), ("BYTES", element), ("COUNT", count), ("A", f"i{address}"), ("LEVEL", level),
        ("PASSES", passes), ("LANES_A_PASS", 32 // passes), ("LANES_OF_PASS", (1 << 32 // passes) - 1),
        ("BANKS_A_PASS", 32 // passes), ("WORD_SHIFT", max(2, total.bit_length() - 1)),
    )  # fmt: skip


def async_function(*, bytes: int, to: int, source: int, level: int) -> Native:
    """cp.async of 4, 8 or 16 bytes."""
    return Native("async_copy", (("SIZE", bytes), ("T", f"i{to}"), ("S", f"i{source}"), ("LEVEL", level)))
