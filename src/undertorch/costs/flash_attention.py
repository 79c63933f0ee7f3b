"""Flash attention as PyTorch builds it. Geometry: its copy of flash-attention 2 (flash_api.cpp and the launch templates
of third_party/flash-attention, 2.7), which torch 2.11 compiles for sm80 and newer.

One block takes a tile of queries of one head. Where that fills less than four fifths of the GPU, the keys are split
over several blocks whose results a second kernel combines. For FLOPs see attention.py.
"""

from dataclasses import dataclass, replace
from math import ceil

from undertorch.costs.attention import (
    BACKWARD_NOTE,
    FLOAT32,
    FORWARD_NOTE,
    Heads,
    converted_sums,
    dot_products,
    heads_of,
    inputs_of,
    main_backward_bytes,
    neutral,
    runs_fused,
)
from undertorch.costs.building import ceil_div, inner, pytorch, round_up, temporary, viewed
from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.registry import cost
from undertorch.records import DTYPE_BYTES, Gpu, Kernel, Kind, Math, Op, TensorRef

LIBRARY = "flash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Queries and keys of a tile, and the warps that work on it."""

    queries: int
    keys: int
    warps: int


FORWARD_TILES = {  # by head size, rounded up to a multiple of 32: without dropout, with it
    32: (Tile(queries=128, keys=128, warps=4), Tile(queries=128, keys=128, warps=4)),
    64: (Tile(queries=128, keys=128, warps=4), Tile(queries=128, keys=64, warps=4)),
    96: (Tile(queries=128, keys=64, warps=4), Tile(queries=128, keys=64, warps=4)),
    128: (Tile(queries=128, keys=64, warps=4), Tile(queries=128, keys=32, warps=4)),
    160: (Tile(queries=128, keys=32, warps=4), Tile(queries=128, keys=32, warps=4)),
    192: (Tile(queries=128, keys=64, warps=8), Tile(queries=64, keys=64, warps=4)),
    224: (Tile(queries=128, keys=64, warps=8), Tile(queries=128, keys=64, warps=8)),
    256: (Tile(queries=64, keys=64, warps=4), Tile(queries=64, keys=64, warps=4)),
}
"""flash_fwd_launch_template.h, for compute capability 9.0; `_forward_tile` has what others take instead."""

SQUARE = Tile(queries=64, keys=64, warps=4)
LARGE = Tile(queries=128, keys=64, warps=8)
FEW_KEYS = Tile(queries=128, keys=32, warps=4)

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardTile(Tile):
    """A tile of the backward, and how it saves shared memory."""

    least_shared: int = 0
    """Bytes that a block must be able to have for it to be taken."""
    values_in_registers: bool = False
    single_buffer: bool = False
    """Queries and gradients are loaded without a second buffer."""

    def shared(self, features: int, element: int) -> int:
        """Bytes of shared memory (kernel_traits.h, kSmemSize1colblock).

        Queries, gradients and (second buffer) queries again; keys and values; the scores and their gradient, which
        take the values' place where those are held in registers.
        """
        queries = self.queries * features * (2 if self.single_buffer else 3)
        keys = self.keys * features * 2
        scores = self.queries * self.keys * 2
        rest = max(keys, keys // 2 + scores) if self.values_in_registers else keys + scores
        return (queries + rest) * element


def _backward(
    queries: int, keys: int, least_kib: int = 0, *, in_registers: bool = False, single: bool = False
) -> BackwardTile:
    return BackwardTile(
        queries=queries,
        keys=keys,
        warps=8,
        least_shared=least_kib * KIB,
        values_in_registers=in_registers,
        single_buffer=single,
    )


BACKWARD_TILES = {  # by head size; the first that the GPU has the shared memory for
    32: (_backward(128, 128, 104), _backward(128, 128, in_registers=True)),
    64: (_backward(128, 128, 144), _backward(64, 128, in_registers=True)),
    96: (_backward(64, 128, 116), _backward(64, 128, in_registers=True)),
    128: (_backward(64, 128, 144), _backward(64, 64, in_registers=True)),
    160: (_backward(64, 64, 116), _backward(64, 64, single=True)),
    192: (_backward(64, 64, 136), _backward(64, 64, in_registers=True, single=True)),
    224: (
        _backward(64, 64, 176),
        _backward(64, 64, 144, single=True),
        _backward(64, 32, in_registers=True, single=True),
    ),
    256: (
        _backward(64, 64, 176),
        _backward(64, 64, 144, single=True),
        _backward(64, 32, in_registers=True, single=True),
    ),
}
"""flash_bwd_launch_template.h. Shared memory above 99 KB is what tells A100, H100 and B200 from other GPUs."""

VALUES_IN_REGISTERS = (32, 96)
"""Head sizes whose values stay in registers unless there is dropout, for which registers are short."""

SPLIT_QUERIES = 64
"""Queries of a tile whose keys are split."""

MOST_SPLITS = 128
FULL_ENOUGH, GOOD_ENOUGH = 0.8, 0.85
"""num_splits_heuristic: blocks of two per SM above which nothing is split; efficiency, of the best, that suffices."""

DOT_REGISTERS = {64: 44, 128: 50, 256: 88}
CONVERT_REGISTERS = {64: 48, 128: 48, 256: 80}
"""Registers by head size, recorded on the H200."""


@cost("aten::_scaled_dot_product_flash_attention")
def flash_attention(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads query, key, value; writes the output and the logarithm of each row's sum."""
    sizes = heads_of(op, gpu)
    if sizes.rows == 0:
        return ()
    read, written = least_bytes(inputs_of(op)), sum(tensor.bytes for tensor in op.results[:2])
    if not runs_fused(gpu):
        return (neutral(sizes, gpu, read, written, sizes.forward_flops, LIBRARY),)
    dropout = op.arg("dropout_p") not in (0, 0.0)
    splits = 1 if dropout else _splits(sizes, gpu)
    if splits > 1:
        return _split(sizes, splits, read, written)
    tile = _forward_tile(sizes, gpu, dropout=dropout)
    features = _rounded(sizes.features)
    element = DTYPE_BYTES[sizes.dtype]
    return (
        pytorch(
            "flash_fwd_kernel",
            Kind.ATTENTION,
            (ceil_div(sizes.queries, tile.queries), sizes.batch, sizes.heads),
            tile.warps * gpu.warp_size,
            read=read,
            written=written,
            flops=sizes.forward_flops,
            math=sizes.math,
            registers=254 if features == 256 and not sizes.causal else 255,
            shared=(tile.queries + 2 * tile.keys) * features * element,
            note=FORWARD_NOTE,
            library=LIBRARY,
        ),
    )


@cost("aten::_scaled_dot_product_flash_attention_backward")
def flash_attention_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Works on batch × length × heads × features: an output or gradient that lies otherwise is copied first."""
    sizes = heads_of(op, gpu)
    if sizes.rows == 0:
        return ()
    read, written = main_backward_bytes(op, sizes)
    if not runs_fused(gpu):
        return (neutral(sizes, gpu, read, written, sizes.backward_flops, LIBRARY),)
    features, element = _rounded(sizes.features), DTYPE_BYTES[sizes.dtype]
    tile = _backward_tile(op, features, gpu)
    threads = tile.warps * gpu.warp_size
    in_queries = (ceil_div(sizes.queries, tile.queries), sizes.batch)
    kernels = _laid_out(op, gpu, "grad_out", 1) + _laid_out(op, gpu, "out", 2)
    kernels += (
        _flash(
            dot_products(op, sizes, "flash_bwd_dot_do_o_kernel", in_queries, threads, DOT_REGISTERS.get(sizes.features))
        ),
        pytorch(
            "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel",
            Kind.ATTENTION,
            (ceil_div(sizes.keys, tile.keys), sizes.batch, sizes.heads),
            threads,
            read=read,
            written=written,
            flops=sizes.backward_flops,
            math=sizes.math,
            registers=255,
            shared=tile.shared(features, element),
            note=BACKWARD_NOTE,
            library=LIBRARY,
        ),
        _flash(
            converted_sums(
                op,
                sizes,
                "flash_bwd_convert_dq_kernel",
                in_queries,
                threads,
                CONVERT_REGISTERS.get(sizes.features),
                # A tile of the gradient (kernel_traits.h, kSmemdQSize).
                tile.queries * features * element,
            )
        ),
    )
    return kernels + _shared_heads(op, gpu, sizes)


def _forward_tile(sizes: Heads, gpu: Gpu, *, dropout: bool) -> Tile:
    features = _rounded(sizes.features)
    small = gpu.compute_capability is not None and (8, 0) < gpu.compute_capability < (9, 0)
    if small and features == 96 and sizes.causal:
        return SQUARE
    if small and features == 128 and not dropout:
        return SQUARE if sizes.causal else FEW_KEYS
    if features == 224 and gpu.shared_per_block_optin < 2 * features * (128 + 2 * 64):
        return SQUARE
    if features == 256:
        # Two blocks of 64 queries an SM are better than one of 128, where they fit.
        fits, two = gpu.shared_per_block_optin >= 2 * features * (128 + 2 * 64), 4 * features * (64 + 2 * 64)
        return LARGE if fits and gpu.shared_per_sm < two else SQUARE
    return FORWARD_TILES[features][dropout]


def _backward_tile(op: Op, features: int, gpu: Gpu) -> BackwardTile:
    tile = next(tile for tile in BACKWARD_TILES[features] if gpu.shared_per_block_optin >= tile.least_shared)
    if features in VALUES_IN_REGISTERS and op.arg("dropout_p") in (0, 0.0):
        return replace(tile, values_in_registers=True)
    return tile


def _split(sizes: Heads, splits: int, read: int, written: int) -> tuple[Kernel, ...]:
    """Partial outputs in float32, one a split, then their combination."""
    features = _rounded(sizes.features)
    keys = _split_keys(sizes)
    partial = splits * sizes.rows * (features + 1) * 4
    rows_a_block = 4 if features % 128 == 0 else 8 if features % 64 == 0 else 16
    return (
        pytorch(
            "flash_fwd_splitkv_kernel",
            Kind.ATTENTION,
            (ceil_div(sizes.queries, SPLIT_QUERIES), splits, sizes.batch * sizes.heads),
            128,
            read=read,
            written=partial,
            flops=sizes.forward_flops,
            math=sizes.math,
            registers=255,
            shared=(SPLIT_QUERIES + 2 * keys) * features * DTYPE_BYTES[sizes.dtype],
            note=FORWARD_NOTE,
            library=LIBRARY,
        ),
        pytorch(
            "flash_fwd_splitkv_combine_kernel",
            Kind.ATTENTION,
            ceil_div(sizes.rows, rows_a_block),
            128,
            read=partial,
            written=written,
            flops=2 * splits * sizes.rows * sizes.value_features,
            math=Math.FP32,
            registers=54,
            # Each row's logarithm from up to a power of two of splits, padded by a row.
            shared=round_up((1 << (splits - 1).bit_length()) * (rows_a_block + 1) * FLOAT32, 16),
            library=LIBRARY,
        ),
    )


def _splits(sizes: Heads, gpu: Gpu) -> int:
    """num_splits_heuristic of flash_api.cpp: the fewest splits whose waves are nearly as full as the best's."""
    slots = 2 * gpu.sms
    blocks = sizes.batch * sizes.heads * ceil_div(sizes.queries, SPLIT_QUERIES)
    if blocks >= FULL_ENOUGH * slots:
        return 1
    tiles = ceil_div(sizes.keys, _split_keys(sizes))
    counts = [
        count
        for count in range(1, min(MOST_SPLITS, slots, tiles) + 1)
        if count == 1 or ceil_div(tiles, count) != ceil_div(tiles, count - 1)
    ]
    efficiency = {count: (blocks * count / slots) / ceil(blocks * count / slots) for count in counts}
    best = max(efficiency.values())
    return next(count for count in counts if efficiency[count] >= GOOD_ENOUGH * best)


def _split_keys(sizes: Heads) -> int:
    return 256 if sizes.features <= 64 else 128 if sizes.features <= 128 else 64


def _laid_out(op: Op, gpu: Gpu, name: str, number: int) -> tuple[Kernel, ...]:
    """The copy that puts heads after length, where the tensor does not lie so."""
    tensor = op.tensor(name)
    turned = _turned(tensor)
    if turned.contiguous:
        return ()
    copy = temporary(turned.shape, turned.dtype, turned.device, number)
    return inner(op, gpu, "aten::clone", copy, self=turned, memory_format="contiguous_format")


def _turned(tensor: TensorRef) -> TensorRef:
    """The view with heads and length exchanged."""
    batch, heads, length, features = tensor.shape
    steps = tensor.strides
    return viewed(tensor, (batch, length, heads, features), (steps[0], steps[2], steps[1], steps[3]))


def _shared_heads(op: Op, gpu: Gpu, sizes: Heads) -> tuple[Kernel, ...]:
    """Keys with fewer heads: their gradients are made for every query's head, then added up."""
    if sizes.key_heads == sizes.heads:
        return ()
    shape = (sizes.batch, sizes.keys, sizes.key_heads, sizes.heads // sizes.key_heads, sizes.features)
    expanded = temporary(shape, sizes.dtype, op.tensor("key").device, 3)
    result = temporary((*shape[:3], sizes.features), sizes.dtype, expanded.device, 4)
    return 2 * inner(
        op, gpu, "aten::sum", result, overload="dim_IntList", self=expanded, dim=(3,), keepdim=False, dtype=None
    )


def _rounded(features: int) -> int:
    """Head sizes are compiled in steps of 32."""
    return min(256, ceil_div(features, 32) * 32)


def _flash(kernel: Kernel) -> Kernel:
    return replace(kernel, library=LIBRARY)
