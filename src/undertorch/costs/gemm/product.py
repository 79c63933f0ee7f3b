"""A Product: what a matrix multiplication asks of cuBLAS. A Plan: how it is launched."""

from dataclasses import dataclass
from enum import StrEnum

from undertorch.records import DTYPE_BYTES, Dim3, Math


class Epilogue(StrEnum):
    """What is done to a result before it is written; the value is what cuBLAS adds to a kernel's name."""

    NONE = ""
    BIAS = "bias"
    GELU_BIAS = "gelubias"
    RELU_BIAS = "relubias"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """rows × inner times inner × columns, as often as `batch` says; the result is row-major."""

    rows: int
    columns: int
    inner: int
    batch: int = 1
    layout: str
    """Of both factors: `r` row-major, `c` column-major. A linear layer's forward is `rc`, its gradients `rr`, `cr`."""
    dtype: str
    """Of the factors."""
    math: Math
    """The unit that multiplies them."""
    alignment: int
    """Bytes, at most 16, that every row or column starts at a multiple of."""
    epilogue: Epilogue = Epilogue.NONE

    @property
    def flops(self) -> int:
        """A multiplication and an addition each, or four and four of complex numbers. The epilogue is not counted."""
        each = 8 if self.dtype.startswith("complex") else 2
        return each * self.batch * self.rows * self.columns * self.inner

    @property
    def letters(self) -> str:
        """BLAS' transpositions: cuBLAS is column-major and takes the second factor first."""
        return f"{'t' if self.layout[1] == 'c' else 'n'}{'n' if self.layout[0] == 'r' else 't'}"

    @property
    def tensor_cores(self) -> bool:
        """Whether tensor cores work it off."""
        return self.math.value.startswith("tensor")

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the factors."""
        return DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A kernel that works off a Product, and what goes with it."""

    name: str
    library: str = "cuBLAS"
    tile: tuple[int, int]
    """Columns and rows of the result that a block makes at a time."""
    grid: Dim3
    threads: int | Dim3
    registers: int | None = None
    shared: int | None = None
    splits: int = 1
    """Parts that the inner dimension is cut into."""
    counters: int | None = None
    """Bytes that a memset clears before: tiles taken so far, or blocks done with a tile."""
    reduced: bool = False
    """Whether parts go to a workspace in float32 and a kernel of its own adds them up."""
