"""The runtime's functions as LLVM IR: which there are, and what the constants of one translation are."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from undertorch.simt.runtime import layout

if TYPE_CHECKING:
    import ast

CORE = frozenset(
    {
        "async_commit", "async_issue", "async_wait", "barrier_arrive", "barrier_reduce", "barrier_wait", "branch",
        "hand_over", "learn", "leave", "note_step", "run_block", "run_blocks", "settle", "synchronised", "tally",
        "together", "trap",
    }
)  # fmt: skip
"""Functions without constants of their own: they are one object, which the others call."""


@cache
def sources() -> "dict[str, ast.FunctionDef]":
    """The runtime's functions by name, as syntax trees: their files are read, never imported."""
    import ast

    folder = Path(layout.__file__).parent / "native"
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


ALWAYS: dict[str, object] = {
    **{name: value for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)},
    "BARRIER_BYTES": layout.BARRIER.itemsize,
    "COPY_BYTES": layout.COPY.itemsize,
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
        """Its IR, with all that it calls; of the core only the names."""
        if self.name == "mma":
            return _tensor_text(self.symbol, dict(self.constants))
        elsewhere = {name: f"rt_{name}" for name in CORE}
        return _translated({self.name: self.symbol}, ALWAYS | dict(self.constants), elsewhere)


def core_text() -> str:
    """The IR of the core."""
    return _translated({name: f"rt_{name}" for name in sorted(CORE)}, ALWAYS, {})


def _translated(exported: Mapping[str, str], constants: Mapping[str, object], elsewhere: Mapping[str, str]) -> str:
    from undertorch.simt.codegen.dialect import Program  # most processes find the runtime's objects on disk

    return Program(sources(), constants, elsewhere=elsewhere).text(exported)


def _tensor_text(symbol: str, constants: dict[str, object]) -> str:
    from undertorch.simt.codegen.tensor import mma_text, product_constants

    multiply = f"{symbol}_multiply"
    products = _translated({"multiply": multiply}, ALWAYS | product_constants(constants), {})
    return f"{products}\n{mma_text(symbol, multiply, constants)}"


def access_function(
    *, space: int, store: bool, memory: int, register: int, signed: bool, count: int, address: int, level: int
) -> Native:
    """A load or store: bits of the memory's element, of the register, of the address register."""
    return Native(
        "access",
        (
            *_address_constants(space, address, level, memory // 8, count),
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
            *_address_constants(space, address, level, bits // 8, 1),
            ("STORE", 1),
            ("M", f"i{bits}"),
            ("KIND", kind),
            ("OP", op),
            ("F", floating),
            ("UP", int(up)),
        ),
    )


def _address_constants(
    space: int, address: int, level: int, element: int, count: int
) -> tuple[tuple[str, object], ...]:
    return (("SPACE", space), ("BYTES", element), ("COUNT", count), ("A", f"i{address}"), ("LEVEL", level))


def matrices_function(*, store: bool, count: int, transposed: bool, space: int, address: int, level: int) -> Native:
    """ldmatrix and stmatrix of 1, 2 or 4 matrices."""
    name = "store_matrices" if store else "load_matrices"
    own = (("STORE", int(store)), ("MATRICES", count), ("TRANSPOSED", int(transposed)))
    return Native(name, (*_address_constants(space, address, level, 16, 1), *own))


def async_function(*, bytes: int, to: int, source: int) -> Native:
    """cp.async of 4, 8 or 16 bytes."""
    return Native("async_copy", (("SIZE", bytes), ("T", f"i{to}"), ("S", f"i{source}")))
