"""Element-by-element Ops as rules: which arguments a kernel reads, in which dtypes it is compiled, what it computes."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from undertorch.costs.dtypes import COMPLEX, DEFAULT_FLOAT, is_integral, real, result_type
from undertorch.costs.geometry.loops import Functor
from undertorch.costs.pointwise import pointwise
from undertorch.costs.registry import Cost, cost
from undertorch.records import Gpu, Kernel, Op, TensorRef, Value


class Types(Enum):
    """How an Op's dtypes follow from its inputs' (the configurations in ATen/TensorIterator.cpp)."""

    COMMON = auto()
    """Everything in the inputs' common dtype."""
    FLOAT = auto()
    """The same; whole numbers become the default float."""
    PREDICATE = auto()
    """Arguments in the common dtype, the result bool."""
    MAGNITUDE = auto()
    """Everything in the common dtype, but the result of complex numbers is real."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One Op, and its in-place twin where there is one."""

    name: str
    """Without `aten::`."""
    inputs: tuple[str, ...]
    """Arguments that are tensors of the iterator, in the kernel's order. A number, or a 0-d tensor on the CPU, becomes
    part of the functor and is read by nobody."""
    flops: int = 0
    """A result: additions, multiplications, divisions, special functions (of complex numbers too). Comparisons, signs
    and choices are none of these."""
    types: Types = Types.COMMON
    functor: str | None = None
    """As the kernel is named; None: as the Op."""
    jitted: bool = False
    """Whether torch compiles it when it is first called (jiterator)."""
    complex_functor: str | None = None
    """The functor that it compiles then for complex numbers, where those have one of their own."""


def register(rules: Iterable[Rule], *, in_place: bool = True) -> None:
    """Registers each rule as the cost of its Op and, unless told otherwise, of the in-place one."""
    for rule in rules:
        cost(*(f"aten::{rule.name}{suffix}" for suffix in (("", "_") if in_place else ("",))))(_cost_of(rule))


def kernels_of(rule: Rule, op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The kernels of an Op by its rule. Its first output is the one written."""
    values = [value for value in (argument(op, name) for name in rule.inputs) if value is not None]
    tensors = [value for value in values if isinstance(value, TensorRef) and not is_cpu_scalar(value)]
    common = common_dtype(values, rule.types)
    result = {Types.PREDICATE: "bool", Types.MAGNITUDE: real(common)}.get(rule.types, common)
    name = rule.functor or rule.name
    if len(tensors) < len(rule.inputs) == 2:
        # With one of two arguments in the functor, it is another kernel.
        name = f"{name}_scalar"
    compiled = rule.complex_functor if common in COMPLEX else None
    functor = Functor(name=compiled or name, result=result, arguments=(common,) * len(tensors))
    jitted = rule.jitted or compiled is not None
    return pointwise(functor, op.results[:1], tensors, gpu, flops=rule.flops, jitted=jitted)


def common_dtype(values: Iterable[Value], types: Types = Types.COMMON) -> str:
    """The dtype that the inputs are computed in."""
    dtype = result_type(value for value in values if not isinstance(value, tuple))
    return DEFAULT_FLOAT if types is Types.FLOAT and is_integral(dtype) else dtype


def argument(op: Op, name: str) -> Value:
    """An argument's value; None where the Op has none of that name, as `None` itself."""
    return next((given.value for given in op.arguments if given.name == name), None)


def is_cpu_scalar(tensor: TensorRef) -> bool:
    """Whether it is a number in a tensor's clothes, which kernels take as a parameter."""
    return tensor.device == "cpu" and tensor.shape == ()


def _cost_of(rule: Rule) -> Cost:
    return lambda op, gpu: kernels_of(rule, op, gpu)
