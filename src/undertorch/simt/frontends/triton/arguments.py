"""What a compiled Triton kernel is given: the launch's arguments in the order of its PTX parameters.

Triton flattens tuples, leaves constants out, takes descriptors of tensors apart, and appends the addresses of scratch
memory. The PTX says how many parameters came of it and how wide each is.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

HALVES = {"fp16": "float16", "bf16": "bfloat16"}
"""Scalars of these types are two bytes to PTX, which does not tell them apart."""


def flattened(signature: Mapping[Any, Any], arguments: tuple[Any, ...]) -> Iterator[tuple[str, object]]:
    """Each argument as the machine takes it, with the name of the parameter that it is, or is a part of.

    `signature`: Triton's types by parameter name; a tuple's are a tuple.
    """
    for (name, type), argument in zip(signature.items(), arguments, strict=False):
        yield from ((str(name), part) for part in _one(type, argument))


def _one(type: Any, argument: Any) -> Iterator[object]:
    if isinstance(type, tuple):
        for inner_type, inner in zip(type, argument, strict=True):
            yield from _one(inner_type, inner)
    elif type == "constexpr":
        return
    elif type.startswith("tensordesc"):
        yield from _descriptor(argument)
    elif type.startswith("*"):
        yield _pointer(argument)
    else:
        yield _scalar(type, argument)


def _descriptor(descriptor: Any) -> Iterator[object]:
    """Base, shape and strides twice, as Triton passes a descriptor where the GPU has no hardware for it (it rewrites
    them to pointers: TritonNvidiaGPU's RewriteTensorDescriptorToPointer): first its own, then the front end's."""
    shape, strides = [int(n) for n in descriptor.shape], [int(n) for n in descriptor.strides]
    yield _pointer(descriptor.base)
    yield from shape
    yield from strides
    yield descriptor.padding == "nan"
    if hasattr(descriptor, "round_f32_to_tf32"):  # since Triton 3.7
        yield bool(descriptor.round_f32_to_tf32)
    yield from shape
    yield from strides


def _pointer(argument: Any) -> object:
    """A tensor (that of a reinterpreted one too), or an address."""
    if hasattr(argument, "untyped_storage") or argument is None or isinstance(argument, int):
        return argument
    base = getattr(argument, "base", None)  # triton.runtime.jit.TensorWrapper, of triton.reinterpret
    if base is not None and hasattr(base, "untyped_storage"):
        return base
    return int(argument.data_ptr()) if hasattr(argument, "data_ptr") else argument


def _scalar(type: str, argument: Any) -> object:
    if type in HALVES:
        import torch

        value = torch.tensor(float(argument), dtype=getattr(torch, HALVES[type]))
        return bytes(value.reshape(1).view(torch.uint8).tolist())
    if type in {"fp32", "f32"}:
        with np.errstate(over="ignore"):  # as C converts, to infinity
            return np.float32(argument)
    return float(argument) if type == "fp64" else int(argument)
