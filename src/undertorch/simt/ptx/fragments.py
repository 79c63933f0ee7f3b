"""Where a matrix's elements lie in the registers of a warp (PTX ISA, "Matrix Fragments" of mma and wmma).

All fragments are built of one piece: 8 rows, in which four neighbouring lanes hold a row, each as many neighbouring
elements as its register has room for. A has such pieces over its rows, B over its columns; an accumulator's row has two
elements a lane, of one register each or packed into one. Bits of .b1 come as words of 32.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal

Role = Literal["a", "b", "c"]
Matrix = Literal["a", "b", "c", "d"]
MATRICES: tuple[Matrix, ...] = ("d", "a", "b", "c")
"""In the order in which mma names them."""
EDGE = 8
"""Rows of a piece."""
LANES_OF_ROW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """One matrix in registers."""

    role: Role
    rows: int
    columns: int
    element: int
    """Bits of an element."""
    register: int
    """Bits of a register."""
    registers: int
    """Of a thread; more than the matrix fills hold it a second time."""

    @property
    def packed(self) -> int:
        """Elements of a register."""
        return self.register // self.element

    def position(self, register: int, lane: int, element: int) -> tuple[int, int]:
        """Row and column of one element of a register."""
        line, within = divmod(lane, LANES_OF_ROW)
        if self.role == "c":
            piece, odd = (register, element) if self.packed == 2 else divmod(register, 2)
            down = self.rows // EDGE if self.rows < 32 else 2
            low, rest = piece % down, piece // down
            across, high = rest % (self.columns // EDGE), rest // (self.columns // EDGE)
            return line + EDGE * (low + down * high), 2 * within + odd + EDGE * across
        inner = within * self.packed + element
        width, lines = self.packed * LANES_OF_ROW, self.rows if self.role == "a" else self.columns
        depth = (self.columns if self.role == "a" else self.rows) // width
        register %= depth * (lines // EDGE)
        # A goes down its 16 rows first and then along them; B, and what lies below 16 rows, along first.
        down = 2 if self.role == "a" and lines > EDGE else 1
        low, rest = register % down, register // down
        along, high = rest % depth, rest // depth
        outer, inner = line + EDGE * (low + down * high), inner + width * along
        return (outer, inner) if self.role == "a" else (inner, outer)

    def elements(self) -> Iterator[tuple[int, int, int]]:
        """Every (register, lane, element), in that order."""
        return product(range(self.registers), range(32), range(self.packed))


@cache
def places(fragment: Fragment) -> dict[tuple[int, int], tuple[int, int]]:
    """For each row and column the first register, and the place in its 32 lanes, counted in elements."""
    out: dict[tuple[int, int], tuple[int, int]] = {}
    for register, lane, element in fragment.elements():
        out.setdefault(fragment.position(register, lane, element), (register, lane * fragment.packed + element))
    return out


BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4,
    "s32": 32, "b1": 32,
}  # fmt: skip
"""Of an element in a register. (b1: of a word of them.)"""
DOUBLED = {"f16"}
"""wmma's fragments of these hold A and B more than once: 8 registers always (PTX ISA, "wmma.load")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """D = A·B + C of one instruction: its shape, and the types of the four."""

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    c: str
    wmma: bool = False

    @property
    def depth(self) -> int:
        """Elements, or words of bits, that a row of A has in registers."""
        return self.k // 32 if self.a == "b1" else self.k

    def fragment(self, role: Matrix) -> Fragment:
        """How one of its matrices lies."""
        kind: str = {"a": self.a, "b": self.b, "c": self.c, "d": self.d}[role]
        rows = self.depth if role == "b" else self.m
        columns = self.depth if role == "a" else self.n
        element = BITS[kind]
        register = 64 if kind == "f64" else 32
        needed = rows * columns * element // (32 * register)
        if self.wmma and role in {"a", "b"} and kind in DOUBLED:
            needed = 8
        return Fragment(
            role="c" if role == "d" else role,
            rows=rows,
            columns=columns,
            element=element,
            register=register,
            registers=needed,
        )


def shape(text: str) -> tuple[int, int, int]:
    """`m16n8k16` as numbers."""
    m, rest = text[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)
