"""Convolutions as cuDNN works them off: modelled. FLOPs and bytes are exact, kernels and their geometry are predicted.

FLOPs are 2 · weights · places (of the output; of the input where it is transposed) · batch, each gradient the same;
a padded edge counts like the rest. cuDNN wants channels last: row-major images are turned before and after. A 1 × 1
convolution of stride 1 is a matrix product.

What is modelled was recorded on an H200 with cuDNN 9.19 (24 calls in tests/golden/h200_ops.json.gz, all of 64 or 256
channels; which tiles wider ones get, in tests/golden/measured/models.json.gz); cuDNN picks among very many kernels, so
that names and tiles of other sizes are guesses, and small preparations of strided gradients are left out. float32
counts as TF32 where torch allowed it (Op.tf32, on unless torch.backends.cudnn.allow_tf32 is unset) and the GPU has it.
Without tensor cores images stay as they lie. AMD's MIOpen was not recorded: one plain kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from undertorch.costs.building import ceil_div, inner, memset, pytorch, round_up, temporary
from undertorch.costs.gemm.launches import launches, modelled
from undertorch.costs.gemm.product import Product
from undertorch.costs.geometry.tensor_iterator import channels_last
from undertorch.costs.registry import cost
from undertorch.costs.units import generation, matrix_math
from undertorch.records import DTYPE_BYTES, Dim3, Gpu, Kernel, Kind, Math, Op, TensorRef, Value

NARROW, WIDE = 64, 128
"""Channels of the result that a block takes at a time, where there are no more of them and where there are (recorded of
most). Of a gradient of the weight both its sides are channels."""

TILE_PLACES = {NARROW: 256, WIDE: 128}
"""Places that it takes with them."""

STEP = {NARROW: 32, WIDE: 64}
"""Channels that are multiplied at a time; of the weight's gradient, 64 places."""

RESIDENT = 120
RESIDENT_SMS = 132
"""Blocks of a kernel that stays resident, and the GPU's SMs (recorded: 15 × 8; 108 to 130 for gradients of weights). Of
wide tiles there is one an SM."""

THREADS = 384
REGISTERS = 168
SHARED = 231_424
"""Of Hopper's kernels, recorded of every one."""

HOPPER, AMPERE = 9, 8
"""Major compute capabilities."""

TURN = 32
"""Places and channels of a block that turns an image (recorded)."""
TURN_THREADS = 256

TURN_SHARED = {4: 4224, 2: 2112}
"""32 × 33 elements (recorded)."""

PAD_THREADS = 1024
"""Of a block that pads channels; two blocks an SM (recorded)."""

CHANNELS_OF_A_LOAD = 8
"""16-bit channels that one access takes; fewer are padded with zeros (recorded for 3 channels)."""

FEW_CHANNELS = {
    "forward": "sm80_xmma_fprop_implicit_gemm_indexed_{types}_{layout}",
    "input": "sm80_xmma_dgrad_implicit_gemm_indexed_{types}_{layout}",
    "weight": "ImplicitGemmConvolution",
}
"""Kernels for images of 3 channels (recorded; forward in bfloat16 is one of CUTLASS), on Hopper too: those of Ampere,
which reach a small share of the peak."""

TF32_NOTE = "FLOPs at TF32's rate: torch let cuDNN use it for float32."
MODEL_NOTE = "cuDNN chooses among many kernels; this one is a guess by rules from few recordings."


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Sizes of a convolution; `places` are pixels of one image."""

    batch: int
    inputs: int
    outputs: int
    groups: int
    kernel: int
    """Weights along all dimensions of the window, for one pair of channels."""
    input_places: int
    output_places: int
    transposed: bool
    pointwise: bool
    """A 1 × 1 window of stride 1 without padding."""
    touched: float
    """Share of the input's places that lie in a window: fewer than all where strides are longer than windows."""
    nhwc: bool
    dtype: str
    math: Math
    """The unit that works it off."""

    @property
    def flops(self) -> int:
        """Of the convolution, and of either gradient."""
        places = self.input_places if self.transposed else self.output_places
        return 2 * self.batch * places * self.inputs * self.outputs // self.groups * self.kernel

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def tensor_cores(self) -> bool:
        """Whether tensor cores work it off."""
        return self.math.value.startswith("tensor")


@cost("aten::convolution", "aten::_convolution", "aten::cudnn_convolution", "aten::cudnn_convolution_transpose")
def convolution(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads input and weight, writes the output; a bias is added by a kernel of its own."""
    source, weight = op.tensors("input") or op.tensors("self"), op.tensor("weight")
    result = op.results[0]
    if result.elements == 0:
        return ()
    sizes = _sizes(op, gpu, source[0], weight, result)
    kernels = _product(sizes, gpu, "forward", source[0], weight, result)
    bias = op.tensors("bias")
    added = _with_bias(op, gpu, result, bias[0]) if bias else ()
    return (*kernels, *added)


@cost("aten::convolution_backward")
def convolution_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The gradients that `output_mask` asks for: of the input, of the weight, and of the bias as a sum."""
    grad, source, weight = op.tensor("grad_output"), op.tensor("input"), op.tensor("weight")
    to_input, to_weight, to_bias = op.outputs
    if grad.elements == 0:
        return ()
    sizes = _sizes(op, gpu, source, weight, grad)
    kernels: tuple[Kernel, ...] = ()
    if to_input is not None:
        kernels += _product(sizes, gpu, "input", grad, weight, to_input)
    if to_weight is not None:
        kernels += _product(sizes, gpu, "weight", grad, source, to_weight)
    if to_bias is not None:
        dims = tuple(dim for dim in range(len(grad.shape)) if dim != 1)
        kernels += inner(
            op, gpu, "aten::sum", to_bias, overload="dim_IntList", self=grad, dim=dims, keepdim=False, dtype=None
        )
    return kernels


def _sizes(op: Op, gpu: Gpu, source: TensorRef, weight: TensorRef, result: TensorRef) -> Convolution:
    transposed = op.name.endswith("_transpose") or next(
        (argument.value is True for argument in op.arguments if argument.name == "transposed"), False
    )
    groups = op.arg("groups")
    shared = weight.shape[1] * (groups if isinstance(groups, int) else 1)
    inputs, outputs = (weight.shape[0], shared) if transposed else (shared, weight.shape[0])
    kernel = prod(weight.shape[2:])
    return Convolution(
        batch=source.shape[0],
        inputs=inputs,
        outputs=outputs,
        groups=groups if isinstance(groups, int) else 1,
        kernel=kernel,
        input_places=prod(source.shape[2:]),
        output_places=prod(result.shape[2:]),
        transposed=transposed,
        pointwise=kernel == 1 and _all(op.arg("stride"), 1) and _all(op.arg("padding"), 0),
        touched=1.0 if transposed else _touched(op, source, weight, result),
        nhwc=_nhwc(source) or _nhwc(weight),
        dtype=source.dtype,
        # float64 was not recorded; cuDNN has no kernels of tensor cores for it.
        math=Math.FP64 if source.dtype == "float64" else matrix_math(source.dtype, gpu, tf32=op.tf32),
    )


def _touched(op: Op, source: TensorRef, weight: TensorRef, result: TensorRef) -> float:
    """Of each dimension as many windows as the output is long, side by side where a stride is longer than they are."""
    strides = op.arg("stride")
    each = zip(source.shape[2:], weight.shape[2:], result.shape[2:], strict=True)
    shares = (
        min(1.0, window * places / max(size, 1)) if _stride(strides, place) > window else 1.0
        for place, (size, window, places) in enumerate(each)
    )
    return prod(shares)


def _stride(strides: Value, place: int) -> int:
    found = strides[min(place, len(strides) - 1)] if isinstance(strides, tuple) and strides else strides
    return found if isinstance(found, int) else 1


def _product(
    sizes: Convolution, gpu: Gpu, wanted: str, first: TensorRef, second: TensorRef, result: TensorRef
) -> tuple[Kernel, ...]:
    """The kernels that make the output, the gradient of the input or that of the weight out of two tensors."""
    image, other = (second, first) if wanted == "weight" else (first, second)
    unread = 0 if wanted == "input" else int(image.bytes * (1 - sizes.touched))
    read, written = image.bytes + other.bytes - unread, result.bytes
    if sizes.pointwise and sizes.groups == 1 and sizes.itemsize == 2:
        return _as_matrices(sizes, gpu, wanted, read, written)
    main = _main(sizes, gpu, wanted, read, written)
    if sizes.pointwise or sizes.groups > 1 or not _turns(sizes, gpu):
        return main
    given = (second, first) if wanted == "input" else (first, second)
    before = [kernel for tensor in given for kernel in _prepared(sizes, gpu, tensor)]
    return (*before, *main, *_returned(sizes, gpu, result))


def _as_matrices(sizes: Convolution, gpu: Gpu, wanted: str, read: int, written: int) -> tuple[Kernel, ...]:
    """A 1 × 1 convolution: places × channels times channels × channels (for the weight, times places × channels)."""
    places = sizes.batch * sizes.output_places
    inputs, outputs = sizes.inputs, sizes.outputs
    if sizes.nhwc or wanted == "weight":
        rows, columns, inner_size, layout = {
            "forward": (places, outputs, inputs, "rc"),
            "input": (places, inputs, outputs, "rr"),
            "weight": (outputs, inputs, places, "cr"),
        }[wanted]
        batch = 1
    else:
        # Row-major images are a matrix of channels × places each.
        rows, inner_size, layout = (outputs, inputs, "rr") if wanted == "forward" else (inputs, outputs, "cr")
        columns, batch = sizes.output_places, sizes.batch
    contiguous = columns * sizes.itemsize if layout != "rc" else inner_size * sizes.itemsize
    product = Product(
        rows=rows,
        columns=columns,
        inner=inner_size,
        batch=batch,
        layout=layout,
        dtype=sizes.dtype,
        math=sizes.math,
        alignment=next(size for size in (16, 8, 4, 2, 1) if contiguous % size == 0),
    )
    found = launches(product, gpu, read=read, written=written)
    return tuple(replace(kernel, kind=Kind.CONVOLUTION) if kernel.kind is Kind.MATMUL else kernel for kernel in found)


def _main(sizes: Convolution, gpu: Gpu, wanted: str, read: int, written: int) -> tuple[Kernel, ...]:
    """The implicit matrix product, and the counter by which its blocks take tiles in turn."""
    kernel = modelled(
        pytorch(
            _name(sizes, gpu, wanted),
            Kind.CONVOLUTION,
            _grid(sizes, gpu, wanted),
            THREADS if _resident(sizes, gpu) else 128,
            read=read,
            written=written,
            flops=sizes.flops,
            math=sizes.math,
            registers=REGISTERS if _resident(sizes, gpu) else None,
            shared=SHARED if _resident(sizes, gpu) else None,
            note=TF32_NOTE if sizes.math is Math.TENSOR_TF32 else MODEL_NOTE,
            library="MIOpen" if generation(gpu) is None else "cuDNN",
        )
    )
    if not _resident(sizes, gpu):
        return (kernel,)
    if wanted != "weight" or _parts(sizes, gpu) == 1:
        return memset(4), kernel
    # Blocks split the places among themselves; a small kernel adds their parts up.
    parts = replace(
        kernel,
        name=kernel.name.replace("execute_segment_k_on_kernel", "execute_split_k_kernel"),
        block=(128, 1, 1),
        registers=None,
        shared_bytes=None,
        resources_origin=None,
        min_bytes_read=written,
        flops=0,
        math=None,
        note=MODEL_NOTE,
    )
    prepared = modelled(
        pytorch(
            "init_device_workspace_kernel",
            Kind.CONVOLUTION,
            1,
            1,
            read=0,
            written=0,
            flops=0,
            registers=16,
            shared=0,
            library="cuDNN",
        )
    )
    return prepared, kernel, parts


def _name(sizes: Convolution, gpu: Gpu, wanted: str) -> str:
    direction = {"forward": "fprop", "input": "dgrad", "weight": "wgrad_indexed"}[wanted]
    types = {
        "bfloat16": "bf16bf16_bf16f32_f32",
        "float16": "f16f16_f16f32_f32",
        "float32": "f32f32_tf32f32_f32" if sizes.tensor_cores else "f32f32_f32f32_f32",
    }.get(sizes.dtype, "f64f64_f64f64_f64")
    if _resident(sizes, gpu):
        columns = _tile(sizes.inputs if wanted == "input" else sizes.outputs)
        if wanted == "weight":
            tile = f"{columns}x{_tile(sizes.inputs)}x{64 if sizes.itemsize == 2 else 32}"
        else:
            tile = f"{TILE_PLACES[columns]}x{columns}x{STEP[columns] if sizes.itemsize == 2 else 32}"
        split = "on" if wanted == "weight" and _parts(sizes, gpu) > 1 else "off"
        return (
            f"sm90_xmma_{direction}_implicit_gemm_{types}_nhwckrsc_nhwc_tilesize{tile}_warpgroupsize1x1x1_g1_"
            f"execute_segment_k_{split}_kernel__5x_cudnn"
        )
    if not _ampere_names(gpu):
        return "convolution"
    layout = "nhwckrsc_nhwc" if sizes.nhwc or _turns(sizes, gpu) else "nchwkcrs_nchw"
    if _few_channels(sizes):
        return FEW_CHANNELS[wanted].format(types=types, layout=layout)
    return f"sm80_xmma_{direction}_implicit_gemm_{types}_{layout}"


def _few_channels(sizes: Convolution) -> bool:
    """Whether a load would hold channels of several places: these must be padded, or gathered one by one."""
    return sizes.groups == 1 and sizes.tensor_cores and not _whole_loads(sizes)


def _whole_loads(sizes: Convolution) -> bool:
    return (sizes.inputs * sizes.itemsize) % 16 == 0 and (sizes.outputs * sizes.itemsize) % 16 == 0


def _ampere_names(gpu: Gpu) -> bool:
    """Whether cuDNN has kernels for it that were compiled for Ampere, which newer GPUs run too.

    What older ones take was not recorded.
    """
    major = generation(gpu)
    return major is not None and major >= AMPERE


def _turns(sizes: Convolution, gpu: Gpu) -> bool:
    """Whether images are turned to channels last: cuDNN's kernels of tensor cores want them so."""
    return generation(gpu) is not None and (sizes.tensor_cores or sizes.dtype == "float64")


def _grid(sizes: Convolution, gpu: Gpu, wanted: str) -> Dim3:
    resident = RESIDENT * gpu.sms // RESIDENT_SMS
    if wanted == "weight":
        if _resident(sizes, gpu):
            return min(_gradient_tiles(sizes, _tile) * _parts(sizes, gpu), resident), 1, 1
        return _gradient_tiles(sizes, lambda _: NARROW), 1, gpu.sms
    places = sizes.input_places if wanted == "input" else sizes.output_places
    channels = sizes.inputs if wanted == "input" else sizes.outputs
    if not _resident(sizes, gpu):
        rows = ceil_div(sizes.batch * places, TILE_PLACES[NARROW])
        return rows, ceil_div(channels // sizes.groups, NARROW) * sizes.groups, 1
    tile = _tile(channels)
    tiles = ceil_div(sizes.batch * places, TILE_PLACES[tile]) * ceil_div(channels, tile)
    if tile == WIDE:
        return min(gpu.sms, tiles), 1, 1
    blocks = min(resident, tiles)
    return ceil_div(blocks, 8), min(blocks, 8), 1


def _tile(channels: int) -> int:
    return NARROW if channels <= NARROW else WIDE


def _gradient_tiles(sizes: Convolution, tile: Callable[[int], int]) -> int:
    """Of the weight's gradient: output channels by input channels of every place of the window."""
    return ceil_div(sizes.outputs, tile(sizes.outputs)) * ceil_div(sizes.inputs * sizes.kernel, tile(sizes.inputs))


def _parts(sizes: Convolution, gpu: Gpu) -> int:
    """Into so many parts the places are cut that the weight's gradient sums over, as fill the GPU once."""
    return max(1, RESIDENT * gpu.sms // RESIDENT_SMS // _gradient_tiles(sizes, _tile))


def _resident(sizes: Convolution, gpu: Gpu) -> bool:
    """Whether Hopper's kernels take it: channels that fill accesses of 16 bytes, and no groups."""
    hopper = generation(gpu) == HOPPER
    return hopper and _whole_loads(sizes) and sizes.groups == 1 and sizes.tensor_cores


def _prepared(sizes: Convolution, gpu: Gpu, tensor: TensorRef) -> tuple[Kernel, ...]:
    """Row-major images and weights are turned to channels last; few 16-bit channels are padded with zeros."""
    batch, channels, *rest = tensor.shape
    filled = batch * prod(rest) * round_up(channels, CHANNELS_OF_A_LOAD) * tensor.itemsize
    cleared = (memset(filled),) if _narrow(tensor) else ()
    if not sizes.nhwc:
        return (*cleared, _turned(tensor, to_channels_last=True))
    return (*cleared, _padded(gpu, tensor)) if _narrow(tensor) else ()


def _returned(sizes: Convolution, gpu: Gpu, tensor: TensorRef) -> tuple[Kernel, ...]:
    """A result is turned back, or freed of its padding."""
    if not sizes.nhwc:
        return (_turned(tensor, to_channels_last=False),)
    return (_padded(gpu, tensor),) if _narrow(tensor) else ()


def _narrow(tensor: TensorRef) -> bool:
    return tensor.itemsize == 2 and tensor.shape[1] % CHANNELS_OF_A_LOAD != 0


def _turned(tensor: TensorRef, *, to_channels_last: bool) -> Kernel:
    batch, channels, *rest = tensor.shape
    return _moved(
        "nchwToNhwcKernel" if to_channels_last else "nhwcToNchwKernel",
        (ceil_div(prod(rest), TURN), ceil_div(channels, TURN), batch),
        TURN_THREADS,
        tensor,
        32 if to_channels_last or tensor.itemsize == 4 else 36,
        TURN_SHARED.get(tensor.itemsize),
    )


def _padded(gpu: Gpu, tensor: TensorRef) -> Kernel:
    return _moved("nhwcAddPaddingKernel", (2 * gpu.sms, 1, 1), PAD_THREADS, tensor, 30, 0)


def _moved(name: str, grid: Dim3, threads: int, tensor: TensorRef, registers: int, shared: int | None) -> Kernel:
    return modelled(
        pytorch(
            name,
            Kind.COPY,
            grid,
            threads,
            read=tensor.bytes,
            written=tensor.bytes,
            flops=0,
            registers=registers,
            shared=shared,
            library="cuDNN",
        )
    )


def _with_bias(op: Op, gpu: Gpu, result: TensorRef, bias: TensorRef) -> tuple[Kernel, ...]:
    """`output.add_(bias)`, the bias as 1 × channels × 1 × 1."""
    rank = len(result.shape)
    shape = tuple(bias.shape[0] if dim == 1 else 1 for dim in range(rank))
    spread = replace(temporary(shape, bias.dtype, bias.device, 4), storage=bias.storage, offset=bias.offset)
    return inner(op, gpu, "aten::add_", result, overload="Tensor", self=result, other=spread, alpha=1)


def _nhwc(tensor: TensorRef) -> bool:
    return channels_last(tensor) and not tensor.contiguous


def _all(value: Value, wanted: int) -> bool:
    return all(size == wanted for size in value) if isinstance(value, tuple) else value == wanted
