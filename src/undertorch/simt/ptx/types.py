"""The fundamental types of PTX (PTX ISA, "Types")."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Type:
    """One type. `lanes` is 2 for packed halves; `bits` counts all of it."""

    name: str
    kind: Literal["bits", "signed", "unsigned", "float", "brain", "predicate"]
    bits: int
    lanes: int = 1

    @property
    def bytes(self) -> int:
        """In memory and in registers."""
        return max(1, self.bits // 8)

    @property
    def signed(self) -> bool:
        """Whether comparisons and extensions see a sign."""
        return self.kind == "signed"

    @property
    def floating(self) -> bool:
        """Whether it is any kind of floating point."""
        return self.kind in {"float", "brain"}

    def __str__(self) -> str:
        return self.name


TYPES = {
    type.name: type
    for type in (
        *(Type(f"b{n}", "bits", n) for n in (8, 16, 32, 64, 128)),
        *(Type(f"s{n}", "signed", n) for n in (8, 16, 32, 64)),
        *(Type(f"u{n}", "unsigned", n) for n in (8, 16, 32, 64)),
        *(Type(f"f{n}", "float", n) for n in (16, 32, 64)),
        Type("bf16", "brain", 16),
        Type("f16x2", "float", 32, 2),
        Type("bf16x2", "brain", 32, 2),
        Type("u16x2", "unsigned", 32, 2),
        Type("s16x2", "signed", 32, 2),
        Type("tf32", "float", 32),
        Type("e4m3x2", "float", 16, 2),
        Type("e5m2x2", "float", 16, 2),
        Type("pred", "predicate", 1),
    )
}
