"""Copies and casts (ATen/native/Copy.cpp, native/cuda/Copy.cu).

Two tensors on one GPU of the same dtype, each one run of memory in the same order, are copied by the driver; everything
else runs a kernel that converts on its way. Between GPU and CPU the driver copies, and what is not one run of the same
dtype on both sides goes through a temporary.
"""

from dataclasses import replace

from undertorch.costs.building import device_copy, inner, over_link, temporary, viewed
from undertorch.costs.geometry.loops import Functor, Geometry, blocks
from undertorch.costs.geometry.tensor_iterator import in_32_bits, tensor_iterator
from undertorch.costs.pointwise import moved, pointwise
from undertorch.costs.registry import cost
from undertorch.costs.rules import argument
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

HALF_COPIES = {"bfloat16": "bfloat16_copy", "float16": "float16_copy"}
"""Kernels compiled for float32 into a half type, so that nothing is cast while it runs (direct_copy_kernel_cuda)."""


def copied(target: TensorRef, source: TensorRef, gpu: Gpu, non_blocking: bool = False) -> tuple[Kernel, ...]:
    """The kernels of `target.copy_(source)`; the source broadcasts."""
    if target.elements == 0 or same_view(target, source):
        return ()
    if target.device != source.device:
        return _between_devices(target, source, gpu, non_blocking)
    if target.device == "cpu":
        return ()
    if target.dtype == source.dtype and tensor_iterator([target], [source]).contiguous:
        return (device_copy(target.bytes),)
    if source.dtype == "float32" and target.dtype in HALF_COPIES:
        functor = Functor(name=HALF_COPIES[target.dtype], result=target.dtype, arguments=("float32",))
    elif target.dtype.startswith("float8") and source.dtype in ("float32", "float16", "bfloat16"):
        functor = Functor(name="float8_copy", result=target.dtype, arguments=(source.dtype,))
    else:
        functor = Functor(name="direct_copy", result=target.dtype, arguments=(target.dtype,))
    return pointwise(functor, [target], [source], gpu, kind=Kind.COPY)


def to_dtype(source: TensorRef, dtype: str, gpu: Gpu, number: int = 1) -> tuple[TensorRef, tuple[Kernel, ...]]:
    """What `source.to(dtype)` answers inside an Op, and its kernels: the tensor itself, or a converted temporary."""
    if source.dtype == dtype:
        return source, ()
    converted = temporary(source.shape, dtype, source.device, number)
    if tensor_iterator([source], []).contiguous:
        converted = replace(converted, strides=source.strides)
    return converted, copied(converted, source, gpu)


def same_view(a: TensorRef, b: TensorRef) -> bool:
    """Whether they show the same elements in the same order."""
    return (a.device, a.storage, a.offset, a.shape, a.strides, a.dtype) == (
        b.device,
        b.storage,
        b.offset,
        b.shape,
        b.strides,
        b.dtype,
    )


def _between_devices(target: TensorRef, source: TensorRef, gpu: Gpu, non_blocking: bool) -> tuple[Kernel, ...]:
    """A memcpy, and a kernel where the GPU side is no run of the dtype that travels (copy_requires_temporaries)."""
    if target.dtype == source.dtype and tensor_iterator([target], [source]).contiguous:
        return (_transfer(target, source, non_blocking),)
    # Blocking copies convert on the CPU, to spare the GPU the memory; others on the GPU.
    travels_as = target.dtype if (source.device == "cpu") != non_blocking else source.dtype
    sent = temporary(target.shape, travels_as, source.device, 1)
    arrived = target if target.contiguous and target.dtype == travels_as else replace(sent, device=target.device)
    expanded = expanded_to(source, target.shape)
    kernels: tuple[Kernel, ...] = ()
    if not (expanded.contiguous and source.dtype == travels_as):
        kernels += copied(sent, expanded, gpu)
    kernels += (_transfer(arrived, sent, non_blocking),)
    return kernels + (() if arrived is target else copied(target, arrived, gpu))


def _transfer(target: TensorRef, source: TensorRef, non_blocking: bool) -> Kernel:
    """Named as CUPTI does. Only pinned memory allows a copy that does not block: where one is asked for, it is so."""
    direction = {("cpu", False): "HtoD", ("cpu", True): "HtoH"}.get((source.device, target.device == "cpu"))
    direction = direction or ("DtoH" if target.device == "cpu" else "PtoP")
    host = "Pinned" if non_blocking else "Pageable"
    ends = {"HtoD": f" ({host} -> Device)", "DtoH": f" (Device -> {host})"}.get(direction, "")
    return over_link(target.elements * target.itemsize, f"Memcpy {direction}{ends}")


def expanded_to(tensor: TensorRef, shape: tuple[int, ...]) -> TensorRef:
    """The tensor broadcast to a shape: stride 0 where it had size 1 or no dimension."""
    missing = len(shape) - len(tensor.shape)
    strides = (0,) * missing + tuple(
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(tensor.shape, tensor.strides, shape[missing:], strict=True)
    )
    return viewed(tensor, shape, strides)


def narrowed(tensor: TensorRef, dimension: int, start: int, size: int) -> TensorRef:
    """`tensor.narrow(dimension, start, size)`."""
    shape = (*tensor.shape[:dimension], size, *tensor.shape[dimension + 1 :])
    return replace(tensor, shape=shape, offset=tensor.offset + start * tensor.strides[dimension])


@cost("aten::copy_")
def copy_(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the source, writes the target; converts where their dtypes differ."""
    return copied(op.tensor("self"), op.tensor("src"), gpu, bool(argument(op, "non_blocking")))


@cost("aten::_to_copy", "aten::to", "aten::clone", "aten::contiguous", "aten::lift_fresh_copy", "aten::_copy_from")
def copy(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The copy into the result; nothing where the result is the argument (`contiguous`, `to`)."""
    source, result = op.tensor("self"), op.results[0]
    if result.storage == source.storage and result.device == source.device:
        return ()
    return copied(result, source, gpu, bool(argument(op, "non_blocking")))


@cost("aten::_local_scalar_dense", "aten::item")
def item(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One element to the host; the CPU waits for it."""
    source = op.tensor("self")
    if source.device == "cpu":
        return ()
    return (over_link(source.itemsize, "Memcpy DtoH (Device -> Pinned)"),)


@cost("aten::repeat")
def repeat(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Every repetition is written from the same elements (TensorShape.cpp, repeat)."""
    source, result = op.tensor("self"), op.results[0]
    missing = len(result.shape) - len(source.shape)
    sizes = (1,) * missing + source.shape
    times = tuple(whole // size if size else 0 for whole, size in zip(result.shape, sizes, strict=True))
    strides = tuple(size * step for size, step in zip(sizes, result.strides, strict=True)) + result.strides
    tiles = viewed(result, times + sizes, strides)
    return copied(tiles, source, gpu)


@cost("aten::constant_pad_nd")
def constant_pad_nd(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Fills the whole result, then copies the input inside; pads below 0 cut the input (PadNd.cpp)."""
    source, result = op.tensor("self"), op.results[0]
    pads = op.arg("pad")
    counts = [pad for pad in pads if isinstance(pad, int)] if isinstance(pads, tuple) else []
    inside = result
    for pair in range(len(counts) // 2):
        dimension = len(source.shape) - 1 - pair
        for pad, at_start in ((counts[2 * pair], True), (counts[2 * pair + 1], False)):
            if pad < 0:
                source = narrowed(source, dimension, -pad if at_start else 0, source.shape[dimension] + pad)
            elif pad > 0:
                inside = narrowed(inside, dimension, pad if at_start else 0, inside.shape[dimension] - pad)
    if all(pad <= 0 for pad in counts):
        return copied(result, source, gpu)
    filled = inner(op, gpu, "aten::fill_", result, overload="Scalar", self=result, value=argument(op, "value"))
    return filled + copied(inside, source, gpu)


@cost("aten::flip")
def flip(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Flipped dimensions are walked backwards and never merged with others (TensorTransformations.cpp)."""
    source, result = op.tensor("self"), op.results[0]
    dims = op.arg("dims")
    flipped = {d % len(source.shape) for d in dims if isinstance(d, int)} if isinstance(dims, tuple) else set()
    still = [d for d in flipped if source.shape[d] > 1 and source.strides[d] != 0]
    if not still or source.elements <= 1:
        return copied(result, source, gpu)
    strides = tuple(0 if d in still else stride for d, stride in enumerate(source.strides))
    iterator = tensor_iterator([result], [source, replace(source, strides=strides)])
    return moved(
        [
            Geometry(
                name="index_elementwise_kernel<128, 4, flip>",
                grid=(blocks(part.elements, 512), 1, 1),  # launch_kernel<128 threads, 4 elements> (IndexKernel.cu)
                block=(128, 1, 1),
                elements=part.elements,
            )
            for part in in_32_bits(iterator)
        ],
        [result],
        [source],
        Kind.COPY,
        None,
    )


@cost("aten::roll")
def roll(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One kernel a rolled dimension, over a row-major source (cuda/TensorTransformations.cu)."""
    source, result = op.tensor("self"), op.results[0]
    dims = op.arg("dims")
    rolled = len(dims) if isinstance(dims, tuple) and dims else 1
    if not source.elements:
        return ()
    kernels: tuple[Kernel, ...] = ()
    if not source.contiguous:
        row_major = temporary(source.shape, source.dtype, source.device)
        kernels, source = copied(row_major, source, gpu), row_major
    launch = Geometry(
        name="roll_cuda_kernel",
        grid=(blocks(source.elements, 512), 1, 1),  # getApplyBlock: 512 threads (CUDAApplyUtils.cuh)
        block=(512, 1, 1),
        elements=source.elements,
    )
    for number in range(rolled, 0, -1):
        target = result if number == 1 else temporary(source.shape, source.dtype, source.device, number + 1)
        kernels += moved([launch], [target], [source], Kind.COPY, None)
        source = target
    return kernels
