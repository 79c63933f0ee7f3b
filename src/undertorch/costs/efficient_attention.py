"""Memory-efficient attention: the CUTLASS kernels that PyTorch took over from xFormers.

Geometry: native/transformers/cuda/mem_eff_attention/kernel_forward.h and kernel_backward.h. One block takes 64 queries
of one head (32 with more than 128 features, whose sums go through global memory). Backward: one block takes a strip of
keys; float32 sums of the queries' gradient lie in a workspace that is filled with zeros first. For FLOPs see
attention.py.
"""

from dataclasses import dataclass, replace

from undertorch.costs.attention import BACKWARD_NOTE, FLOAT32, FORWARD_NOTE, Heads, heads_of, inputs_of, neutral
from undertorch.costs.building import ceil_div, inner, pytorch, round_up, temporary, viewed, zeros
from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.registry import cost
from undertorch.costs.units import generation
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

LIBRARY = "xFormers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One compiled kernel: which head sizes it serves, its tile, its block, and what it was recorded with."""

    most_features: int
    name: str
    queries: int
    keys: int
    block: tuple[int, int, int]
    registers: int | None
    shared: int | None


FORWARD = (
    Shape(most_features=64, name="64x64_rf", queries=64, keys=64, block=(32, 4, 1), registers=128, shared=18944),
    Shape(most_features=128, name="64x128_rf", queries=64, keys=128, block=(32, 8, 1), registers=128, shared=52224),
    Shape(most_features=65536, name="32x128_gmem", queries=32, keys=128, block=(32, 4, 1), registers=122, shared=51200),
)
BACKWARD = (
    Shape(most_features=64, name="64x64_k64", queries=64, keys=64, block=(128, 1, 1), registers=162, shared=42240),
    Shape(
        most_features=128, name="128x128_k128", queries=128, keys=128, block=(512, 1, 1), registers=128, shared=133632
    ),
    Shape(most_features=128, name="64x64_k128", queries=64, keys=64, block=(128, 1, 1), registers=None, shared=None),
    Shape(
        most_features=65536, name="128x64_k65536", queries=128, keys=64, block=(256, 1, 1), registers=151, shared=60928
    ),
)
"""Those that half types take on sm80 and newer, with the resources that the H200 recorded: the first that is made for
as many features and whose shared memory a block can have (attention_backward.cu). The H200 does not need 64x64_k128."""

SPLITS_OF_A_GPU = 200
"""With sums in global memory, blocks that the strips of keys may make together (kernel_backward.h)."""

TILE_LOCK = 16
"""Bytes for each tile of the queries' gradient: lock and counter that put its strips in turn, padded."""


@cost("aten::_scaled_dot_product_efficient_attention")
def efficient_attention(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads query, key, value and bias; writes the output and, for a backward, the logarithm of each row's sum."""
    sizes = heads_of(op, gpu)
    if sizes.rows == 0:
        return ()
    if generation(gpu) is None:
        written = sum(tensor.bytes for tensor in op.results[:2])
        return (neutral(sizes, gpu, least_bytes(inputs_of(op)), written, sizes.forward_flops, LIBRARY),)
    shape = _shape(FORWARD, sizes, gpu, max(sizes.features, sizes.value_features))
    return (
        pytorch(
            f"fmha_cutlassF_{_short(sizes)}_aligned_{shape.name}_{_architecture(gpu)}",
            Kind.ATTENTION,
            (ceil_div(sizes.queries, shape.queries), sizes.heads, sizes.batch),
            shape.block,
            read=least_bytes(inputs_of(op)),
            written=sum(tensor.bytes for tensor in op.results[:2]),
            flops=sizes.forward_flops,
            math=sizes.math,
            registers=shape.registers,
            shared=shape.shared,
            note=FORWARD_NOTE,
            library=LIBRARY,
        ),
    )


@cost("aten::_scaled_dot_product_efficient_attention_backward")
def efficient_attention_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the inputs, the output, its gradient and the rows' sums; writes the gradients."""
    sizes = heads_of(op, gpu)
    if sizes.rows == 0:
        return ()
    if generation(gpu) is None:
        read = least_bytes(inputs_of(op)) + op.tensor_bytes("grad_out_", "out", "logsumexp")
        written = sum(tensor.bytes for tensor in op.results)
        return (neutral(sizes, gpu, read, written, sizes.backward_flops, LIBRARY),)
    shape = _shape(BACKWARD, sizes, gpu, max(sizes.features, sizes.value_features))
    in_registers = sizes.features <= 128
    strips = ceil_div(sizes.keys, shape.keys)
    if not in_registers:
        strips = min(strips, max(1, SPLITS_OF_A_GPU // (sizes.batch * sizes.heads)))
    workspace = _workspace(sizes, shape, strips, in_registers)
    scratch = temporary((workspace,), "uint8", op.tensor("query").device, 2)
    aligned = sizes.queries % shape.queries == 0 and sizes.keys % shape.keys == 0
    name = f"{shape.name}{'_seqaligned' if aligned and in_registers else ''}"
    grad, output = op.tensor("grad_out_"), op.tensor("out")
    return (
        *_laid_out(op, gpu, grad),
        # A single strip writes before it reads.
        *(zeros(op, gpu, scratch) if strips > 1 else ()),
        pytorch(
            f"fmha_cutlassB_{_short(sizes)}_aligned_{name}_{_architecture(gpu)}",
            Kind.ATTENTION,
            (strips, sizes.heads, sizes.batch),
            shape.block,
            read=least_bytes(inputs_of(op)) + grad.bytes + output.bytes + op.tensor("logsumexp").bytes + workspace,
            written=sum(tensor.bytes for tensor in op.results) + workspace,
            flops=sizes.backward_flops + 2 * sizes.rows * sizes.value_features,
            math=sizes.math,
            registers=shape.registers if aligned or not in_registers else None,
            shared=shape.shared,
            note=BACKWARD_NOTE,
            library=LIBRARY,
        ),
    )


def _workspace(sizes: Heads, shape: Shape, strips: int, in_registers: bool) -> int:
    """Bytes of float32 sums and of tiles' locks, over all heads (kernel_backward.h).

    Those of the queries' gradient always; of keys and values where they do not fit registers.
    """
    tiles = ceil_div(sizes.queries, shape.queries) * ceil_div(sizes.features, shape.keys)
    each = tiles * (TILE_LOCK + shape.queries * shape.keys * FLOAT32)
    if not in_registers:
        for features in (sizes.features, sizes.value_features):
            each += strips * shape.keys * round_up(features, shape.queries) * FLOAT32
    return sizes.batch * sizes.heads * each


def _laid_out(op: Op, gpu: Gpu, grad: TensorRef) -> tuple[Kernel, ...]:
    """The gradient is put as batch × length × heads × features, where it does not lie so."""
    batch, heads, length, features = grad.shape
    steps = grad.strides
    turned = viewed(grad, (batch, length, heads, features), (steps[0], steps[2], steps[1], steps[3]))
    if turned.contiguous:
        return ()
    copy = temporary(turned.shape, turned.dtype, turned.device, 1)
    return inner(op, gpu, "aten::clone", copy, self=turned, memory_format="contiguous_format")


def _shape(shapes: tuple[Shape, ...], sizes: Heads, gpu: Gpu, features: int) -> Shape:
    """What was recorded holds for half types on sm80's build; other builds' resources are not known."""
    shape = next(
        shape
        for shape in shapes
        if features <= shape.most_features and (shape.shared is None or shape.shared <= gpu.shared_per_block_optin)
    )
    known = sizes.dtype in ("float16", "bfloat16") and _architecture(gpu) == "sm80"
    return shape if known else replace(shape, registers=None, shared=None)


def _short(sizes: Heads) -> str:
    return {"bfloat16": "bf16", "float16": "f16"}.get(sizes.dtype, "f32")


def _architecture(gpu: Gpu) -> str:
    """The newest that the kernels are compiled for and the GPU runs."""
    major, minor = gpu.compute_capability or (8, 0)
    if major >= 8:
        return "sm80"
    return "sm75" if (major, minor) >= (7, 5) else "sm70"
