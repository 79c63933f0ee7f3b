"""Ops over lists of tensors (ATen/native/cuda/Foreach*.cu, AmpKernels.cu).

Lists of one dtype whose tensors fill their memory and match in size and strides are served by few launches, a block a
chunk of 65,536 elements. Anything else is the single Op, once a tensor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from undertorch.costs.building import inner, pytorch, temporary
from undertorch.costs.dtypes import compute_dtype, is_integral, math_of, result_type
from undertorch.costs.fill import filled
from undertorch.costs.geometry.builds import Build, build_of
from undertorch.costs.geometry.loops import Functor, blocks
from undertorch.costs.geometry.multi_tensor import BLOCK, CHUNK_ELEMENTS, launches
from undertorch.costs.geometry.tensor_iterator import dense
from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.pointwise import pointwise, shares
from undertorch.costs.registry import Cost, cost
from undertorch.costs.resources import registers_of
from undertorch.costs.rules import argument, is_cpu_scalar
from undertorch.records import DTYPE_BYTES, Gpu, Kernel, Kind, Op, Scalar, TensorRef, Value

NORM_THREADS = 512
"""Threads of LpNormFunctor and lpnorm_cleanup; each has a slot in shared memory."""
NORMS_A_LAUNCH = 400
"""Tensors of one `lpnorm_cleanup` (MAX_TENSORS_PER_KERNEL)."""
FAST_ORDERS = (1.0, 2.0, float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRule:
    """One Op over lists, and its in-place twin."""

    name: str
    """Without `aten::_foreach_`."""
    single: str
    """The Op over one tensor, for lists that do not fit the fast kernels."""
    functor: str
    """Beginning of the functor's name; `Scalar`, `List`, … follow it by the overload."""
    flops: int
    renamed: dict[str, str] = field(default_factory=dict)
    """Arguments that the single Op calls otherwise."""
    floats_only: bool = False
    """Whether lists of whole numbers take the single Op."""


UNARY = {
    "abs": 0,
    "acos": 1,
    "asin": 1,
    "atan": 1,
    "ceil": 0,
    "cos": 1,
    "cosh": 1,
    "erf": 1,
    "erfc": 1,
    "exp": 1,
    "expm1": 1,
    "floor": 0,
    "frac": 1,
    "lgamma": 1,
    "log": 1,
    "log10": 1,
    "log1p": 1,
    "log2": 1,
    "neg": 0,
    "reciprocal": 1,
    "round": 0,
    "rsqrt": 1,
    "sigmoid": 3,
    "sign": 0,
    "sin": 1,
    "sinh": 1,
    "sqrt": 1,
    "tan": 1,
    "tanh": 1,
    "trunc": 0,
}
"""FLOPs an element."""

OTHER = {"scalar": "other", "scalars": "other"}
RULES = (
    *(
        ListRule(name=name, single=name, functor="UnaryOp", flops=flops, floats_only=name not in ("abs", "neg"))
        for name, flops in UNARY.items()
    ),
    ListRule(name="add", single="add", functor="BinaryOp", flops=1, renamed=OTHER),
    ListRule(name="sub", single="sub", functor="BinaryOp", flops=1, renamed=OTHER),
    ListRule(name="mul", single="mul", functor="BinaryOp", flops=1, renamed=OTHER),
    ListRule(name="div", single="div", functor="BinaryOp", flops=1, renamed=OTHER, floats_only=True),
    ListRule(name="pow", single="pow", functor="BinaryOp", flops=1, floats_only=True),
    *(
        ListRule(name=name, single=single, functor="BinaryOp", flops=0, renamed=OTHER, floats_only=True)
        for name, single in (
            ("clamp_max", "minimum"),
            ("clamp_min", "maximum"),
            ("maximum", "maximum"),
            ("minimum", "minimum"),
        )
    ),
    *(
        ListRule(name=name, single=name, functor="PointwiseOp", flops=3, renamed={"scalars": "value"}, floats_only=True)
        for name in ("addcdiv", "addcmul")
    ),
    ListRule(
        name="lerp",
        single="lerp",
        functor="TernaryOp",
        flops=3,
        renamed={"tensors1": "end", "weights": "weight", "scalars": "weight"},
        floats_only=True,
    ),
)


def _cost_of(rule: ListRule) -> Cost:
    return lambda op, gpu: _by_rule(rule, op, gpu)


for _rule in RULES:
    cost(f"aten::_foreach_{_rule.name}", f"aten::_foreach_{_rule.name}_")(_cost_of(_rule))


def _by_rule(rule: ListRule, op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    in_place = op.name.endswith("_")
    sources = [op.tensors(given.name) for given in op.arguments if _is_list(given.value)]
    scalars = [value for name in ("scalar", "scalars", "value", "weight", "exponent") for value in _numbers(op, name)]
    by_tensor = _scalar_tensor(op)
    written = sources[0] if in_place else op.results
    fits = (
        fast(sources, scalars)
        and not (rule.floats_only and is_integral(sources[0][0].dtype))
        and (by_tensor is None or by_tensor.dtype == sources[0][0].dtype)
    )
    if not fits:
        return _one_by_one(rule, op, gpu, len(sources[0]))
    flops = rule.flops + (1 if argument(op, "alpha") not in (None, 1) else 0)
    read = [*sources, [by_tensor]] if by_tensor else sources
    lists = len(sources) + (0 if in_place else 1)
    suffix = _suffix(rule, op, by_tensor)
    return multi_tensor(
        f"{rule.functor}{suffix}Functor",
        read,
        [written],
        lists,
        build_of(op),
        flops=flops,
        kind=Kind.ELEMENTWISE,
        scalars=suffix == "ScalarList",
    )


def multi_tensor(
    functor: str,
    read: Sequence[Sequence[TensorRef]],
    written: Sequence[Sequence[TensorRef]],
    lists: int,
    build: Build,
    *,
    flops: int,
    kind: Kind,
    scalars: bool = False,
    shared_bytes: int = 0,
) -> tuple[Kernel, ...]:
    """The launches of a functor over the tensors of the first list read (or, where none is, written).

    `lists` are those that the kernel takes addresses of; `flops` an element. What is read and written is shared out by
    the elements of each launch.
    """
    tensors = (read or written)[0]
    served = launches([tensor.elements for tensor in tensors], lists, build, scalars=scalars)
    elements = [sum(chunks) for chunks in served]
    math = math_of(tensors[0].dtype)
    name = f"multi_tensor_apply_kernel<{functor}>"
    return tuple(
        pytorch(
            name,
            kind,
            len(chunks),
            BLOCK,
            read=reads,
            written=writes,
            flops=0 if math is None else flops * sum(chunks),
            math=math,
            registers=registers_of(name),
            shared=shared_bytes,
        )
        for chunks, reads, writes in zip(
            served,
            shares(least_bytes(tensor for group in read for tensor in group), elements),
            shares(least_bytes(tensor for group in written for tensor in group), elements),
            strict=True,
        )
    )


def fast(lists: Sequence[Sequence[TensorRef]], scalars: Sequence[Scalar] = (), one_dtype: bool = True) -> bool:
    """Whether the lists fit the fast kernels (ATen/native/ForeachUtils.h, can_use_fast_route)."""
    first = lists[0]
    return all(
        t.device == first[0].device and t.dtype == (first if one_dtype else group)[0].dtype and dense(t)
        for group in lists
        for t in group
    ) and (
        all(_same_layout(a, b) for group in lists[1:] for a, b in zip(first, group, strict=True))
        and all(result_type([t, scalar]) == t.dtype for t in first[:1] for scalar in scalars)
    )


@cost("aten::_foreach_zero_")
def foreach_zero_(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Writes, reads nothing."""
    tensors = op.tensors("self")
    if not fast([tensors]):
        return tuple(kernel for tensor in tensors for kernel in filled(tensor, gpu))
    return multi_tensor("ZeroFunctor", [], [tensors], 1, build_of(op), flops=0, kind=Kind.FILL)


@cost("aten::_foreach_copy_")
def foreach_copy_(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Converts on its way where each list has a dtype of its own."""
    targets, sources = op.tensors("self"), op.tensors("src")
    if not fast([targets, sources], one_dtype=False):
        return tuple(
            kernel
            for target, source in zip(targets, sources, strict=True)
            for kernel in inner(
                op,
                gpu,
                "aten::copy_",
                target,
                self=target,
                src=source,
                non_blocking=argument(op, "non_blocking"),
            )
        )
    functor = "UnaryOpFunctor" if targets[0].dtype == sources[0].dtype else "CopyFunctor"
    return multi_tensor(functor, [sources], [targets], 2, build_of(op), flops=0, kind=Kind.COPY)


@cost("aten::_foreach_norm")
def foreach_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A partial norm a chunk, into zeroed memory; then one block a tensor puts them together.

    2 FLOPs an element for squares and their sum, 1 for magnitudes; the root is 1 a tensor.
    """
    tensors, results = op.tensors("self"), op.results
    given = argument(op, "ord")
    order = 2.0 if given is None or isinstance(given, TensorRef | tuple) else float(given)
    if order not in FAST_ORDERS or not fast([tensors]) or is_integral(tensors[0].dtype):
        return tuple(
            kernel
            for tensor, result in zip(tensors, results, strict=True)
            for kernel in inner(op, gpu, "aten::linalg_vector_norm", result, self=tensor, ord=order, keepdim=False)
        )
    flops = {1.0: 1, 2.0: 2}.get(order, 0)
    return _by_chunks(tensors, results, gpu, build_of(op), "LpNormFunctor", "lpnorm_cleanup", flops, int(order == 2.0))


@cost("aten::_foreach_max")
def foreach_max(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The largest a chunk, then the largest a tensor."""
    tensors, results = op.tensors("self"), op.results
    if not fast([tensors]):
        return tuple(
            kernel
            for tensor, result in zip(tensors, results, strict=True)
            for kernel in inner(op, gpu, "aten::max", result, self=tensor)
        )
    return _by_chunks(tensors, results, gpu, build_of(op), "LpMaxFunctor", "lpmax_cleanup", 0, 0)


@cost("aten::_amp_foreach_non_finite_check_and_unscale_")
def unscale(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Gradients times the inverse scale, in place; a flag is raised where one is not finite.

    Tensors that do not fit the fast kernel go one by one (AmpKernels.cu).
    """
    gradients, scale = op.tensors("self"), op.tensor("inv_scale")
    if not gradients:
        return ()
    dtype = gradients[0].dtype
    fitting = [t for t in gradients if dense(t) and t.dtype == dtype]
    kernels: tuple[Kernel, ...] = ()
    for tensor in gradients:
        if not (dense(tensor) and tensor.dtype == dtype):
            functor = Functor(name="unscale", result=tensor.dtype, arguments=(tensor.dtype,))
            kernels += pointwise(functor, [tensor], [tensor], gpu, flops=1)
    if not fitting:
        return kernels
    return kernels + multi_tensor(
        "UnaryOpFunctor", [fitting, [scale]], [fitting], 1, build_of(op), flops=1, kind=Kind.ELEMENTWISE
    )


@cost("aten::_amp_update_scale_")
def update_scale(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One thread reads the scale, the growth tracker and the flag, and writes the first two."""
    scale, tracker, flag = op.tensor("self"), op.tensor("growth_tracker"), op.tensor("found_inf")
    name = "amp_update_scale_cuda_kernel"
    return (
        pytorch(
            name,
            Kind.ELEMENTWISE,
            1,
            1,
            read=least_bytes([scale, tracker, flag]),
            written=least_bytes([scale, tracker]),
            flops=1,
            math=math_of(scale.dtype),
            registers=registers_of(name),
            shared=0,
        ),
    )


def _by_chunks(
    tensors: Sequence[TensorRef],
    results: Sequence[TensorRef],
    gpu: Gpu,
    build: Build,
    functor: str,
    cleanup: str,
    flops: int,
    result_flops: int,
) -> tuple[Kernel, ...]:
    """Zeroed partial results, one a chunk of the longest tensor for every tensor; the chunks; then a block a tensor."""
    dtype = compute_dtype(results[0].dtype) if functor == "LpNormFunctor" else tensors[0].dtype
    shared = NORM_THREADS * DTYPE_BYTES[dtype]
    most_chunks = max(blocks(tensor.elements, CHUNK_ELEMENTS) for tensor in tensors)
    partial = temporary((len(tensors) * most_chunks,), dtype, tensors[0].device)
    chunks = temporary((sum(blocks(t.elements, CHUNK_ELEMENTS) for t in tensors),), dtype, tensors[0].device)
    kernels = filled(partial, gpu) + multi_tensor(
        functor, [tensors], [[chunks]], 1, build, flops=flops, kind=Kind.REDUCTION, shared_bytes=shared
    )
    math = math_of(dtype)
    for start in range(0, len(tensors), NORMS_A_LAUNCH):
        served = results[start : start + NORMS_A_LAUNCH]
        kernels += (
            pytorch(
                cleanup,
                Kind.REDUCTION,
                len(served),
                NORM_THREADS,
                read=len(served) * most_chunks * DTYPE_BYTES[dtype],
                written=least_bytes(served),
                flops=len(served) * ((most_chunks if flops else 0) + result_flops),
                math=math,
                registers=registers_of(cleanup),
                shared=shared,
            ),
        )
    return kernels + tuple(
        kernel
        for tensor, result in zip(tensors, results, strict=True)
        if not tensor.elements
        for kernel in filled(result, gpu)
    )


def _one_by_one(rule: ListRule, op: Op, gpu: Gpu, count: int) -> tuple[Kernel, ...]:
    """The single Op, for each tensor."""
    in_place = op.name.endswith("_")
    kernels: tuple[Kernel, ...] = ()
    for index in range(count):
        arguments = {rule.renamed.get(given.name, given.name): _each(given.value, index) for given in op.arguments}
        target = op.tensors("self")[index] if in_place else op.results[index]
        kernels += inner(op, gpu, f"aten::{rule.single}{'_' if in_place else ''}", target, overload="", **arguments)
    return kernels


def _each(value: Value, index: int) -> Value:
    """Of a list the one at an index; of anything else, itself."""
    return value[index] if isinstance(value, tuple) else value


def _suffix(rule: ListRule, op: Op, by_tensor: TensorRef | None) -> str:
    """How the functor's name goes on: by what stands beside the list."""
    if rule.functor == "UnaryOp":
        return ""
    if any(isinstance(given.value, tuple) and not _is_list(given.value) for given in op.arguments):
        return "ScalarList"
    if rule.functor == "PointwiseOp":
        return "Scalar" if argument(op, "scalars") is None else "ScalarList"
    if by_tensor is not None:
        return "ScalarTensor"
    if sum(_is_list(given.value) for given in op.arguments) == (3 if rule.functor == "TernaryOp" else 2):
        return "ListAlpha" if rule.functor == "BinaryOp" else "List"
    return "Scalar"


def _scalar_tensor(op: Op) -> TensorRef | None:
    """A tensor on the GPU that stands for a scalar."""
    other = argument(op, "other")
    return other if isinstance(other, TensorRef) and not is_cpu_scalar(other) else None


def _numbers(op: Op, name: str) -> list[Scalar]:
    value = argument(op, name)
    given = value if isinstance(value, tuple) else (value,)
    return [number for number in given if isinstance(number, bool | int | float | str)]


def _is_list(value: Value) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], TensorRef)


def _same_layout(a: TensorRef, b: TensorRef) -> bool:
    """Same sizes, and the same strides wherever the size is not 1."""
    return a.shape == b.shape and all(
        size == 1 or left == right for size, left, right in zip(a.shape, a.strides, b.strides, strict=True)
    )
