"""Group norm. Geometry: native/cuda/group_norm_kernel.cu of torch 2.11.

One block a group finds mean and deviation; these and the affine parameters become one factor and one summand a channel;
an element-by-element kernel applies them. Backward: sums a channel, what follows from them a group, then one kernel
over the elements, and the sums for weight and bias.

FLOPs, forward: 4 an element for the moments, 2 to apply them. Backward: 3 an element for the sums, 4 to apply.
"""

from dataclasses import dataclass

from undertorch.costs.building import (
    accumulated,
    ceil_div,
    made_contiguous,
    pytorch,
    temporary,
    vector_math,
    viewed,
)
from undertorch.costs.geometry.loops import Functor
from undertorch.costs.pointwise import pointwise
from undertorch.costs.registry import NoCost, cost
from undertorch.records import DTYPE_BYTES, Gpu, Kernel, Kind, Op, TensorRef

REDUCING_THREADS = 512
"""kCUDABlockReduceNumThreads; shorter sums take one warp."""

CHANNEL_THREADS = 256
"""kCUDANumThreads."""

FEW_SAMPLES = 128
"""Up to so many samples one thread adds up a channel's gradients; more take tiles of 32."""

TILE = 32
"""kReduceTileSize."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The sizes that a group norm works on."""

    samples: int
    channels: int
    pixels: int
    groups: int

    @property
    def channels_a_group(self) -> int:
        """D in the source."""
        return self.channels // self.groups

    @property
    def elements(self) -> int:
        """All of them."""
        return self.samples * self.channels * self.pixels


@cost("aten::native_group_norm")
def group_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the input twice, once for its moments; writes the result, mean and reciprocal deviation."""
    sizes = _sizes(op)
    result, mean, rstd = op.results
    source, copies = made_contiguous(op, gpu, op.tensor("input"))
    if sizes.elements == 0:
        return copies
    acc = accumulated(source.dtype)
    math = vector_math(source.dtype)
    per_group, channels = sizes.channels_a_group, sizes.channels
    length = per_group * sizes.pixels
    blocks = sizes.samples * sizes.groups
    threads = gpu.warp_size if length < REDUCING_THREADS else REDUCING_THREADS
    moments = pytorch(
        "RowwiseMomentsCUDAKernel",
        Kind.NORM,
        blocks,
        threads,
        read=source.bytes,
        written=mean.bytes + rstd.bytes,
        flops=4 * sizes.elements,
        math=math,
        registers=27 if source.dtype == "float32" else None,
        shared=gpu.warp_size * (16 + 2 * DTYPE_BYTES[acc]),
    )
    affine = op.tensors("weight") + op.tensors("bias")
    statistics = tuple(_seen(tensor, acc, (blocks, 1)) for tensor in (mean, rstd))
    if sizes.pixels == 1 or not affine:
        rows = (sizes.samples, sizes.groups, length) if affine else (blocks, length)
        inputs = [viewed(source, rows)]
        inputs += [viewed(tensor, (sizes.samples, sizes.groups, 1) if affine else (blocks, 1)) for tensor in statistics]
        inputs += [viewed(tensor, (1, sizes.groups, per_group)) for tensor in affine]
        applied = _apply("group_norm", viewed(result, rows), tuple(inputs), gpu, flops=2 + len(affine))
        return (*copies, moments, *applied)
    factors = tuple(temporary((sizes.samples * channels, 1), acc, source.device, 2 + i) for i in range(2))
    fused = pytorch(
        "ComputeFusedParamsCUDAKernel",
        Kind.NORM,
        ceil_div(sizes.samples * channels, CHANNEL_THREADS),
        CHANNEL_THREADS,
        read=mean.bytes + rstd.bytes + sum(tensor.bytes for tensor in affine),
        written=sum(tensor.bytes for tensor in factors),
        flops=3 * sizes.samples * channels,
        math=math,
        registers=22 if source.dtype == "float32" else None,
        shared=0,
    )
    rows = (sizes.samples * channels, sizes.pixels)
    applied = _apply("group_norm", viewed(result, rows), (viewed(source, rows), *factors), gpu, flops=2)
    return (*copies, moments, fused, *applied)


@cost("aten::native_group_norm_backward")
def group_norm_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads gradient and input twice where the input's gradient is wanted."""
    sizes = _sizes(op)
    grad, copies = made_contiguous(op, gpu, op.tensor("grad_out"))
    source, more = made_contiguous(op, gpu, op.tensor("input"), 2)
    if sizes.elements == 0:
        return copies + more
    if sizes.pixels == 1:
        raise NoCost("native_group_norm_backward of inputs without pixels: not modelled")
    for_input, *for_weight = op.outputs
    acc = accumulated(source.dtype)
    math = vector_math(source.dtype)
    wide = DTYPE_BYTES[acc]
    rows = sizes.samples * sizes.channels
    sums = 2 * rows * wide
    statistics = op.tensor("mean").bytes + op.tensor("rstd").bytes
    kernels = (
        *copies,
        *more,
        pytorch(
            "ComputeInternalGradientsCUDAKernel",
            Kind.NORM,
            rows,
            _threads(sizes.pixels, gpu),
            read=grad.bytes + source.bytes,
            written=sums,
            flops=3 * sizes.elements,
            math=math,
        ),
    )
    if for_input is not None:
        kernels += _input_gradient(op, gpu, sizes, grad, source, for_input, sums)
    wanted = tuple(tensor for tensor in for_weight if tensor is not None)
    if wanted:
        few = sizes.samples <= FEW_SAMPLES
        kernels += (
            pytorch(
                f"GammaBetaBackwardCUDAKernel{1 if few else 2}",
                Kind.NORM,
                ceil_div(sizes.channels, CHANNEL_THREADS if few else TILE),
                CHANNEL_THREADS if few else (TILE, TILE // 2, 1),
                read=sums + statistics,
                written=sum(tensor.bytes for tensor in wanted),
                flops=(4 + len(wanted) - 1) * rows,
                math=math,
                shared=0 if few else 2 * TILE * (TILE + 1) * wide,
            ),
        )
    return kernels


def _input_gradient(
    op: Op, gpu: Gpu, sizes: Groups, grad: TensorRef, source: TensorRef, result: TensorRef, sums: int
) -> tuple[Kernel, ...]:
    acc = accumulated(source.dtype)
    per_group, groups = sizes.channels_a_group, sizes.samples * sizes.groups
    statistics = op.tensor("mean").bytes + op.tensor("rstd").bytes
    weight = op.tensors("weight")
    kernels: tuple[Kernel, ...] = ()
    factor = temporary((groups, per_group, 1), acc, source.device, 3)
    if weight:
        product = viewed(factor, (sizes.samples, sizes.groups, per_group))
        rstd = viewed(op.tensor("rstd"), (sizes.samples, sizes.groups, 1))
        scale = viewed(weight[0], (1, sizes.groups, per_group))
        kernels += _apply("group_norm_scale", product, (rstd, scale), gpu, flops=1)
    kernels += (
        pytorch(
            "ComputeBackwardFusedParamsCUDAKernel",
            Kind.NORM,
            (sizes.samples, sizes.groups, 1),
            _threads(per_group, gpu),
            read=sums + statistics + sum(tensor.bytes for tensor in weight),
            written=2 * groups * DTYPE_BYTES[acc],
            flops=4 * sizes.samples * sizes.channels,
            math=vector_math(source.dtype),
        ),
    )
    if weight:
        shape: tuple[int, ...] = (groups, per_group, sizes.pixels)
        ones: tuple[int, ...] = (groups, 1, 1)
    else:
        shape, ones = (groups, per_group * sizes.pixels), (groups, 1)
        factor = viewed(op.tensor("rstd"), ones)
    summands = tuple(temporary(ones, acc, source.device, 4 + i) for i in range(2))
    inputs = (viewed(grad, shape), viewed(source, shape), factor, *summands)
    return kernels + _apply("group_norm_backward", viewed(result, shape), inputs, gpu, flops=4)


def _apply(name: str, result: TensorRef, inputs: tuple[TensorRef, ...], gpu: Gpu, flops: int) -> tuple[Kernel, ...]:
    functor = Functor(name=name, result=result.dtype, arguments=tuple(tensor.dtype for tensor in inputs))
    return pointwise(functor, (result,), inputs, gpu, flops=flops, kind=Kind.NORM)


def _seen(tensor: TensorRef, dtype: str, shape: tuple[int, ...]) -> TensorRef:
    """The statistics as the kernel after them reads them: half types are kept a second time in float32."""
    return viewed(tensor, shape) if tensor.dtype == dtype else temporary(shape, dtype, tensor.device, 9)


def _threads(length: int, gpu: Gpu) -> int:
    return gpu.warp_size if length < REDUCING_THREADS else REDUCING_THREADS


def _sizes(op: Op) -> Groups:
    def number(name: str) -> int:
        value = op.arg(name)
        if not isinstance(value, int):
            raise TypeError(f"argument {name!r} of {op.name} is {value!r}, not an integer")
        return value

    return Groups(samples=number("N"), channels=number("C"), pixels=number("HxW"), groups=number("group"))
