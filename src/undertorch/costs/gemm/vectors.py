"""Matrix times vector on CUDA cores, and dot products: cuBLAS' kernels as an H200 was seen to launch them.

16-bit products with a vector go to the tensor cores like any other (at::cuda::blas::gemv calls gemm for them).
"""

from undertorch.costs.building import ceil_div
from undertorch.costs.gemm.product import Plan, Product

ROWS_OF_A_BLOCK = 8
"""`gemv2T_kernel_val`: elements of the result a block (4096 of them: 512 blocks)."""

SIXTEEN_BITS_AND_LESS = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8")
"""Dtypes that cuBLAS has no product with a vector for."""

COLUMNS_OF_A_BLOCK = 32
"""`gemvx::kernel`: the same (4096: 128 blocks of 32 × 16 threads)."""


def plan(product: Product) -> Plan | None:
    """The kernel of a product with a vector on CUDA cores; None for any other product."""
    if product.dtype in SIXTEEN_BITS_AND_LESS or 1 not in (product.rows, product.columns):
        return None
    if product.batch > 1:
        return None
    along = product.layout[1] == "c" if product.rows == 1 else product.layout[0] == "r"
    size = product.columns * product.rows
    recorded = product.dtype == "float32"
    if along:
        # The matrix's inner dimension is contiguous: threads of a block add up along it.
        return Plan(
            name="gemv2T_kernel_val",
            tile=(0, 0),
            grid=(ceil_div(size, ROWS_OF_A_BLOCK), 1, 1),
            threads=128,
            registers=65 if recorded else None,
            shared=2560 if recorded else None,
        )
    return Plan(
        name="gemvx::kernel",
        tile=(0, 0),
        grid=(ceil_div(size, COLUMNS_OF_A_BLOCK), 1, 1),
        threads=(32, 16, 1),
        registers=128 if recorded else None,
        shared=2176 if recorded else None,
    )
