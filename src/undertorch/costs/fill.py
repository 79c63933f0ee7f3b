"""Fills and ranges (ATen/native/Fill.cpp, cuda/FillKernel.cu, cuda/RangeFactories.cu). Zeros, too, are a kernel."""

from dataclasses import replace

from undertorch.costs.building import inner
from undertorch.costs.copy import copied
from undertorch.costs.geometry.loops import Functor, Geometry, blocks
from undertorch.costs.pointwise import moved, pointwise
from undertorch.costs.registry import cost
from undertorch.costs.rules import argument, is_cpu_scalar
from undertorch.costs.view_gradients import diagonal
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

RANGE_WARPS = 2
"""Warps of a block of `elementwise_kernel_with_index`, one element a thread (RangeFactories.cu)."""


def filled(target: TensorRef, gpu: Gpu) -> tuple[Kernel, ...]:
    """The kernels of `target.fill_(number)`: writes, reads nothing."""
    if target.device == "cpu":
        return ()
    return pointwise(Functor(name="fill", result=target.dtype, arguments=()), [target], [], gpu, kind=Kind.FILL)


@cost(
    "aten::full",
    "aten::full_like",
    "aten::new_full",
    "aten::new_ones",
    "aten::new_zeros",
    "aten::ones",
    "aten::ones_like",
    "aten::scalar_tensor",
    "aten::zero",
    "aten::zero_",
    "aten::zeros",
    "aten::zeros_like",
)
def fill(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One value into every element of the result."""
    return filled(op.results[0], gpu)


@cost("aten::fill", "aten::fill_")
def fill_value(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A value that is a tensor on the GPU is copied into every element; any other is part of the kernel."""
    value = argument(op, "value")
    if isinstance(value, TensorRef) and not is_cpu_scalar(value):
        return copied(op.results[0], value, gpu)
    return filled(op.results[0], gpu)


@cost("aten::arange", "aten::linspace", "aten::logspace", "aten::range")
def indexed(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """start + i · step: a product and a sum an element; whole numbers count none."""
    result = op.results[0]
    if result.device == "cpu" or not result.elements:
        return ()
    if op.name in ("aten::linspace", "aten::logspace") and result.elements == 1:
        return filled(result, gpu)
    threads = RANGE_WARPS * gpu.warp_size
    launch = Geometry(
        name="elementwise_kernel_with_index",
        grid=(blocks(result.elements, threads), 1, 1),
        block=(threads, 1, 1),
        elements=result.elements,
    )
    return moved([launch], [result], [], Kind.FILL, result.dtype, flops=2)


@cost("aten::eye")
def eye(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Zeros, then ones down the diagonal."""
    result = op.results[0]
    return filled(result, gpu) + filled(diagonal(result, 0, 0, 1), gpu)


@cost("aten::fill_diagonal_")
def fill_diagonal_(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The main diagonal of a matrix or of a cube; it does not wrap round tall matrices here."""
    target = op.tensor("self")
    size = min(target.shape)
    main = replace(target, shape=(size,), strides=(sum(target.strides),))
    return inner(op, gpu, "aten::fill_", main, overload="Scalar", self=main, value=argument(op, "fill_value"))
