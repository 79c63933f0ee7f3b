"""Scaled dot-product attention: its FLOPs, and cuDNN's kernels. Flash and memory-efficient have files of their own.

FLOPs are those of the matrix products over the pairs of query and key that the mask leaves: of a causal mask row i
keeps the first i + 1 keys, so that T queries and keys have T(T + 1)/2 pairs a head, exactly. (Papers often write T²/2;
the kernels also work off the masked half of the tiles on the diagonal.) Forward: 2 products, 2 FLOPs a pair and feature
each. Backward: 5 products, the scores computed again among them: 2.5 times the forward. The softmax is not counted.

cuDNN is closed. What is predicted of it was recorded on an H200 with cuDNN 9.19: a counter is set, then resident
blocks take tiles of 128 queries in turn. Backward: the dot products of gradient and output (a launch that also clears
the float32 sums of the queries' gradient), the main kernel, the conversion of those sums.
"""

from dataclasses import dataclass, replace

from undertorch.costs.building import ceil_div, memset, pytorch
from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.registry import cost
from undertorch.costs.units import available, generation
from undertorch.records import DTYPE_BYTES, Dim3, Gpu, Kernel, Kind, Math, Op, Origin, TensorRef

FLOAT32 = DTYPE_BYTES["float32"]

FORWARD_NOTE = "FLOPs: two products over the pairs that the mask leaves."
BACKWARD_NOTE = "FLOPs: five products over the pairs that the mask leaves, the scores computed again among them."

CUDNN_TILE = 128
"""Queries, and keys, of a tile: two warp groups of 64 queries (recorded: 16 heads of 333 queries make 48 tiles)."""

CUDNN_FEATURES = (64, 128, 192, 256)
"""Of a head, as they are worked off: 40 take as long as 64 (the names of recorded kernels have 64, 128 and 192 for 40,
80 and 160)."""

CUDNN_KEYS = {64: 128, 128: 128, 192: 32, 256: 32}
"""By those: keys of the tiles that the backward's blocks take in turn. Of 77 keys in 128 heads 128 blocks are launched,
of 64 keys and 192 features as many as there are SMs."""

REDUCED_ROWS = 16
"""Keys of a block that adds up the gradients of several query heads (recorded: of 4096 keys 256 blocks)."""

CUDNN_THREADS = 384
"""One warp group that loads, two that compute."""

CUDNN_SHARED = {"fprop": {64: 134144, 128: 232448}, "bprop": {64: 152576, 128: 216064}}
"""Bytes of shared memory by features as they are worked off, recorded."""

DOT_ELEMENTS = 1024
"""Elements of whole rows that a block of 128 threads multiplies: 16 rows of 64 features, 8 of 128 (recorded)."""

CONVERTED_ELEMENTS = 2048
"""The same, of the block that converts the sums."""

CUDNN_NAMES = {
    "fprop": "knob_7_64x128x{}_4x1x1_cga1x1x1_kernel0_0",
    "bprop": "knob_26_64x64x{}_1x4x1_cga1x1x1_kernel0_0",
}
"""What follows in Hopper's kernel names; the head size stands in the gap."""


MATH = {"bfloat16": Math.TENSOR_BF16, "float16": Math.TENSOR_FP16, "float64": Math.FP64}

HOPPER, AMPERE = 9, 8
CUDNN_BUILDS = {8: "sm80", 9: "sm90", 10: "sm100", 12: "sm80"}
"""By major compute capability; consumer Blackwell lacks the instructions of 9 and 10 and runs Ampere's kernels."""

NEUTRAL_QUERIES, NEUTRAL_THREADS = 128, 256
NEUTRAL_NOTE = (
    "The library's own kernels are not known for this GPU, or it has none for it: a guess by its FLOPs and bytes."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The sizes of an attention."""

    batch: int
    heads: int
    """Of the queries; keys may have fewer, each serving several."""
    key_heads: int
    queries: int
    keys: int
    features: int
    value_features: int
    causal: bool
    dtype: str
    math: Math
    """Tensor cores of the dtype, where the GPU has them; float32 inputs are worked off at float32's precision."""

    @property
    def pairs(self) -> int:
        """Pairs of query and key that the mask leaves, over all heads."""
        each = self.queries * self.keys
        if self.causal:
            square = min(self.queries, self.keys)
            each = square * (square + 1) // 2 + max(self.queries - self.keys, 0) * self.keys
        return self.batch * self.heads * each

    @property
    def rows(self) -> int:
        """Queries over all heads."""
        return self.batch * self.heads * self.queries

    @property
    def forward_flops(self) -> int:
        """Scores, and the weighted sum of the values."""
        return 2 * self.pairs * (self.features + self.value_features)

    @property
    def backward_flops(self) -> int:
        """Scores again, the gradients of values and weights, and those of queries and keys."""
        return 2 * self.pairs * (3 * self.features + 2 * self.value_features)


def heads_of(op: Op, gpu: Gpu) -> Heads:
    """Sizes from query, key and value of shape batch × heads × length × features."""
    query, key, value = op.tensor("query"), op.tensor("key"), op.tensor("value")
    return Heads(
        batch=query.shape[0],
        heads=query.shape[1],
        key_heads=key.shape[1],
        queries=query.shape[2],
        keys=key.shape[2],
        features=query.shape[3],
        value_features=value.shape[3],
        causal=op.arg("is_causal") is True,
        dtype=query.dtype,
        math=available(gpu, MATH.get(query.dtype, Math.FP32)),
    )


def inputs_of(op: Op) -> tuple[TensorRef, ...]:
    """Query, key, value, and the bias where there is one."""
    return (op.tensor("query"), op.tensor("key"), op.tensor("value"), *op.tensors("attn_bias"))


@cost("aten::_fused_sdp_choice")
def fused_sdp_choice(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Decides on the CPU which kernel runs."""
    return ()


@cost("aten::_scaled_dot_product_cudnn_attention")
def cudnn_attention(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads query, key, value; writes the output and the logarithm of each row's sum."""
    sizes = heads_of(op, gpu)
    if sizes.rows == 0:
        return ()
    written = sum(tensor.bytes for tensor in op.results[:2])
    if not runs_fused(gpu):
        return (neutral(sizes, gpu, least_bytes(inputs_of(op)), written, sizes.forward_flops, "cuDNN"),)
    kernel = _cudnn(op, sizes, gpu, "fprop", least_bytes(inputs_of(op)), written, sizes.forward_flops, FORWARD_NOTE)
    if not op.arg("dropout_p"):
        return memset(4), kernel
    seeds = pytorch("unpack_cudnn", Kind.RANDOM, 1, 1, read=0, written=2 * 8, flops=0)
    return seeds, memset(4), kernel


@cost("aten::_scaled_dot_product_cudnn_attention_backward")
def cudnn_attention_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the inputs, the output, its gradient and the rows' sums; writes three gradients."""
    sizes = heads_of(op, gpu)
    if sizes.rows == 0:
        return ()
    if not runs_fused(gpu):
        return (neutral(sizes, gpu, *main_backward_bytes(op, sizes), sizes.backward_flops, "cuDNN"),)
    whole = sizes.value_features in (64, 128)
    dots = dot_products(
        op, sizes, "compute_dot_do_o_specialized" if whole else "compute_dot_do_o", _dotted(sizes), 128, 26
    )
    converted = converted_sums(op, sizes, "convert_dq_to_16bits", _converted(sizes), 128, 30)
    reduced = () if sizes.key_heads == sizes.heads else (_reduced_heads(sizes),) * 2
    return (
        memset(4),
        predicted(dots, library="cuDNN"),
        _cudnn(op, sizes, gpu, "bprop", *main_backward_bytes(op, sizes), sizes.backward_flops, BACKWARD_NOTE),
        predicted(converted, library="cuDNN"),
        *reduced,
    )


def dot_products(op: Op, sizes: Heads, name: str, grid: tuple[int, int], block: int, registers: int | None) -> Kernel:
    """Each output row times its gradient; clears the float32 sums of the queries' gradient on the way."""
    output, grad = op.tensor("out"), op.tensor("grad_out")
    return pytorch(
        name,
        Kind.ATTENTION,
        (*grid, sizes.heads),
        block,
        read=output.bytes + grad.bytes,
        written=sizes.rows * FLOAT32 + _query_sums(sizes),
        flops=2 * sizes.rows * sizes.value_features,
        math=Math.FP32,
        registers=registers,
        shared=0,
    )


def converted_sums(
    op: Op, sizes: Heads, name: str, grid: tuple[int, int], block: int, registers: int | None, shared: int = 0
) -> Kernel:
    """The queries' gradient, scaled, from float32 to its own dtype."""
    return pytorch(
        name,
        Kind.ATTENTION,
        (*grid, sizes.heads),
        block,
        read=_query_sums(sizes),
        written=sizes.rows * sizes.features * DTYPE_BYTES[sizes.dtype],
        flops=sizes.rows * sizes.features,
        math=Math.FP32,
        registers=registers,
        shared=shared,
    )


def main_backward_bytes(op: Op, sizes: Heads) -> tuple[int, int]:
    """Read and written by the kernel that makes the gradients: the queries' sums are read and written."""
    grads = op.tensor("grad_out").bytes
    read = least_bytes(inputs_of(op)) + grads + op.tensor("logsumexp").bytes + sizes.rows * FLOAT32
    keys = sizes.batch * sizes.heads * sizes.keys * (sizes.features + sizes.value_features)
    return read + _query_sums(sizes), _query_sums(sizes) + keys * DTYPE_BYTES[sizes.dtype]


def predicted(kernel: Kernel, library: str) -> Kernel:
    """A kernel whose launch geometry no public source defines."""
    return replace(kernel, geometry_origin=Origin.PREDICTED, library=library)


def runs_fused(gpu: Gpu) -> bool:
    """Whether flash-attention 2 and cuDNN have kernels for the GPU: NVIDIA's, since Ampere."""
    major = generation(gpu)
    return major is not None and major >= AMPERE


def neutral(sizes: Heads, gpu: Gpu, read: int, written: int, flops: int, library: str) -> Kernel:
    """One kernel with an attention's FLOPs and bytes, for a GPU whose kernels are not known: of AMD's, AOTriton."""
    kernel = pytorch(
        "attention",
        Kind.ATTENTION,
        (ceil_div(sizes.queries, NEUTRAL_QUERIES), sizes.heads, sizes.batch),
        NEUTRAL_THREADS,
        read=read,
        written=written,
        flops=flops,
        math=sizes.math,
        note=NEUTRAL_NOTE,
    )
    return predicted(kernel, library="AOTriton" if generation(gpu) is None else library)


def _query_sums(sizes: Heads) -> int:
    return sizes.rows * sizes.features * FLOAT32


def _dotted(sizes: Heads) -> tuple[int, int]:
    """Rows of as many features as the next power of two."""
    features = 1 << max(sizes.value_features - 1, 1).bit_length()
    return ceil_div(sizes.queries, max(1, DOT_ELEMENTS // features)), sizes.batch


def _converted(sizes: Heads) -> tuple[int, int]:
    """Rows that fit, half of them where they would be more than the 32 of 64 features (40: recorded)."""
    rows = max(1, CONVERTED_ELEMENTS // max(sizes.features, 1))
    return ceil_div(sizes.queries, rows if rows <= 32 else rows // 2), sizes.batch


def _reduced_heads(sizes: Heads) -> Kernel:
    """The gradient of keys, or of values, over the query heads that share them."""
    size = sizes.batch * sizes.keys * sizes.features * DTYPE_BYTES[sizes.dtype]
    kernel = pytorch(
        "fmha_reduce_head",
        Kind.ATTENTION,
        (ceil_div(sizes.keys, REDUCED_ROWS), sizes.batch, sizes.key_heads),
        128,
        read=size * sizes.heads,
        written=size * sizes.key_heads,
        flops=sizes.batch * sizes.keys * sizes.features * (sizes.heads - sizes.key_heads),
        math=Math.FP32,
    )
    return predicted(kernel, library="cuDNN")


def tiled_pairs(sizes: Heads) -> int:
    """Pairs in the tiles that hold one at least that the mask leaves."""
    tiles = ceil_div(sizes.keys, CUDNN_TILE)
    rows = range(1, ceil_div(sizes.queries, CUDNN_TILE) + 1)
    worked = sum(min(row, tiles) for row in rows) if sizes.causal else len(rows) * tiles
    return sizes.batch * sizes.heads * worked * CUDNN_TILE**2


def _cudnn(op: Op, sizes: Heads, gpu: Gpu, direction: str, read: int, written: int, flops: int, note: str) -> Kernel:
    most = max(sizes.features, sizes.value_features)
    features = next((size for size in CUDNN_FEATURES if size >= most), most)
    major = generation(gpu)
    hopper = major == HOPPER
    tile, length = (CUDNN_TILE, sizes.queries) if direction == "fprop" else (CUDNN_KEYS.get(features, 32), sizes.keys)
    tiles = sizes.batch * sizes.heads * ceil_div(length, tile)
    grid: Dim3 = (min(gpu.sms, tiles) if hopper else tiles, 1, 1)
    build = CUDNN_BUILDS.get(major or AMPERE, "sm80")
    name = f"cudnn_generated_fort_native_sdpa_{build}_flash_{direction}"
    each = 4 if direction == "fprop" else 10
    # Each query head reads its keys and values, which several may share.
    shared = (sizes.heads - sizes.key_heads) * sizes.batch * sizes.keys * (sizes.features + sizes.value_features)
    kernel = pytorch(
        f"{name}_wgmma_f16_{CUDNN_NAMES[direction].format(features)}" if hopper else name,
        Kind.ATTENTION,
        grid,
        CUDNN_THREADS if hopper else 128,
        read=read,
        written=written,
        flops=flops,
        math=sizes.math,
        registers=168 if hopper else None,
        shared=CUDNN_SHARED[direction].get(features) if hopper else None,
        traffic=read + written + shared * DTYPE_BYTES[sizes.dtype] if shared else None,
        note=note,
    )
    done, numbers = each * tiled_pairs(sizes) * features, sizes.pairs if op.arg("dropout_p") else None
    return predicted(replace(kernel, done_flops=done, random_numbers=numbers), library="cuDNN")
