"""Images made larger or smaller by interpolation, and padded by their own edge.

Geometry: native/cuda/UpSampleBilinear2d.cu, UpSampleBicubic2d.cu, GridSampler.cu, ReflectionPad.cu,
ReplicationPadding.cu. No recording of these kernels is at hand, so their registers are unknown.

FLOPs of a result: of bilinear interpolation, the weights (4) and three blends of a multiplication and a fused
multiply-add; of bicubic, sixteen products and sums and the weights' polynomials. Padding is a copy forward and an
addition backward.
"""

from math import prod

from undertorch.costs.building import ceil_div, inner, made_contiguous, pytorch, vector_math, zeros
from undertorch.costs.geometry.tensor_iterator import channels_last
from undertorch.costs.registry import Cost, cost
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

THREADS = 1024
"""Of the interpolating kernels: as many as a block may have, at most this."""

SAMPLER_THREADS = 256
"""Of the kernels that sample at a grid."""

PADDING_THREADS = 256

BILINEAR_FLOPS = 13
BICUBIC_FLOPS = 40
"""A result."""


def _interpolation(name: str, flops: int) -> tuple[Cost, Cost]:
    """Forward and backward of one way to interpolate."""

    def forward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
        """A thread a pixel goes through all images and channels; of channels-last images, a thread a result."""
        source, result = op.tensor("self"), op.results[0]
        if result.elements == 0:
            return ()
        if source.shape == result.shape:
            return inner(op, gpu, "aten::copy_", result, self=result, src=source, non_blocking=False)
        nhwc = channels_last(source) and not source.contiguous and name == "upsample_bilinear2d"
        covered = result.elements if nhwc else prod(result.shape[2:])
        return (_interpolated(f"{name}{'_nhwc' if nhwc else ''}_out_frame", covered, source, result, flops, gpu),)

    def backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
        """A thread a gradient adds its shares to the pixels it came from, which are zero at first."""
        grad, result = op.tensor("grad_output"), op.results[0]
        if result.elements == 0:
            return ()
        nhwc = channels_last(grad) and not grad.contiguous
        grad, copies = (grad, ()) if nhwc else made_contiguous(op, gpu, grad)
        filled = zeros(op, gpu, result)
        if grad.shape == result.shape:
            return (*copies, *filled, *inner(op, gpu, "aten::copy_", result, self=result, src=grad, non_blocking=False))
        covered = grad.elements if name == "upsample_bilinear2d" else prod(grad.shape[2:])
        of = f"{name}_backward{'_nhwc' if nhwc and name == 'upsample_bilinear2d' else ''}_out_frame"
        return (*copies, *filled, _interpolated(of, covered, grad, result, flops, gpu))

    return forward, backward


def _interpolated(name: str, covered: int, source: TensorRef, result: TensorRef, flops: int, gpu: Gpu) -> Kernel:
    threads = min(gpu.max_threads_per_block, THREADS)
    return pytorch(
        name,
        Kind.ELEMENTWISE,
        ceil_div(covered, threads),
        threads,
        read=source.bytes,
        written=result.bytes,
        flops=flops * max(source.elements if "backward" in name else result.elements, 0),
        math=vector_math(source.dtype),
        shared=0,
    )


for _name, _flops in (("upsample_bilinear2d", BILINEAR_FLOPS), ("upsample_bicubic2d", BICUBIC_FLOPS)):
    _forward, _backward = _interpolation(_name, _flops)
    cost(f"aten::{_name}")(_forward)
    cost(f"aten::{_name}_backward")(_backward)


@cost("aten::grid_sampler_2d")
def grid_sampler(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A thread a point of the grid goes through the channels."""
    source, grid, result = op.tensor("input"), op.tensor("grid"), op.results[0]
    if result.elements == 0:
        return ()
    return (_sampled("grid_sampler_2d_kernel", grid, (source, grid), (result,), result.elements),)


@cost("aten::grid_sampler_2d_backward")
def grid_sampler_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Adds each point's gradient to the pixels it came from, and finds that of the point itself."""
    grad, source, grid = op.tensor("grad_output"), op.tensor("input"), op.tensor("grid")
    written = op.results
    if grad.elements == 0:
        return ()
    filled = zeros(op, gpu, written[0]) if len(written) > 1 else ()
    return (
        *filled,
        _sampled("grid_sampler_2d_backward_kernel", grid, (grad, source, grid), written, 2 * grad.elements),
    )


def _sampled(
    name: str, grid: TensorRef, read: tuple[TensorRef, ...], written: tuple[TensorRef, ...], results: int
) -> Kernel:
    return pytorch(
        name,
        Kind.ELEMENTWISE,
        ceil_div(grid.elements // 2, SAMPLER_THREADS),
        SAMPLER_THREADS,
        read=sum(tensor.bytes for tensor in read),
        written=sum(tensor.bytes for tensor in written),
        flops=BILINEAR_FLOPS * results,
        math=vector_math(grid.dtype),
        shared=0,
    )


def _padding(name: str, dimensions: int) -> tuple[Cost, Cost]:
    """Forward and backward of padding the last dimensions: blocks along a plane in x, planes in y, images in z."""

    def forward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
        source, copies = made_contiguous(op, gpu, op.tensor("self"))
        result = op.results[0]
        if result.elements == 0:
            return ()
        return (*copies, _padded(f"{name}_out_kernel", result, source, result, dimensions, 0))

    def backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
        grad, copies = made_contiguous(op, gpu, op.tensor("grad_output"))
        result = op.results[0]
        if result.elements == 0:
            return ()
        kernel = _padded(f"{name}_backward_out_kernel", grad, grad, result, dimensions, grad.elements)
        return (*zeros(op, gpu, result), *copies, kernel)

    return forward, backward


def _padded(
    name: str, wide: TensorRef, source: TensorRef, result: TensorRef, dimensions: int, additions: int
) -> Kernel:
    plane = prod(wide.shape[-dimensions:])
    outer = wide.shape[:-dimensions]
    planes = outer[-1] if outer else 1
    return pytorch(
        name,
        Kind.COPY,
        (ceil_div(plane, PADDING_THREADS), planes, prod(outer[:-1])),
        min(plane, PADDING_THREADS),
        read=source.bytes,
        written=result.bytes,
        flops=additions,
        math=vector_math(source.dtype),
        shared=0,
    )


for _kind in ("reflection", "replication"):
    for _dimensions in (1, 2, 3):
        _forward, _backward = _padding(f"{_kind}_pad{_dimensions}d", _dimensions)
        cost(f"aten::{_kind}_pad{_dimensions}d")(_forward)
        cost(f"aten::{_kind}_pad{_dimensions}d_backward")(_backward)
