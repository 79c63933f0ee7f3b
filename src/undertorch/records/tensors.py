"""A tensor as an Op saw it: its shape and where it lies, without its values."""

from dataclasses import dataclass
from math import prod

DTYPE_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of one element, by torch's dtype name without `torch.`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRef:
    """One tensor argument or result of an Op."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements, one a dimension."""
    dtype: str
    """Torch's name without `torch.`, such as `bfloat16`."""
    device: str
    """`cuda:0`, `cpu`, …"""
    storage: int
    """Number of the storage it lies in; the same for views of one another, never reused within a recording."""
    offset: int
    """Of its first element in the storage, in elements."""
    version: int
    """How many in-place writes torch had counted for it when the Op was called."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element. Raises KeyError for a dtype that DTYPE_BYTES does not list."""
        return DTYPE_BYTES[self.dtype]

    @property
    def elements(self) -> int:
        """The product of the shape; what `numel()` answers."""
        return prod(self.shape)

    @property
    def distinct_elements(self) -> int:
        """Elements that differ in address: expanded dimensions (stride 0) count once, overlapping windows no more than
        their span."""
        if self.elements == 0:
            return 0
        moved = [(size, abs(stride)) for size, stride in zip(self.shape, self.strides, strict=True) if stride != 0]
        span = 1 + sum((size - 1) * stride for size, stride in moved)
        return min(prod(size for size, _ in moved), span)

    @property
    def bytes(self) -> int:
        """Least bytes to read or write it once: its distinct elements."""
        return self.distinct_elements * self.itemsize

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps, as torch's `is_contiguous()` (dimensions of size 1 may have any stride)."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected and self.elements != 0:
                return False
            expected *= max(size, 1)
        return True
