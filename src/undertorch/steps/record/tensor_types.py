"""`torch.cuda.FloatTensor` and its kind, by which scripts made tensors before torch had dtypes and devices. A CPU build
has none of CUDA's.
"""

from typing import Any

import torch

from undertorch.steps.record.patching import put

DTYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}
"""The types of torch.cuda, by name (torch's documentation of Tensor lists them)."""


class TensorType(type):
    """A type that no tensor is of, and that makes tensors and knows its own all the same."""

    dtype: torch.dtype

    def __call__(cls, *given: Any, device: Any = "cuda") -> torch.Tensor:
        """From sizes a tensor of that shape, from a tensor or a sequence one of its values."""
        if all(isinstance(size, int) for size in given):
            return torch.empty(given or (0,), dtype=cls.dtype, device=device)
        if isinstance(given[0], torch.Size):
            return torch.empty(given[0], dtype=cls.dtype, device=device)
        return torch.as_tensor(given[0], dtype=cls.dtype, device=device)

    def __instancecheck__(cls, found: object) -> bool:
        return isinstance(found, torch.Tensor) and found.device.type == "cuda" and found.dtype is cls.dtype


def install() -> None:
    """Puts them into torch.cuda, and lets one be the default. Call once."""
    for name, dtype in DTYPES.items():
        # Tensor.type() asks a type for its name.
        put(torch.cuda, name, TensorType(f"torch.cuda.{name}", (), {"dtype": dtype}))
    put(torch, "set_default_tensor_type", _default(torch.set_default_tensor_type))


def _default(make: Any) -> Any:
    def made(kind: Any) -> None:
        name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
        dtype = DTYPES.get(name.removeprefix("torch.cuda.")) if name.startswith("torch.cuda.") else None
        if dtype is None:
            make(kind)
            return
        torch.set_default_dtype(dtype)
        torch.set_default_device("cuda")

    return made
