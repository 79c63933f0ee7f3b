"""Tensors and Ops written down in a test."""

from itertools import count
from math import prod

from undertorch.records import Argument, Op, Phase, TensorRef, Value

_storages = count(1)


def tensor(
    *shape: int,
    dtype: str = "float32",
    strides: tuple[int, ...] | None = None,
    offset: int = 0,
    storage: int | None = None,
    device: str = "cuda:0",
) -> TensorRef:
    """Row-major in a storage of its own, unless told otherwise."""
    row_major = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    return TensorRef(
        shape=shape,
        strides=row_major if strides is None else strides,
        dtype=dtype,
        device=device,
        storage=next(_storages) if storage is None else storage,
        offset=offset,
        version=0,
    )


def transposed(source: TensorRef) -> TensorRef:
    """The same storage with its last two dimensions exchanged."""
    *shape, rows, columns = source.shape
    *strides, down, across = source.strides
    return tensor(
        *shape,
        columns,
        rows,
        dtype=source.dtype,
        strides=(*strides, across, down),
        offset=source.offset,
        storage=source.storage,
    )


def op(name: str, *outputs: TensorRef, overload: str = "default", **arguments: Value) -> Op:
    """An Op of ATen with those arguments and results."""
    return Op(
        id=0,
        name=f"aten::{name}",
        overload=overload,
        where=None,
        phase=Phase.FORWARD,
        arguments=tuple(Argument(name=key, value=value) for key, value in arguments.items()),
        outputs=outputs,
        torch="2.11.0",
    )
