"""Arithmetic, comparisons, powers, choices (ATen/native/cuda/Unary*.cu, Binary*.cu, Compare*.cu, TensorCompare.cu)."""

from dataclasses import replace

from undertorch.costs.building import inner, temporary
from undertorch.costs.copy import copied, same_view, to_dtype
from undertorch.costs.dtypes import is_integral, result_type
from undertorch.costs.fill import filled
from undertorch.costs.geometry.loops import Functor, Geometry, blocks
from undertorch.costs.pointwise import moved, pointwise
from undertorch.costs.registry import cost
from undertorch.costs.rules import Rule, Types, argument, common_dtype, is_cpu_scalar, kernels_of, register
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

SELF, PAIR = ("self",), ("self", "other")

register(
    Rule(name=name, inputs=SELF, flops=flops, types=types, complex_functor=f"{name}_kernel")
    for name, types, flops in (
        ("abs", Types.MAGNITUDE, 0),
        ("bitwise_not", Types.COMMON, 0),
        ("conj_physical", Types.COMMON, 0),
        ("exp", Types.FLOAT, 1),
        ("frac", Types.COMMON, 1),
        ("log", Types.FLOAT, 1),
        ("log10", Types.FLOAT, 1),
        ("log2", Types.FLOAT, 1),
        ("nan_to_num", Types.COMMON, 0),
        ("neg", Types.COMMON, 0),
        ("rsqrt", Types.FLOAT, 1),
        ("sgn", Types.COMMON, 0),
        ("sign", Types.COMMON, 0),
        ("sqrt", Types.FLOAT, 1),
    )
)

register(
    Rule(name=name, inputs=SELF, flops=1, types=Types.FLOAT, complex_functor=f"{name}_impl")
    for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan", "tanh")
)

register(
    Rule(name=name, inputs=SELF, flops=flops, types=Types.FLOAT)
    for name, flops in {
        "erf": 1,
        "expm1": 1,
        "log1p": 1,
        "logit": 3,  # subtract from 1, divide, logarithm
        "reciprocal": 1,
    }.items()
)

# Exponential, add 1, divide.
register([Rule(name="sigmoid", inputs=SELF, flops=3, types=Types.FLOAT, complex_functor="sigmoid")])

# Compiled by torch when first called (UnarySpecialOpsKernel.cu, UnaryGammaKernels.cu).
register(
    Rule(name=name, inputs=SELF, flops=flops, types=Types.FLOAT, functor=functor, jitted=True)
    for name, functor, flops in (
        ("digamma", "digamma", 1),
        ("erfc", "erfc_kernel", 1),
        ("erfinv", "erfinv_kernel", 1),
        ("exp2", "exp2_kernel", 1),
        ("i0", "i0", 1),
        ("lgamma", "lgamma_kernel", 1),
        ("sinc", "sinc", 3),
        ("special_entr", "entr", 2),
        ("special_erfcx", "erfcx", 1),
        ("special_i0e", "calc_i0e", 1),
        ("special_i1", "i1", 1),
        ("special_i1e", "i1e", 1),
        ("special_log_ndtr", "log_ndtr", 1),
        ("special_ndtri", "ndtri", 1),
    )
)

register(Rule(name=name, inputs=SELF, types=Types.PREDICATE) for name in ("logical_not", "signbit"))

register(
    Rule(name=name, inputs=PAIR, flops=flops)
    for name, flops in {
        "bitwise_and": 0,
        "bitwise_left_shift": 0,
        "bitwise_or": 0,
        "bitwise_right_shift": 0,
        "bitwise_xor": 0,
        "copysign": 0,
        "fmax": 0,
        "fmin": 0,
        "fmod": 3,  # a - b·trunc(a / b)
        "heaviside": 0,
        "hypot": 4,
        "maximum": 0,
        "minimum": 0,
        "mul": 1,
        "nextafter": 0,
        "remainder": 3,  # a - b·floor(a / b)
    }.items()
)

register(
    Rule(name=name, inputs=PAIR, flops=flops, types=Types.FLOAT)
    for name, flops in {
        "atan2": 1,
        "logaddexp": 4,  # subtract, exponential, log1p, add
        "logaddexp2": 4,
        "special_xlog1py": 2,
        "xlogy": 2,
    }.items()
)

register(Rule(name=name, inputs=PAIR, jitted=True) for name in ("gcd", "lcm"))

register(
    Rule(name=name, inputs=PAIR, types=Types.PREDICATE)
    for name in ("eq", "ge", "gt", "le", "logical_and", "logical_or", "logical_xor", "lt", "ne")
)

register(
    Rule(name=name, inputs=inputs, flops=3)  # a product or a quotient or a difference, its weight, the sum
    for name, inputs in (
        ("addcdiv", ("self", "tensor1", "tensor2")),
        ("addcmul", ("self", "tensor1", "tensor2")),
        ("lerp", ("self", "end", "weight")),
    )
)


@cost("aten::add", "aten::add_", "aten::sub", "aten::sub_", "aten::rsub")
def add(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One kernel for all: sums with `alpha`, which is a multiplication more where it is not 1."""
    flops = 1 if argument(op, "alpha") in (None, 1) else 2
    return kernels_of(Rule(name="add", inputs=PAIR, flops=flops), op, gpu)


@cost("aten::div", "aten::div_", "aten::floor_divide", "aten::floor_divide_")
def divide(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """True division makes floats of whole numbers; `floor` and `trunc` keep them."""
    rounding = "floor" if op.name.startswith("aten::floor") else argument(op, "rounding_mode")
    if rounding is None:
        return kernels_of(Rule(name="div", inputs=PAIR, flops=1, types=Types.FLOAT), op, gpu)
    return kernels_of(Rule(name=f"div_{rounding}", inputs=PAIR, flops=1), op, gpu)


@cost("aten::ceil", "aten::ceil_", "aten::floor", "aten::floor_", "aten::trunc", "aten::trunc_")
@cost("aten::round", "aten::round_")
def rounded(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Whole numbers are copied (UnaryOps.cpp)."""
    source = op.tensor("self")
    if is_integral(source.dtype) and source.dtype != "bool":
        return copied(op.results[0], source, gpu)
    return kernels_of(Rule(name=op.name.removeprefix("aten::").removesuffix("_"), inputs=SELF), op, gpu)


@cost("aten::isposinf", "aten::isneginf")
def is_one_infinity(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Of whole numbers False is filled in."""
    if is_integral(op.tensor("self").dtype):
        return filled(op.results[0], gpu)
    return kernels_of(Rule(name=op.name.removeprefix("aten::"), inputs=SELF, types=Types.PREDICATE), op, gpu)


@cost("aten::pow", "aten::pow_")
def power(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Of two tensors, of a tensor and a number, or of a number and a tensor (PowKernel.cu, Pow.cpp)."""
    base, exponent, out = op.arg("self"), op.arg("exponent"), op.results[0]
    if isinstance(base, TensorRef) and not is_cpu_scalar(base) and isinstance(exponent, int | float):
        return _power_of(base, exponent, out, gpu)
    if isinstance(base, int | float):
        if base == 1:
            return filled(out, gpu)
        # The number is first put into a tensor on the GPU.
        dtype = "int64" if isinstance(base, int) else "float64"
        number = temporary((), dtype, out.device)
        functor = Functor(name="pow", result=out.dtype, arguments=(out.dtype, out.dtype))
        return filled(number, gpu) + pointwise(functor, [out], [number, op.tensor("exponent")], gpu, flops=1)
    return kernels_of(Rule(name="pow", inputs=("self", "exponent"), flops=1), op, gpu)


def _power_of(base: TensorRef, exponent: int | float, out: TensorRef, gpu: Gpu) -> tuple[Kernel, ...]:
    """`x ** 0` fills and `x ** 1` copies; 2, 3 and -2 are products, ±0.5 and -1 root and reciprocal."""
    if exponent == 0:
        return filled(out, gpu)
    source, casts = to_dtype(base, common_dtype([base, exponent]) if is_integral(base.dtype) else base.dtype, gpu)
    if exponent == 1:
        return casts + copied(out, source, gpu)
    name = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}.get(exponent, "pow_scalar")
    functor = Functor(name=name, result=source.dtype, arguments=(source.dtype,))
    return casts + pointwise(functor, [out], [source], gpu, flops=2 if exponent in (3, -2) else 1)


@cost("aten::clamp", "aten::clamp_", "aten::clamp_min", "aten::clamp_min_", "aten::clamp_max", "aten::clamp_max_")
def clamp(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Bounds that are numbers are part of the functor; bounds that are tensors are read."""
    bounds = [argument(op, name) for name in ("min", "max")]
    given = [bound for bound in bounds if bound is not None]
    source, out = op.tensor("self"), op.results[0]
    if all(isinstance(bound, TensorRef) for bound in given):
        names = tuple(name for name, bound in zip(("min", "max"), bounds, strict=True) if bound is not None)
        # With one bound it is the same kernel as `maximum` or `minimum` (TensorCompare.cpp, clamp_min_Tensor_out).
        name = "clamp" if len(names) == 2 else {"min": "maximum", "max": "minimum"}[names[0]]
        return kernels_of(Rule(name=name, inputs=("self", *names)), op, gpu)
    common = common_dtype([source, *given])
    converted, casts = to_dtype(source, common, gpu)
    functor = Functor(name="clamp", result=common, arguments=(common,))
    return casts + pointwise(functor, [out], [converted], gpu)


@cost("aten::where")
def where(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Branches of other dtypes are converted first; 0-d tensors on the CPU are brought over (TensorCompare.cpp)."""
    out = op.results[0]
    dtype = result_type([op.tensor("self"), op.tensor("other")])
    kernels: tuple[Kernel, ...] = ()
    sources = []
    for number, (name, wanted) in enumerate((("condition", "bool"), ("self", dtype), ("other", dtype)), start=1):
        source = op.tensor(name)
        if source.dtype != wanted:
            source, casts = to_dtype(source, wanted, gpu, number)
            kernels += casts
        if is_cpu_scalar(source):
            brought = temporary((), wanted, out.device, number)
            kernels += copied(brought, source, gpu)
            source = brought
        sources.append(source)
    functor = Functor(name="where", result=dtype, arguments=("bool", dtype, dtype))
    return kernels + pointwise(functor, [out], sources, gpu)


@cost("aten::masked_fill_")
def masked_fill_(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the tensor and its mask and writes the tensor. A value that is a tensor on the GPU is fetched first."""
    return _fetched(op, gpu) + _masked_fill(op.tensor("self"), op.tensor("mask"), gpu)


@cost("aten::masked_fill")
def masked_fill(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Copies the tensor, then fills in the copy."""
    out = op.results[0]
    return copied(out, op.tensor("self"), gpu) + _fetched(op, gpu) + _masked_fill(out, op.tensor("mask"), gpu)


def _masked_fill(target: TensorRef, mask: TensorRef, gpu: Gpu) -> tuple[Kernel, ...]:
    functor = Functor(name="masked_fill", result=target.dtype, arguments=(target.dtype, "bool"))
    return pointwise(functor, [target], [target, mask], gpu)


def _fetched(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """`value.item()` where the value lies on the GPU."""
    value = op.arg("value")
    if not isinstance(value, TensorRef) or value.device == "cpu":
        return ()
    return inner(op, gpu, "aten::_local_scalar_dense", self=value)


@cost("aten::isnan")
def isnan(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """x != x."""
    source = op.tensor("self")
    functor = Functor(name="ne", result="bool", arguments=(source.dtype, source.dtype))
    return pointwise(functor, op.results, [source, source], gpu)


@cost("aten::isinf")
def isinf(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """|x| == inf, in two kernels; whole numbers are never infinite, and False is filled in."""
    source, out = op.tensor("self"), op.results[0]
    if is_integral(source.dtype):
        return inner(op, gpu, "aten::zero_", out, self=out)
    magnitude = replace(out, dtype=source.dtype, storage=-1)
    return inner(op, gpu, "aten::abs", magnitude, self=source) + inner(
        op, gpu, "aten::eq", out, overload="Scalar", self=magnitude, other="inf"
    )


@cost("aten::tril", "aten::tril_", "aten::triu", "aten::triu_")
def triangle(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """TriangularOps.cu: each thread takes 8 bytes of a row, whose end is padded to that."""
    source, out = op.tensor("self"), op.results[0]
    if not source.elements:
        return ()
    a_thread = max(1, 8 // source.itemsize)
    width = source.shape[-1]
    threads = source.elements // width * -(-width // a_thread)
    launch = Geometry(
        name="triu_tril_kernel", grid=(blocks(threads, 128), 1, 1), block=(128, 1, 1), elements=out.elements
    )
    return moved([launch], [out], [source], Kind.ELEMENTWISE, None)


@cost("aten::polar", "aten::complex")
def complex_of(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """From length and angle (sine, cosine, two products), or from its parts (ComplexKernel.cu)."""
    parts, out = op.inputs[:2], op.results[0]
    name = op.name.removeprefix("aten::")
    functor = Functor(name=name, result=out.dtype, arguments=(parts[0].dtype, parts[1].dtype))
    return pointwise(functor, [out], parts, gpu, flops=4 if name == "polar" else 0)


@cost("aten::equal")
def equal(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """(a == b).all(), and its answer fetched; nothing where the shapes answer already (Equal.cpp)."""
    left, right = op.tensor("self"), op.tensor("other")
    if left.shape != right.shape or not left.elements or same_view(left, right):
        return ()
    same = temporary(left.shape, "bool", left.device)
    answer = temporary((), "bool", left.device, 2)
    return (
        inner(op, gpu, "aten::eq", same, overload="Tensor", self=left, other=right)
        + inner(op, gpu, "aten::all", answer, self=same)
        + inner(op, gpu, "aten::_local_scalar_dense", self=answer)
    )


@cost("aten::_assert_async")
def assert_async(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One thread looks at one element."""
    launch = Geometry(name="_assert_async_cuda_kernel", grid=(1, 1, 1), block=(1, 1, 1), elements=1)
    return moved([launch], [], op.inputs[:1], Kind.ELEMENTWISE, None)
