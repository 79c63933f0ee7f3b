"""Sums, means, extremes, norms, variances (ATen/native/ReduceOps.cpp, cuda/Reduce*.cu).

Where few results come of many elements, blocks share a result: they leave partial results in global memory, and a
memset clears the semaphores by which the last block knows that it is the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from undertorch.costs.building import contiguous_strides, inner, memset, pytorch, viewed
from undertorch.costs.copy import copied, to_dtype
from undertorch.costs.dtypes import HALF_DTYPES, compute_dtype, is_integral, math_of
from undertorch.costs.fill import filled
from undertorch.costs.geometry.reduce_config import ReduceGeometry, Reducer, reduce_launches
from undertorch.costs.geometry.tensor_iterator import reduction_iterator
from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.pointwise import shares
from undertorch.costs.registry import cost
from undertorch.costs.resources import registers_of
from undertorch.costs.rules import argument
from undertorch.records import DTYPE_BYTES, Gpu, Kernel, Kind, Op, TensorRef

INDEX_BYTES = 8
"""Of the int64 that a search carries beside each value; the pair is padded to twice that."""
NORM_FLOPS = {0.0: 1, 1.0: 1, 2.0: 2, float("inf"): 0, float("-inf"): 0}
"""An element, by order: count; sum of magnitudes; sum of squares; choices. Any other: a power and a sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """What of one Op goes to `reduced`."""

    reducer: Reducer
    flops: int
    """An element of the source."""
    result_flops: int = 0
    """A result."""
    jitted: bool = False


def reduced(
    reduction: Reduction,
    outputs: Sequence[TensorRef],
    source: TensorRef,
    dimensions: Sequence[int] | None,
    keepdim: bool,
    gpu: Gpu,
) -> tuple[Kernel, ...]:
    """The kernels of a reduction of a source that has elements, along some of its dimensions (None or empty: all)."""
    iterator = reduction_iterator(outputs, source, dimensions, keepdim)
    launches = reduce_launches(iterator, reduction.reducer, gpu)
    read = shares(least_bytes([source]), [launch.elements for launch in launches])
    written = shares(least_bytes(outputs), [launch.outputs for launch in launches])
    kernels: tuple[Kernel, ...] = ()
    for launch, reads, writes in zip(launches, read, written, strict=True):
        kernels += _launched(reduction, launch, source.dtype, reads, writes)
    return kernels


def _launched(reduction: Reduction, launch: ReduceGeometry, dtype: str, read: int, written: int) -> tuple[Kernel, ...]:
    name = reduction.reducer.name
    if not reduction.jitted:
        name = f"reduce_kernel<{launch.threads}, {launch.output_vector}, {name}>"
    math = math_of(dtype)
    flops = 0 if math is None else reduction.flops * launch.elements + reduction.result_flops * launch.outputs
    kernel = pytorch(
        name,
        Kind.REDUCTION,
        launch.grid,
        launch.block,
        read=read,
        written=written,
        flops=flops,
        math=math,
        registers=registers_of(name),
        shared=launch.shared_bytes,
        # Partial results are written by every block and read once more by the last.
        traffic=read + written + 2 * launch.staging_bytes if launch.staging_bytes else None,
    )
    if not launch.semaphore_bytes:
        return (kernel,)
    return memset(launch.semaphore_bytes), kernel


def dimensions_of(op: Op) -> tuple[int, ...] | None:
    """The argument `dim`, one or several; None where the Op has none."""
    dim = argument(op, "dim")
    if isinstance(dim, int) and not isinstance(dim, bool):
        return (dim,)
    return tuple(d for d in dim if isinstance(d, int)) if isinstance(dim, tuple) else None


def keeps_dimensions(op: Op) -> bool:
    """The argument `keepdim`; False where the Op has none."""
    return argument(op, "keepdim") is True


def accumulating(name: str, dtype: str) -> Reducer:
    """Carries a number in the dtype that ATen accumulates in. Sums and means load 16 bytes of half types."""
    vector = 8 if dtype in HALF_DTYPES and name in ("sum", "mean") else 4
    return Reducer(name=name, scalar=dtype, accumulator_bytes=DTYPE_BYTES[compute_dtype(dtype)], load_vector=vector)


def choosing(name: str, dtype: str) -> Reducer:
    """Carries one of the values."""
    return Reducer(name=name, scalar=dtype, accumulator_bytes=DTYPE_BYTES[dtype])


def searching(name: str, dtype: str) -> Reducer:
    """Carries a value and its index."""
    return Reducer(name=name, scalar=dtype, accumulator_bytes=2 * INDEX_BYTES)


def as_accumulated(source: TensorRef, wanted: str, gpu: Gpu) -> tuple[TensorRef, tuple[Kernel, ...]]:
    """In the result's dtype, but half types into float32 stay: the kernel converts (make_reduction)."""
    if source.dtype in HALF_DTYPES and wanted == "float32":
        return source, ()
    return to_dtype(source, wanted, gpu)


@cost("aten::sum", "aten::nansum", "aten::mean", "aten::prod")
def accumulate(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One operation an element; a mean is one more a result. An empty source leaves a constant to be filled in."""
    name, result = op.name.removeprefix("aten::"), op.results[0]
    if not op.tensor("self").elements:
        return filled(result, gpu)
    source, casts = as_accumulated(op.tensor("self"), result.dtype, gpu)
    # Products are compiled when first called.
    jitted = name == "prod" and source.dtype != "bool"
    reducer = accumulating("reduction_prod_kernel" if jitted else name, source.dtype)
    reduction = Reduction(reducer=reducer, flops=1, result_flops=int(name == "mean"), jitted=jitted)
    return casts + reduced(reduction, [result], source, dimensions_of(op), keeps_dimensions(op), gpu)


@cost("aten::amax", "aten::amin", "aten::max", "aten::min")
def extreme(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Of all elements or along dimensions; `max.dim` finds the index too. `max.other` is `maximum`."""
    name, source = op.name.removeprefix("aten::"), op.tensor("self")
    if op.overload == "other":
        return inner(op, gpu, f"aten::{name}imum", *op.results, self=source, other=op.arg("other"))
    if not source.elements:
        return ()
    if len(op.results) == 1:
        reducer = choosing(f"a{name}" if len(name) == 3 else name, source.dtype)
        reduction = Reduction(reducer=reducer, flops=0)
        return reduced(reduction, op.results, source, dimensions_of(op), keeps_dimensions(op), gpu)
    if source.shape == ():
        values, indices = op.results
        return copied(values, source, gpu) + filled(indices, gpu)
    reduction = Reduction(reducer=searching(name, source.dtype), flops=0)
    return reduced(reduction, op.results, source, dimensions_of(op), keeps_dimensions(op), gpu)


@cost("aten::argmax", "aten::argmin")
def position(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Without a dimension the source is flattened first, which copies it where its strides do not allow it."""
    source, result, dimensions = op.tensor("self"), op.results[0], dimensions_of(op)
    if not source.elements:
        return ()
    reduction = Reduction(reducer=searching(op.name.removeprefix("aten::"), source.dtype), flops=0)
    if dimensions is None:
        flat = viewed(source, (source.elements,))
        copies: tuple[Kernel, ...] = ()
        if not source.contiguous:
            flat = replace(flat, storage=-1, offset=0)
            copies = copied(viewed(flat, source.shape, contiguous_strides(source.shape)), source, gpu)
        return copies + reduced(reduction, [result], flat, None, False, gpu)
    if source.shape and source.shape[dimensions[0]] == 1:
        return filled(result, gpu)
    return reduced(reduction, [result], source, dimensions, keeps_dimensions(op), gpu)


@cost("aten::aminmax")
def both_extremes(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The smallest and the largest in one pass."""
    source = op.tensor("self")
    reducer = Reducer(name="aminmax", scalar=source.dtype, accumulator_bytes=2 * source.itemsize)
    reduction = Reduction(reducer=reducer, flops=0)
    return reduced(reduction, op.results, source, dimensions_of(op), keeps_dimensions(op), gpu)


@cost("aten::any", "aten::all")
def truth(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Elements are read in their own dtype; of a single one, a copy is made."""
    source, result = op.tensor("self"), op.results[0]
    if not source.elements:
        return filled(result, gpu)
    if source.elements == 1:
        single, casts = to_dtype(viewed(source, result.shape), "bool", gpu)
        return casts + copied(result, single, gpu)
    reduction = Reduction(reducer=choosing(op.name.removeprefix("aten::"), source.dtype), flops=0)
    return reduced(reduction, [result], source, dimensions_of(op), keeps_dimensions(op), gpu)


@cost("aten::var", "aten::std", "aten::var_mean", "aten::std_mean")
def variance(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Welford: difference, count, quotient, mean, difference, product, sum; 1 a result, 2 with a root."""
    source = op.tensor("self")
    if not source.elements:
        return tuple(kernel for result in op.results for kernel in filled(result, gpu))
    # Mean, second moment, count twice (WelfordData); the count as int32 is padded beside doubles.
    carried = 4 * DTYPE_BYTES[compute_dtype(source.dtype)]
    reducer = Reducer(name="Welford", scalar=source.dtype, accumulator_bytes=carried, load_vector=2)
    reduction = Reduction(reducer=reducer, flops=7, result_flops=2 if "std" in op.name else 1)
    return reduced(reduction, op.results, source, dimensions_of(op), keeps_dimensions(op), gpu)


@cost("aten::linalg_vector_norm", "aten::norm")
def vector_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Of order `ord` (2 where none is given). Along dimensions of size 1 it is the magnitude."""
    source, result, dimensions = op.tensor("self"), op.results[0], dimensions_of(op)
    given = argument(op, "ord" if op.name == "aten::linalg_vector_norm" else "p")
    order = 2.0 if given is None or isinstance(given, TensorRef | tuple) else float(given)
    if not source.elements:
        return filled(result, gpu)
    along = {d % len(source.shape) for d in dimensions} if dimensions and source.shape else range(len(source.shape))
    if all(source.shape[d] == 1 for d in along):
        single = viewed(source, result.shape, result.strides)
        return inner(op, gpu, "aten::abs" if order else "aten::ne", result, self=single, other=0)
    source, casts = as_accumulated(source, result.dtype, gpu)
    flops = NORM_FLOPS.get(order, 2)
    result_flops = 0 if order in (0.0, 1.0, float("inf"), float("-inf")) else 1
    reduction = Reduction(reducer=accumulating("norm", source.dtype), flops=flops, result_flops=result_flops)
    return casts + reduced(reduction, [result], source, dimensions, keeps_dimensions(op), gpu)


@cost("aten::count_nonzero")
def count_nonzero(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """(x != 0).sum()."""
    source, result = op.tensor("self"), op.results[0]
    comparison: tuple[Kernel, ...] = ()
    if source.dtype != "bool":
        nonzero = viewed(replace(source, dtype="bool", storage=-1, offset=0), source.shape)
        comparison = inner(op, gpu, "aten::ne", nonzero, overload="Scalar", self=source, other=0)
        source = nonzero
    return comparison + inner(op, gpu, "aten::sum", result, self=source, dim=argument(op, "dim"), keepdim=False)


@cost("aten::logsumexp")
def logsumexp(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Largest elements, infinite ones set to 0; exponentials of the rest, summed; the logarithm, the largest again.

    Nine kernels, of which two run over the whole source (ReduceOps.cpp, logsumexp_out_impl).
    """
    source, result = op.tensor("self"), op.results[0]
    if is_integral(source.dtype):
        source, casts = to_dtype(source, result.dtype, gpu)
    else:
        casts = ()
    dimensions, keepdim = dimensions_of(op) or (), keeps_dimensions(op)
    along = {d % len(source.shape) for d in dimensions} if source.shape else set()
    kept = tuple(1 if d in along or not dimensions else size for d, size in enumerate(source.shape))
    largest = viewed(replace(source, storage=-2, offset=0), kept)
    infinite = replace(largest, dtype="bool", storage=-3)
    rest = viewed(replace(source, storage=-4, offset=0), source.shape)
    steps = (
        ("aten::amax", largest, {"self": source, "dim": dimensions, "keepdim": True}),
        ("aten::abs", replace(largest, storage=-5), {"self": largest}),
        ("aten::eq", infinite, {"self": replace(largest, storage=-5), "other": "inf"}),
        ("aten::masked_fill_", largest, {"self": largest, "mask": infinite, "value": 0}),
        ("aten::sub", rest, {"self": source, "other": largest, "alpha": 1}),
        ("aten::exp_", rest, {"self": rest}),
        ("aten::sum", result, {"self": rest, "dim": dimensions, "keepdim": keepdim}),
        ("aten::log_", result, {"self": result}),
        ("aten::add_", result, {"self": result, "other": viewed(largest, result.shape), "alpha": 1}),
    )
    kernels = casts
    for name, output, arguments in steps:
        kernels += inner(op, gpu, name, output, **arguments)
    return kernels
