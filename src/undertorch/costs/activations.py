"""Activations and their gradients (ATen/native/cuda/Activation*.cu, BinaryMiscBackwardOpsKernels.cu)."""

from undertorch.costs.geometry.loops import Functor, Geometry, blocks
from undertorch.costs.geometry.tensor_iterator import in_32_bits, tensor_iterator
from undertorch.costs.pointwise import moved, pointwise
from undertorch.costs.registry import cost
from undertorch.costs.rules import Rule, argument, kernels_of, register
from undertorch.costs.view_gradients import sliced
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

GELU_FLOPS = {"none": 5, "tanh": 9}
"""x/2 · (1 + erf(x/√2)); x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
GELU_BACKWARD_FLOPS = {"none": 11, "tanh": 18}
GLU_BACKWARD_THREADS = 256
"""launch_glu_backward_kernel, one element of the gradient a thread."""

register(
    Rule(name=name, inputs=("self",), flops=flops, functor=functor)
    for name, functor, flops in (
        ("celu", "elu", 3),
        ("elu", "elu", 3),  # expm1, two scales
        ("hardshrink", "hardshrink", 0),
        ("hardsigmoid", "hardsigmoid", 2),
        ("hardswish", "hardswish", 3),
        ("hardtanh", "clamp", 0),
        ("leaky_relu", "leaky_relu", 1),
        ("log_sigmoid_forward", "log_sigmoid_forward", 3),  # exponential, log1p, subtract
        ("mish", "mish", 4),  # x · tanh(log1p(exp(x)))
        ("relu", "clamp", 0),
        ("relu6", "clamp", 0),
        ("selu", "elu", 3),
        ("silu", "silu", 3),  # x / (1 + exp(-x))
        ("softplus", "softplus", 4),
        ("softshrink", "softshrink", 1),
        ("threshold", "threshold", 0),
    )
)

register(
    (
        Rule(name=f"{name}_backward", inputs=inputs, flops=flops, functor=functor)
        for name, inputs, functor, flops in (
            ("elu", ("grad_output", "self_or_result"), "elu_backward", 4),
            ("hardshrink", ("grad_out", "self"), "shrink_backward", 0),
            ("hardsigmoid", ("grad_output", "self"), "hardsigmoid_backward", 1),
            ("hardswish", ("grad_output", "self"), "hardswish_backward", 3),
            ("hardtanh", ("grad_output", "self"), "hardtanh_backward", 0),
            ("leaky_relu", ("grad_output", "self"), "leaky_relu_backward", 1),
            ("log_sigmoid", ("self", "grad_output"), "log_sigmoid_backward", 4),
            ("logit", ("grad_output", "self"), "logit_backward", 3),
            ("mish", ("grad_output", "self"), "mish_backward", 12),
            ("sigmoid", ("grad_output", "output"), "sigmoid_backward", 3),
            ("silu", ("grad_output", "self"), "silu_backward", 8),
            ("softplus", ("grad_output", "self"), "softplus_backward", 5),
            ("softshrink", ("grad_output", "self"), "shrink_backward", 0),
            ("tanh", ("grad_output", "output"), "tanh_backward", 3),
            ("threshold", ("grad_output", "self"), "threshold", 0),
        )
    ),
    in_place=False,
)

register([Rule(name="_prelu_kernel", inputs=("self", "weight"), flops=1, functor="prelu")], in_place=False)


@cost("aten::gelu", "aten::gelu_")
def gelu(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Exact, or by the hyperbolic tangent."""
    return kernels_of(Rule(name="gelu", inputs=("self",), flops=GELU_FLOPS[_approximation(op)]), op, gpu)


@cost("aten::gelu_backward")
def gelu_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Gradient times the derivative, made anew from the input."""
    flops = GELU_BACKWARD_FLOPS[_approximation(op)]
    return kernels_of(Rule(name="gelu_backward", inputs=("grad_output", "self"), flops=flops), op, gpu)


@cost("aten::glu")
def glu(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """a · sigmoid(b), of the two halves of the input."""
    first, second = _halves(op.tensor("self"), argument(op, "dim"))
    functor = Functor(name="glu", result=first.dtype, arguments=(first.dtype, first.dtype))
    return pointwise(functor, op.results, [first, second], gpu, flops=4)


@cost("aten::glu_backward")
def glu_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads both halves and the gradient, writes both halves of the result."""
    source, gradient, result = op.tensor("self"), op.tensor("grad_output"), op.results[0]
    if not gradient.elements:
        return ()
    halves = [_halves(tensor, argument(op, "dim"))[0] for tensor in (result, source)]
    launches = [
        Geometry(
            name="glu_backward_kernel",
            grid=(blocks(part.elements, GLU_BACKWARD_THREADS), 1, 1),
            block=(GLU_BACKWARD_THREADS, 1, 1),
            elements=part.elements,
        )
        for part in in_32_bits(tensor_iterator(halves[:1], [halves[1], gradient]))
    ]
    return moved(launches, [result], [source, gradient], Kind.ELEMENTWISE, source.dtype, flops=8)


@cost("aten::_prelu_kernel_backward")
def prelu_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The gradients of input and weight, element by element."""
    inputs = [op.tensor(name) for name in ("self", "weight", "grad_output")]
    dtype = inputs[0].dtype
    functor = Functor(name="prelu_backward", result=dtype, arguments=(dtype,) * 3)
    return pointwise(functor, op.results, inputs, gpu, flops=2)


def _approximation(op: Op) -> str:
    return "tanh" if argument(op, "approximate") == "tanh" else "none"


def _halves(tensor: TensorRef, dim: object) -> tuple[TensorRef, TensorRef]:
    dimension = dim if isinstance(dim, int) else -1
    size = tensor.shape[dimension]
    return sliced(tensor, dimension, 0, size // 2, 1), sliced(tensor, dimension, size // 2, size, 1)
