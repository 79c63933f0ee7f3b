"""Kinds of values in the runtime's language, and the names that its source uses for them."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value is: its LLVM type, and for pointers what they point to."""

    llvm: str
    family: Literal["int", "float", "ptr", "void", "literal"]
    lanes: int = 1
    to: "Kind | None" = None
    struct: str | None = None

    @property
    def element(self) -> str:
        """The LLVM type of one lane."""
        return self.llvm.split(" x ")[1].rstrip(">") if self.lanes > 1 else self.llvm


@dataclass(frozen=True, slots=True)
class Value:
    """An operand in IR text."""

    text: str
    kind: Kind


I1, I8, I16, I32, I64 = (Kind(f"i{n}", "int") for n in (1, 8, 16, 32, 64))
F32, F64 = Kind("float", "float"), Kind("double", "float")
PTR, VOID = Kind("ptr", "ptr", to=I8), Kind("void", "void")


def vector(of: Kind, lanes: int = 32) -> Kind:
    """Lanes of a kind: those of a warp, or other ones."""
    return Kind(f"<{lanes} x {of.llvm}>", of.family, lanes)


def numpy_kind(of: "np.dtype[Any]") -> Kind:
    """The kind of a NumPy scalar type; addresses are plain i64."""
    return {4: I32, 8: I64, 1: I8, 2: I16}[of.itemsize]
