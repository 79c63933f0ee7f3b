"""From a Product to kernels: the plan, its bytes and FLOPs, and what runs before and after it."""

from dataclasses import replace
from math import isqrt

from undertorch.costs.building import ceil_div, memset, pytorch
from undertorch.costs.gemm import blocks, hopper, vectors
from undertorch.costs.gemm.product import Epilogue, Plan, Product
from undertorch.costs.units import generation
from undertorch.records import Gpu, Kernel, Kind, Math, Origin

FLOAT32 = 4
"""Bytes of an element of a part."""

REDUCE_BLOCK = (32, 16, 1)
REDUCE_BLOCKS = 4
"""Blocks an SM that the grid of `splitKreduce_kernel` aims at; more tiles of 32 × 16 than that share blocks (fitted to
the 24 distinct grids recorded)."""

FLOAT32_NOTE = "FLOPs at float32's rate: TF32 was off when the call was made, or this GPU has none."
TF32_NOTE = "FLOPs at TF32's rate, which torch was told to allow. Which kernel cuBLAS takes for it is a guess."

HOPPER, DATA_CENTRE_BLACKWELL = 9, 10
"""Major compute capabilities whose kernels have resident blocks. Consumer Blackwell (12) lacks their instructions
(wgmma, tcgen05; PTX ISA, target notes) and runs Ampere's kernels."""

AMD_TILE, AMD_THREADS = 128, 256
"""A plain tile of four waves; AMD's kernels were not recorded."""


def launches(
    product: Product,
    gpu: Gpu,
    *,
    read: int,
    written: int,
) -> tuple[Kernel, ...]:
    """The kernels of a product of at least one element, which read and write that many bytes at least."""
    plan = _plan(product, gpu)
    parts = plan.splits * product.batch * product.rows * product.columns * FLOAT32
    main = modelled(
        pytorch(
            plan.name,
            Kind.MATMUL,
            plan.grid,
            plan.threads,
            read=read,
            written=parts if plan.reduced else written,
            flops=product.flops,
            math=product.math,
            registers=plan.registers,
            shared=plan.shared,
            traffic=_traffic(product, plan, gpu, read, parts if plan.reduced else written),
            note=_note(product),
            library=plan.library,
        )
    )
    before = () if plan.counters is None else (memset(plan.counters),)
    after = (_reduce(product, plan, gpu, parts, written),) if plan.reduced else ()
    return (*before, main, *after)


def modelled(kernel: Kernel) -> Kernel:
    """A kernel of a closed library: its geometry is a model's."""
    return replace(kernel, geometry_origin=Origin.PREDICTED)


def _plan(product: Product, gpu: Gpu) -> Plan:
    major = generation(gpu)
    if major is None:
        return _neutral(product)
    vector = vectors.plan(product)
    if vector is not None:
        return vector
    resident = major in (HOPPER, DATA_CENTRE_BLACKWELL) and product.dtype in hopper.TYPES
    if resident and product.alignment >= hopper.ALIGNMENT:
        # What a B200 takes was not recorded: Hopper's choice, extrapolated.
        return hopper.plan(product, gpu.sms, f"sm{major}0")
    return blocks.plan(product, gpu)


def _neutral(product: Product) -> Plan:
    """A block a tile of the result, by a library whose kernels are not modelled: hipBLASLt."""
    return Plan(
        name="gemm",
        library="hipBLASLt",
        tile=(AMD_TILE, AMD_TILE),
        grid=(ceil_div(product.rows, AMD_TILE), ceil_div(product.columns, AMD_TILE), product.batch),
        threads=AMD_THREADS,
    )


def _note(product: Product) -> str | None:
    if product.dtype != "float32":
        return None
    return TF32_NOTE if product.math is Math.TENSOR_TF32 else FLOAT32_NOTE


def _reduce(product: Product, plan: Plan, gpu: Gpu, parts: int, written: int) -> Kernel:
    """Adds the parts up; a bias is added here too."""
    across, along = ceil_div(product.columns, REDUCE_BLOCK[0]), ceil_div(product.rows, REDUCE_BLOCK[1])
    each = max(1, int(across * along / (REDUCE_BLOCKS * gpu.sms) + 0.4))
    elements = product.batch * product.rows * product.columns
    biased = product.epilogue is not Epilogue.NONE
    return modelled(
        pytorch(
            "splitKreduce_kernel<32, 16>",
            Kind.MATMUL,
            (across, ceil_div(along, each), product.batch),
            REDUCE_BLOCK,
            read=parts + (product.columns * product.itemsize if biased else 0),
            written=written,
            flops=elements * (plan.splits - 1 + biased),
            math=Math.FP32,
            registers=32,
            shared=0,
            library="cuBLAS",
        )
    )


def _traffic(product: Product, plan: Plan, gpu: Gpu, read: int, written: int) -> int | None:
    """Bytes of the factors that are read again, where both do not fit L2; None: no more than the least.

    Tiles that run together make about a square of the result, and read their rows and columns once for all of them.
    """
    if read <= gpu.l2_bytes or plan.tile == (0, 0):
        return None
    columns, rows = plan.tile
    across, along = ceil_div(product.columns, columns), ceil_div(product.rows, rows)
    together = min(gpu.sms, across * along)
    side = min(across, max(1, isqrt(together * rows // columns)))
    other = min(along, ceil_div(together, side))
    rounds = product.batch * across * along / (side * other)
    again = int(rounds * (side * columns + other * rows) * product.inner * product.itemsize)
    return again + written if again > read else None
