"""Triton kernels of the gated activations, act(gate) * up, and both gradients; and the activations themselves, for
linear_act_kernels.py. All arithmetic is float32.
"""

# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
ROOT_HALF: tl.constexpr = tl.constexpr(0.7071067811865476)
"""1 / sqrt(2)."""
ROOT_TWO_OVER_PI: tl.constexpr = tl.constexpr(0.7978845608028654)
NORMAL_DENSITY: tl.constexpr = tl.constexpr(0.3989422804014327)
"""1 / sqrt(2 pi)."""
CUBIC: tl.constexpr = tl.constexpr(0.044715)
"""Of GELU's approximation by tanh (Hendrycks and Gimpel, 2016)."""

SILU: tl.constexpr = tl.constexpr(0)
GELU: tl.constexpr = tl.constexpr(1)
GELU_TANH: tl.constexpr = tl.constexpr(2)
RELU: tl.constexpr = tl.constexpr(3)


@triton.jit
def activated(x, KIND: tl.constexpr):
    """act(x) and its derivative."""
    if KIND == SILU:
        share = 1.0 / (1.0 + tl.exp2(-x * LOG2E))
        value = x * share
        slope = share * (1.0 + x * (1.0 - share))
    elif KIND == GELU:
        share = 0.5 * (1.0 + tl.erf(x * ROOT_HALF))
        value = x * share
        slope = share + x * NORMAL_DENSITY * tl.exp2(x * x * (-0.5 * LOG2E))
    elif KIND == RELU:
        # nan stays nan, and its gradient passes, as torch has it.
        value = tl.where(x <= 0.0, 0.0, x)
        slope = tl.where(x <= 0.0, 0.0, 1.0)
    else:
        # (1 + tanh(u)) / 2 is the logistic function of 2u, and e * share what is left of it to 1: neither has digits to
        # lose where tanh is near -1 or 1. e is held finite, and so is the square beside it: no 0 * infinity arises.
        power = (x + x * x * x * CUBIC) * (ROOT_TWO_OVER_PI * -2.0 * LOG2E)
        e = tl.exp2(tl.minimum(power, 126.0))
        share = tl.where(power > 126.0, 0.0, 1.0 / (1.0 + e))
        value = x * share
        square = tl.minimum(x * x, 1e30)
        slope = share + x * (share * (e * share)) * (1.0 + square * (3.0 * CUBIC)) * (2.0 * ROOT_TWO_OVER_PI)
    return value, slope


@triton.jit
def gated_forward(gate, up, y, pieces, width, gate_stride, up_stride, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """A block takes a piece of a row."""
    block = tl.program_id(0)
    row = (block // pieces).to(tl.int64)
    column = (block % pieces).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    value, _ = activated(tl.load(gate + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32), KIND)
    value *= tl.load(up + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * width + column, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def gated_backward(
    dy, gate, up, dgate, dup, pieces, width, dy_stride, gate_stride, up_stride,
    NEED_GATE: tl.constexpr, NEED_UP: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The activation is computed again: to keep it would cost as many bytes as to read its input."""
    block = tl.program_id(0)
    row = (block // pieces).to(tl.int64)
    column = (block % pieces).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    given = tl.load(dy + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
    value, slope = activated(tl.load(gate + row * gate_stride + column, mask=inside, other=0.0).to(tl.float32), KIND)
    if NEED_GATE:
        factor = tl.load(up + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
        result = given * factor * slope
        tl.store(dgate + row * width + column, result.to(dgate.dtype.element_ty), mask=inside)
    if NEED_UP:
        tl.store(dup + row * width + column, (given * value).to(dup.dtype.element_ty), mask=inside)
