"""Kernels of undertorch's own norms (undertorch/ops), as they are usually cut: here, since costs know no torch.

FLOPs are counted as for torch's (costs/norm.py), forward and backward; the addition of a residual is 1 an element.

What is said of an H200 is of bfloat16, in µs (`benchmarks/row_ways.py`: a call in a CUDA graph of its own, which costs
5 to 10 more than one of many).
"""

from dataclasses import dataclass, replace

from undertorch.costs.building import ceil_div
from undertorch.costs.registry import cost, other_ways
from undertorch.costs.training_ops import (
    FLOAT32,
    SUMMED_COLUMNS,
    SUMMED_WARPS,
    WARP,
    Cut,
    own_kernel,
    padded,
    spread,
)
from undertorch.records import Gpu, Kernel, Kind, Op


@dataclass(frozen=True, slots=True, kw_only=True)
class NormCut(Cut):
    """A row is cut into tiles of so many elements, which stay in registers. `twice`: they do not, and are read again,
    `unroll` in a row of loads; `keep`: the weight stays there. `held`: they lie in shared memory, with the weight, and
    so many `more` of the rows to come.
    """

    tile: int
    tiles: int = 1
    twice: bool = False
    unroll: int = 1
    keep: bool = True
    held: bool = False
    more: int = 0


WIDEST_FORWARD = 32768
"""Widest rows that a block keeps in registers, 64 elements a thread."""

WIDEST_BACKWARD = {False: 32768, True: 16384}
"""Widest rows whose weights' gradients a block sums in registers: of an RMS norm, and of a layer norm, which sums
two."""

WIDE_PIECE, WIDE_WARPS, WIDE_BLOCKS_PER_SM = 8192, 32, 1
"""Elements of a still wider row that a block works on at a time, its warps, and blocks on an SM that walk over the rows
(of the backward): rms_norm 2048 x 131072 takes 381, and 405 to 415 with pieces of 2,048 to 8,192 and 4 to 16 warps."""

WIDEST_NARROW = 8192
"""Widest rows that registers hold well beside the weights' sums."""

HELD_WARPS = 16
HELD = {
    (32768, False, False): (4096, 2),
    (32768, True, False): (4096, 2),
    (16384, False, False): (8192, 2),
    (16384, True, False): (8192, 2),
    (16384, False, True): (4096, 2),
}
"""Of a backward whose rows lie in shared memory: by the power of two that holds a row, whether it is a layer norm's,
and whether the gradient of a sum is added, elements of a tile, which has to divide the row, and tiles of rows to come,
which arrive while one is reduced. In µs, read twice and so: rms_norm 8192 x 32768 501, 414 (447 without more tiles, 625
with the weight read from L1 each time), 8192 x 16384 217, 206, added 308, 294; layer_norm 8192 x 16384 305, 253, 8192 x
32768 793 (by two kernels), 640. It is slower of layer_norm 8192 x 12288 (201, 231), added 8192 x 32768 (680, 711) and
rows of 8,192 (202, 207)."""

DW_ROWS, DW_COLUMNS, DW_WARPS, DW_STAGES, DW_BLOCKS_PER_SM = 8, 512, 4, 3, 4
"""Of the kernel for the weights' gradients of such rows, whose blocks sum some columns of some rows: rms_norm
8192 x 32768 takes 755 with both kernels, and 828 with 8 blocks on an SM and nothing in flight."""

STAGE_ROOM = 1024
"""Bytes of shared memory beside rows in flight: what sums over a row need."""


def tiling(width: int) -> tuple[int, int]:
    """Elements of a tile, a power of two of at most 8,192, and tiles of a row: as few as leave less than an eighth of
    the next power of two without a column. Rows of up to 512 are one tile.
    """
    block = padded(width)
    if block < 1024:
        return block, 1
    columns = ceil_div(width, block // 8) * (block // 8)
    tile = min(columns & -columns, 8192)
    return tile, columns // tile


def forward_cut(width: int, rows: int, sms: int, *, centred: bool, residual: bool) -> NormCut:
    """Of the forward.

    One tile: 16 elements a thread; 32 of a layer norm and of rows beyond 4,096 (layer_norm 16384 x 8192: 138, with 16
    152); 8 where 8,192 are added to others first (add_rms_norm: 265, with 32 270). A layer norm's of 8,192 alone are
    four tiles, whose conversions take turns in fewer registers, so that a block more fits on an SM (132, in one 139).
    More: 64 a thread, and no row with less than a warp (layer_norm 8192 x 12288: 105, in one tile 136; 32768 x 768: 29,
    in one tile 33 to 38; rms_norm 8192 x 5120: 44, in one tile 47); 32 of rows of 16,384. Twice: rows of an RMS norm
    that nothing is added to, of about 8,192 (16384 x 8192: 138, in registers 142) and beyond 16,384 (8192 x 32768: 260,
    in registers 271, in shared memory 282), and those wider than registers hold.
    """
    block = padded(width)
    tile, tiles = tiling(width)
    if width > WIDEST_FORWARD:
        return NormCut(rows=1, warps=WIDE_WARPS, tile=WIDE_PIECE, twice=True)
    if tile == 8192 and tiles == 1 and not (centred or residual):
        return NormCut(rows=1, warps=16, tile=4096, twice=True)
    if block == 32768 and not (centred or residual):
        return NormCut(rows=1, warps=16, tile=4096, twice=True, unroll=4)
    if tile == 8192 and tiles == 1 and centred and not residual:
        return NormCut(rows=1, warps=8, tile=2048, tiles=4)
    at_once = max((2048 if block <= 256 else 4096) // block, 1)
    if tiles > 1:
        a_thread = 32 if tile * tiles == 16384 else 64
    elif residual and block == 8192:
        a_thread = 8
    else:
        a_thread = 32 if centred or block > 4096 else 16
    warps = max(at_once * block // (WARP * a_thread), at_once if tiles > 1 else 1)
    return spread(NormCut(rows=at_once, warps=warps, tile=tile, tiles=tiles), rows, sms)


def backward_cut(
    width: int, rows: int, sms: int, *, centred: bool, total: bool, itemsize: int, shared: int, vectors: bool = True
) -> NormCut | None:
    """Of the backward. None: rows wider than that, which take two kernels.

    One tile: 32 elements a thread, and two rows on their way (rms_norm 16384 x 4096: the fastest of 43, at 94 % of the
    copy rate); of a layer norm's rows of up to 2,048 half as many at a time, and two blocks on an SM (32768 x 768: 50,
    otherwise 58).
    Tiles: rows of more than 4,096 that leave lanes idle in one (rms_norm 8192 x 5120: 69, in one tile 79). Beyond 8,192
    the weight is read anew for each row, which saves the registers (layer_norm 8192 x 12288: 198, kept 311, torch's
    385). In shared memory: HELD. Twice: where shared memory does not hold a row on its way, and where registers do not
    hold rows beside the sums (rms_norm 8192 x 16384: 217, with 16 warps 222, otherwise 273 at best; 8192 x 32768: 501,
    with 32 warps 683, by two kernels 764).

    `total`: whether the gradient of a sum is added. `shared`: bytes of shared memory that a block can get. `vectors`:
    whether all rows begin at multiples of 16 bytes.
    """
    held = held_cut(width, centred=centred, total=total, itemsize=itemsize, shared=shared) if vectors else None
    if held or width > WIDEST_BACKWARD[centred]:
        return held
    block = padded(width)
    tile, tiles = tiling(width)
    columns = tile * tiles
    if block <= 4096 or (block == 8192 and tiles == 1):
        narrow = centred and block <= 2048
        at_once = max((4096 if narrow else 8192) // block, 1)
        warps = max(at_once * block // (WARP * 32), 1)
        cut = NormCut(rows=at_once, warps=warps, tile=block, blocks_per_sm=1 + narrow, stages=3)
    elif block == 8192:
        per_sm = 2 if width <= 5120 and not centred else 1
        cut = NormCut(rows=1, warps=8, tile=tile, tiles=tiles, blocks_per_sm=per_sm, stages=3)
    else:
        kept = columns <= 12288
        tile = min(tile, 4096) if kept or centred else tile
        warps = 32 if not (kept or centred) and columns <= 16384 else 16
        stages = 3 if kept else 1
        cut = NormCut(rows=1, warps=warps, tile=tile, tiles=columns // tile, blocks_per_sm=1, stages=stages, keep=False)
    cut = fitted(spread(cut, rows, sms), total=total, itemsize=itemsize, shared=shared)
    return replace(cut, twice=True) if block > 8192 and cut.stages == 1 else cut


def held_cut(width: int, *, centred: bool, total: bool, itemsize: int, shared: int) -> NormCut | None:
    """Of a backward whose rows lie in shared memory; None: of one whose rows do not. Whole tiles only."""
    tile, more = HELD.get((padded(width), centred, total), (0, 0))
    if not tile or width % tile:
        return None
    tiles = width // tile
    room = ((2 + total) * (tiles + more) + tiles) * tile * itemsize + STAGE_ROOM
    if room > shared:
        return None
    return NormCut(rows=1, warps=HELD_WARPS, tile=tile, tiles=tiles, blocks_per_sm=1, held=True, more=more)


def bias_apart(width: int, *, centred: bool) -> bool:
    """Whether registers hold one sum for each column of a row in shared memory, and not the bias's beside the weight's,
    which then has wide_norm_dw.
    """
    return centred and width > WIDEST_BACKWARD[True]


def fitted(cut: NormCut, *, total: bool, itemsize: int, shared: int) -> NormCut:
    """With as many stages as a block's shared memory holds, of rows, their gradients (and the sum's), and of the weight
    where it is read anew.
    """
    held = cut.rows * cut.tile * cut.tiles * itemsize * (2 + total + (not cut.keep))
    return replace(cut, stages=min(cut.stages, 1 + max(shared - STAGE_ROOM, 0) // held))


@cost("undertorch::rms_norm_forward", "undertorch::add_rms_norm_forward")
def rms_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the rows (and the residual) once; writes y, the sum, and one statistic a row."""
    return _forward(op, gpu, centred=False)


@cost("undertorch::layer_norm_forward", "undertorch::add_layer_norm_forward")
def layer_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """As rms_norm, with a second statistic and a bias."""
    return _forward(op, gpu, centred=True)


@cost("undertorch::rms_norm_backward", "undertorch::add_rms_norm_backward")
def rms_norm_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads rows and gradient once; writes the input's gradient and the blocks' shares of the weight's, then sums."""
    return _backward(op, gpu, centred=False)


@cost("undertorch::layer_norm_backward", "undertorch::add_layer_norm_backward")
def layer_norm_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """As rms_norm_backward, with a bias."""
    return _backward(op, gpu, centred=True)


def _forward(op: Op, gpu: Gpu, *, centred: bool) -> tuple[Kernel, ...]:
    x = op.tensor("x")
    if x.elements == 0:
        return ()
    width = x.shape[-1]
    rows = x.elements // width
    residual, affine = op.tensors("residual"), op.tensors("weight") + op.tensors("bias")
    cut = forward_cut(width, rows, gpu.sms, centred=centred, residual=bool(residual))
    return (
        own_kernel(
            "wide_norm_forward" if cut.twice else "norm_forward",
            Kind.NORM,
            ceil_div(rows, cut.rows),
            cut.warps,
            x.bytes + sum(tensor.bytes for tensor in (*residual, *affine)),
            sum(tensor.bytes for tensor in op.results),
            ((6 if centred else 3) + len(affine) + len(residual)) * x.elements,
        ),
    )


@other_ways(
    "undertorch::rms_norm_backward",
    "undertorch::add_rms_norm_backward",
    "undertorch::layer_norm_backward",
    "undertorch::add_layer_norm_backward",
)
def norm_backward_otherwise(op: Op, gpu: Gpu) -> tuple[tuple[Kernel, ...], ...]:
    """Rows that begin anywhere, where they usually lie in shared memory; two kernels, where one is usual."""
    centred = "layer_norm" in op.name
    cuts = dict.fromkeys((_backward_way(op, gpu, centred=centred, vectors=False), None))
    return tuple(_backward_cut(op, gpu, cut, centred=centred) for cut in cuts)


def _backward_way(op: Op, gpu: Gpu, *, centred: bool, vectors: bool) -> NormCut | None:
    x = op.tensor("x")
    width, total = x.shape[-1], bool(op.tensors("dtotal"))
    return backward_cut(
        width, x.elements // width, gpu.sms, centred=centred, total=total, itemsize=x.itemsize,
        shared=gpu.shared_per_block_optin, vectors=vectors,
    )  # fmt: skip


def _backward(op: Op, gpu: Gpu, *, centred: bool) -> tuple[Kernel, ...]:
    x = op.tensor("x")
    if x.elements == 0:
        return ()
    cut = _backward_way(op, gpu, centred=centred, vectors=op.arg("need_x") is True)
    return _backward_cut(op, gpu, cut, centred=centred)


def _backward_cut(op: Op, gpu: Gpu, cut: NormCut | None, *, centred: bool) -> tuple[Kernel, ...]:
    """None: by two kernels."""
    x = op.tensor("x")
    width = x.shape[-1]
    rows = x.elements // width
    need_x, need_weight, need_bias = (op.arg(name) is True for name in ("need_x", "need_weight", "need_bias"))
    dx, *vectors = op.results
    wanted = [tensor for tensor, needed in zip(vectors, (need_weight, need_bias), strict=True) if needed]
    shares = backward_shares(width, rows, gpu.sms, cut)
    partial = len(wanted) * shares * width * FLOAT32
    read = op.tensor_bytes("dy", "dtotal", "x", "weight", "mean", "rstd")
    for_x = ((12 if centred else 8) + 2 * len(op.tensors("weight"))) * x.elements if need_x else 0
    for_vectors = (3 * need_weight + need_bias) * x.elements
    kernels: list[Kernel] = []
    again = op.tensor_bytes("dy", "x", "mean", "rstd")
    grid: tuple[int, int, int] = (ceil_div(width, DW_COLUMNS), shares, 1)
    if cut and cut.held and need_bias and bias_apart(width, centred=centred):
        own, of_bias = partial // len(wanted), need_bias * x.elements
        written, flops = dx.bytes + partial - own, for_x + for_vectors - of_bias
        kernels.append(own_kernel("held_norm_backward", Kind.NORM, shares, cut.warps, read, written, flops))
        kernels.append(own_kernel("wide_norm_dw", Kind.NORM, grid, DW_WARPS, op.tensor_bytes("dy"), own, of_bias))
    elif cut:
        name = "held_norm_backward" if cut.held else "norm_backward"
        written, flops = (dx.bytes if need_x else 0) + partial, for_x + for_vectors
        kernels.append(own_kernel(name, Kind.NORM, shares, cut.warps, read, written, flops))
    else:
        if need_x:
            blocks = min(rows, gpu.sms * WIDE_BLOCKS_PER_SM)
            kernels.append(own_kernel("wide_norm_dx", Kind.NORM, blocks, WIDE_WARPS, read, dx.bytes, for_x))
        if wanted:
            kernels.append(own_kernel("wide_norm_dw", Kind.NORM, grid, DW_WARPS, again, partial, for_vectors))
    if wanted:
        columns = SUMMED_COLUMNS[width > 8192]
        grid = (ceil_div(width, columns), len(wanted), 1)
        written = sum(tensor.bytes for tensor in wanted)
        kernels.append(
            own_kernel("column_sums", Kind.NORM, grid, SUMMED_WARPS, partial, written, len(wanted) * shares * width)
        )
    return tuple(kernels)


def backward_shares(width: int, rows: int, sms: int, cut: NormCut | None) -> int:
    """Blocks that each sum the weights' gradients over some rows."""
    if cut:
        return min(sms * cut.blocks_per_sm, ceil_div(rows, cut.rows))
    return min(max(sms * DW_BLOCKS_PER_SM // ceil_div(width, DW_COLUMNS), 1), ceil_div(rows, DW_ROWS))
