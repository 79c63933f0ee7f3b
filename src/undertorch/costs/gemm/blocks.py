"""Kernels with one block a tile of the result: CUTLASS and older cuBLAS. A model of which one cuBLAS takes.

Tensor cores on GPUs without resident blocks (before Hopper, and consumer Blackwell), and on Hopper for TF32 and where
rows do not start at multiples of 16 bytes; CUDA cores for float32 and float64. Blocks run in rounds of as many as the
GPU holds; the model takes the tile whose rounds are quickest, and cuts the inner dimension where blocks are too few to
fill the GPU. Recorded on an H200: names, threads, registers, shared memory and grids of float32 and unaligned products.
Other GPUs, and TF32, were not recorded: names of their kernels say no more than which unit and what tile.

Fitted to the float32 products of tests/golden/h200_gemms.json.gz that are not marked `held`, and to h200_ops.json.gz
beside it: of 57 held ones it gets right how many kernels and memsets there are of 9 in 10, the grid of 1 in 4; cuBLAS'
choice among its older kernels follows no rule that was found.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from undertorch.costs.building import ceil_div
from undertorch.costs.gemm.product import Epilogue, Plan, Product
from undertorch.costs.units import generation
from undertorch.records import Dim3, Gpu, Math

HOPPER, AMPERE_MAJOR = 9, 8
"""Major compute capabilities."""
TURING = (7, 5)

FLOAT32_BYTES = 4

SWIZZLE = 8
"""CUTLASS lays up to 8 neighbouring tiles of columns beside each other (gemm/threadblock/threadblock_swizzle.h)."""

COUNTER = 4
"""Bytes a tile in which blocks that split the inner dimension count themselves (recorded; xmma kernels take 8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A compiled kernel: columns × rows of the result a block."""

    name: str
    """A pattern; `{}` is the transpositions."""
    library: str
    columns: int
    rows: int
    threads: int
    registers: int | None
    shared: int | None
    resident: int
    """Blocks an SM holds, by registers or shared memory."""
    efficiency: float
    """Relative to each other; fitted."""
    swizzled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The tiles that cuBLAS has for a kind of product."""

    tiles: tuple[Tile, ...]
    splits: int
    """Most parts of the inner dimension."""
    counter: int | None
    """Bytes a tile that a memset clears where blocks of a tile add up among themselves; None: another kernel does."""


def _xmma(columns: int, rows: int, threads: int, registers: int, shared: int, resident: int, efficiency: float) -> Tile:
    warps = {(128, 256): "4x2", (128, 128): "2x2", (128, 64): "1x4", (64, 128): "2x2", (64, 64): "1x4"}
    name = f"sm80_xmma_gemm_f32f32_f32f32_f32_{{}}_n_tilesize{rows}x{columns}x8_stage3_warpsize"
    return Tile(
        name=f"{name}{warps.get((columns, rows), '1x2')}x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        library="cuBLAS",
        columns=columns,
        rows=rows,
        threads=threads,
        registers=registers,
        shared=shared,
        resident=resident,
        efficiency=efficiency,
        swizzled=False,
    )


def _cutlass(name: str, columns: int, rows: int, threads: int, registers: int | None, shared: int | None) -> Tile:
    # Registers leave room for one block of 256 threads, or two of 128.
    return Tile(
        name=name,
        library="CUTLASS",
        columns=columns,
        rows=rows,
        threads=threads,
        registers=registers,
        shared=shared,
        resident=256 // threads,
        efficiency=1.15,
        swizzled=True,
    )


def _ampere(columns: int, rows: int, threads: int, stages: int) -> Tile:
    return Tile(
        name=f"ampere_{{dtype}}_s16816gemm_{{dtype}}_{columns}x{rows}_ldg8_f2f_stages_64x{stages}_{{}}",
        library="cuBLAS",
        columns=columns,
        rows=rows,
        threads=threads,
        registers=None,
        # Both factors' steps of 64 elements of 2 bytes, for each stage.
        shared=stages * 64 * 2 * (columns + rows),
        resident=1 if columns * rows > 64 * 64 else 3,
        efficiency=1.0 if columns * rows >= 128 * 128 else 0.75,
        swizzled=False,
    )


def _plain(stem: str, columns: int, rows: int, threads: int, efficiency: float) -> Tile:
    """A kernel that nobody recorded: its resources are not known."""
    return Tile(
        name=f"{stem}_{columns}x{rows}_{{}}",
        library="cuBLAS",
        columns=columns,
        rows=rows,
        threads=threads,
        registers=None,
        shared=None,
        resident=1 if columns * rows > 64 * 64 else 3,
        efficiency=efficiency,
        swizzled=False,
    )


FLOAT32 = Family(
    tiles=(
        _xmma(128, 128, threads=128, registers=255, shared=33792, resident=2, efficiency=1.07),
        _xmma(64, 128, threads=128, registers=218, shared=19200, resident=2, efficiency=0.92),
        _xmma(128, 64, threads=128, registers=220, shared=18816, resident=2, efficiency=0.92),
        _xmma(64, 64, threads=128, registers=128, shared=13056, resident=4, efficiency=0.85),
        _xmma(32, 32, threads=64, registers=80, shared=6912, resident=12, efficiency=0.37),
    ),
    splits=33,
    counter=2 * COUNTER,
)
"""The first factor's rows and the second's columns contiguous, or small ones."""

FLOAT32_LARGE = Family(
    tiles=(
        _cutlass("cutlass_80_simt_sgemm_256x128_8x4_{}_align1", 256, 128, 256, 202, 49152),
        _cutlass("cutlass_80_simt_sgemm_128x256_8x4_{}_align1", 128, 256, 256, 202, 49152),
        *FLOAT32.tiles[1:],
    ),
    splits=14,
    counter=COUNTER,
)
"""Other layouts."""

FLOAT64 = Family(
    tiles=(
        Tile(
            name="sm90_xmma_gemm_f64f64_f64f64_f64_{}_n_tilesize128x64x32_stage3_warpsize4x2x1_tensor16x8x16_execute_kernel",
            library="cuBLAS",
            columns=64,
            rows=128,
            threads=256,
            registers=236,
            shared=147456,
            resident=1,
            efficiency=1.0,
            swizzled=False,
        ),
    ),
    splits=1,
    counter=None,
)

CP_ASYNC_BYTES = 4
"""That an asynchronous copy to shared memory moves at least (PTX ISA, cp.async)."""

AMPERE = Family(
    tiles=(
        _ampere(256, 128, threads=256, stages=3),
        _ampere(128, 256, threads=256, stages=3),
        _ampere(128, 128, threads=128, stages=3),
        _ampere(128, 64, threads=128, stages=4),
        _ampere(64, 64, threads=128, stages=4),
    ),
    splits=16,
    counter=None,
)

HALF_ALIGNED = Family(
    tiles=(
        _cutlass(
            "cutlass_80_tensorop_{dtype}_s16816gemm_{dtype}_128x256_64x3_{}_align{align}", 128, 256, 256, 232, 147456
        ),
        _cutlass(
            "cutlass_80_tensorop_{dtype}_s16816gemm_{dtype}_64x256_64x4_{}_align{align}", 64, 256, 128, None, 163840
        ),
        replace(
            _cutlass(
                "cutlass_80_wmma_tensorop_{dtype}_s161616gemm_{dtype}_32x32_128x2_{}_align{align}",
                32,
                32,
                128,
                80,
                33792,
            ),
            efficiency=0.75,
        ),
    ),
    splits=16,
    counter=None,
)
"""Rows of whole 4 bytes and not of 16: what Ampere's kernels copy to shared memory without registers (cp.async of 4, 8
or 16 bytes: PTX ISA) and TMA does not. Recorded: 32768×10×784 took these by name; of an LSTM of 1500 units of 2 bytes
their threads, registers, shared memory and grids (tests/golden/measured/models.json.gz): 20×1500×6000 (8, 24, 1),
20×6000×1500 (8, 6, 5)."""

UNALIGNED = Family(
    tiles=(
        _cutlass("cutlass_75_tensorop_{dtype}_s1688gemm_{dtype}_256x128_{}_align{align}", 256, 128, 256, 229, 49152),
        _cutlass("cutlass_75_tensorop_{dtype}_s1688gemm_{dtype}_128x128_{}_align{align}", 128, 128, 128, 254, 32768),
        _cutlass("cutlass_75_tensorop_{dtype}_s1688gemm_{dtype}_64x64_{}_align{align}", 64, 64, 128, None, None),
    ),
    splits=1,
    counter=None,
)

FLOAT64_ELSEWHERE = Family(tiles=(_plain("gemm_f64", 64, 64, 128, 1.0),), splits=1, counter=None)
"""GPUs that are not Hopper."""

TF32 = Family(
    tiles=(
        _plain("gemm_tf32", 128, 256, 256, 1.15),
        _plain("gemm_tf32", 128, 128, 128, 1.0),
        _plain("gemm_tf32", 64, 64, 128, 0.75),
    ),
    splits=16,
    counter=None,
)

TURING_FLOAT16 = Family(
    tiles=(
        _plain("turing_fp16_s1688gemm_fp16", 256, 128, 256, 1.0),
        _plain("turing_fp16_s1688gemm_fp16", 128, 128, 128, 1.0),
        _plain("turing_fp16_s1688gemm_fp16", 64, 64, 128, 0.75),
    ),
    splits=16,
    counter=None,
)

VOLTA_FLOAT16 = Family(
    tiles=(
        _plain("volta_fp16_s884gemm_fp16", 256, 128, 256, 1.0),
        _plain("volta_fp16_s884gemm_fp16", 128, 128, 128, 1.0),
        _plain("volta_fp16_s884gemm_fp16", 64, 64, 128, 0.75),
    ),
    splits=16,
    counter=None,
)

VOLTA_FLOAT32 = Family(
    tiles=(
        _plain("volta_sgemm", 128, 128, 256, 1.0),
        _plain("volta_sgemm", 128, 64, 128, 0.92),
        _plain("volta_sgemm", 32, 32, 128, 0.4),
    ),
    splits=16,
    counter=None,
)
"""Turing runs them too."""

WITHOUT_KERNELS = Family(
    tiles=(
        _plain("gemm_{dtype}", 128, 128, 256, 1.0),
        _plain("gemm_{dtype}", 64, 64, 128, 0.85),
    ),
    splits=16,
    counter=None,
)
"""Dtypes whose kernels are not known by name, such as bfloat16 before Ampere, which is multiplied as float32."""

START = 4000
"""What a block costs besides, in multiplications of one element by one element for 64 steps of the inner dimension."""

WRITE = 3.0
"""The same for each element of a tile."""

REDUCE = 10_000
"""The same for adding parts up, and for each element of each part."""
REDUCE_PART = 0.01

LONE = 0.3
"""How much longer blocks take, each, that have an SM to themselves: nothing hides what they wait for."""

LEAST_INNER = 128
"""Of a part of the inner dimension."""


def plan(product: Product, gpu: Gpu) -> Plan:
    """The kernel for a product that no kernel with resident blocks takes."""
    family = _on(_family(product, gpu), gpu)
    tile, splits = min(_choices(product, family), key=lambda choice: _estimate(product, choice[0], choice[1], gpu.sms))
    counted = splits > 1 and family.counter is not None
    across, along = _tiles(product, tile)
    return Plan(
        name=_name(product, tile),
        library=tile.library,
        tile=(tile.columns, tile.rows),
        grid=_grid(product, tile, splits),
        threads=tile.threads,
        registers=tile.registers,
        shared=tile.shared,
        splits=splits,
        counters=(family.counter or 0) * across * along if counted else None,
        reduced=splits > 1 and not counted,
    )


def _family(product: Product, gpu: Gpu) -> Family:
    """Of an NVIDIA GPU: no kernel is taken whose instructions it lacks."""
    major = generation(gpu)
    if product.dtype in ("float64", "complex128"):
        return FLOAT64 if major == HOPPER else FLOAT64_ELSEWHERE
    if product.math is Math.TENSOR_TF32:
        return TF32
    before_ampere = major is not None and major < AMPERE_MAJOR
    if not product.tensor_cores:
        if product.itemsize < FLOAT32_BYTES:
            return WITHOUT_KERNELS
        if before_ampere:
            return VOLTA_FLOAT32
        return FLOAT32 if product.layout == "rc" else FLOAT32_LARGE
    if before_ampere:
        if product.dtype != "float16":
            return WITHOUT_KERNELS
        return TURING_FLOAT16 if gpu.compute_capability == TURING else VOLTA_FLOAT16
    if product.alignment >= 16:
        return AMPERE
    return HALF_ALIGNED if product.alignment >= CP_ASYNC_BYTES else UNALIGNED


def _on(family: Family, gpu: Gpu) -> Family:
    """The tiles whose shared memory a block of the GPU can have, and as many of them an SM as fit its shared memory."""
    tiles = tuple(
        replace(tile, resident=max(1, min(tile.resident, _fit(tile, gpu))))
        for tile in family.tiles
        if tile.shared is None or tile.shared <= gpu.shared_per_block_optin
    )
    return replace(family, tiles=tiles)


def _fit(tile: Tile, gpu: Gpu) -> int:
    if not tile.shared:
        return tile.resident
    return gpu.shared_per_sm // (tile.shared + gpu.shared_reserved_per_block)


def _choices(product: Product, family: Family) -> Iterator[tuple[Tile, int]]:
    # With a bias, or in a batch, the inner dimension was hardly ever cut.
    whole = product.batch > 1 or product.epilogue is not Epilogue.NONE
    most = 1 if whole else max(1, min(family.splits, product.inner // LEAST_INNER))
    for tile in family.tiles:
        for splits in range(1, most + 1):
            yield tile, splits


def _estimate(product: Product, tile: Tile, splits: int, sms: int) -> float:
    across, along = _tiles(product, tile)
    blocks = product.batch * across * along * splits
    # Resident blocks share their SM: a full round takes as long as all of them together, the last one as its share.
    full, left = divmod(blocks, sms * tile.resident)
    last = ceil_div(left, sms)
    shares = full * tile.resident + last * (1 + LONE * (tile.resident - last) / tile.resident)
    steps = ceil_div(product.inner, splits) / 64 / tile.efficiency
    time = shares * (tile.columns * tile.rows * (steps + WRITE) + START)
    if splits > 1:
        time += REDUCE + REDUCE_PART * product.rows * product.columns * splits
    return time


def _tiles(product: Product, tile: Tile) -> tuple[int, int]:
    return ceil_div(product.columns, tile.columns), ceil_div(product.rows, tile.rows)


def _grid(product: Product, tile: Tile, splits: int) -> Dim3:
    across, along = _tiles(product, tile)
    depth = product.batch * splits
    if not tile.swizzled:
        return along, across, depth
    # The most neighbours, up to 8, that leave fewer than half of the last ones empty.
    neighbours = next((n for n, least in ((SWIZZLE, 6), (4, 3), (2, 2)) if across >= least), 1)
    return along * neighbours, ceil_div(across, neighbours), depth


def _name(product: Product, tile: Tile) -> str:
    short = {"bfloat16": "bf16", "float16": "f16"}.get(product.dtype, product.dtype)
    if tile.library == "cuBLAS" and short == "f16":
        short = "fp16"
    align = max(1, product.alignment // product.itemsize)
    name = tile.name.format(product.letters, dtype=short, align=align)
    return f"Kernel2<{name}>" if tile.library == "CUTLASS" else name
