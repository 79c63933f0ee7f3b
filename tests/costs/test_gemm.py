"""The model of cuBLAS' choices against an H200's: the GPT-2 step whole, and layers that the model was not fitted to.

tests/golden/h200_gemms.json.gz holds 180 linear layers of random sizes as four products each; every second layer is
marked `held` and took no part in choosing the model's tiles or constants.
"""

import gzip
import json
from dataclasses import replace
from math import ceil

import pytest

from costs.by_hand import op, tensor, transposed
from costs.recorded import GOLDEN, H200, differences, gpt2_step
from undertorch.costs import kernels
from undertorch.costs.gemm.parts import REDUCES, parts
from undertorch.records import Kernel, Kind, Math, Origin, TensorRef

with gzip.open(GOLDEN / "h200_gemms.json.gz") as _file:
    LAYERS = json.load(_file)["cases"]


def factors(layout: str, m: int, n: int, k: int, dtype: str) -> tuple[TensorRef, TensorRef]:
    """m × k and k × n, each row-major (`r`) or column-major (`c`)."""
    first = tensor(m, k, dtype=dtype) if layout[0] == "r" else transposed(tensor(k, m, dtype=dtype))
    second = tensor(k, n, dtype=dtype) if layout[1] == "r" else transposed(tensor(n, k, dtype=dtype))
    return first, second


def product(m: int, n: int, k: int, dtype: str = "bfloat16", layout: str = "rr") -> tuple[Kernel, ...]:
    first, second = factors(layout, m, n, k, dtype)
    return kernels(op("mm", tensor(m, n, dtype=dtype), self=first, mat2=second), H200)


def with_bias(m: int, n: int, k: int, dtype: str = "bfloat16", layout: str = "rc") -> tuple[Kernel, ...]:
    first, second = factors(layout, m, n, k, dtype)
    bias = tensor(n, dtype=dtype)
    call = op("addmm", tensor(m, n, dtype=dtype), self=bias, mat1=first, mat2=second, beta=1, alpha=1)
    return kernels(call, H200)


def main(found: tuple[Kernel, ...]) -> Kernel:
    """The kernel that multiplies."""
    return max(found, key=lambda kernel: kernel.flops)


def rates(dtype: str, held: bool) -> dict[str, float]:
    """How many of the recorded products the model gets right."""
    cases = [case for case in LAYERS if case["dtype"] == dtype and case["held"] is held]
    right = {"count": 0, "grid": 0}
    for case in cases:
        make = with_bias if case["op"] == "addmm" else product
        found = make(case["m"], case["n"], case["k"], dtype, case["layout"])
        recorded = next(kernel for kernel in case["kernels"] if "Memset" not in kernel["name"])
        right["count"] += len(found) == len(case["kernels"])
        right["grid"] += list(main(found).grid) == recorded["grid"]
    return {name: count / len(cases) for name, count in right.items()}


@pytest.mark.parametrize(
    ("dtype", "count", "grid"), [("bfloat16", 0.85, 0.55), ("float16", 0.85, 0.5), ("float32", 0.8, 0.2)]
)
def test_layers_that_the_model_never_saw_launch_mostly_what_it_says(dtype: str, count: float, grid: float):
    found = rates(dtype, held=True)
    assert found["count"] >= count
    assert found["grid"] >= grid


def test_every_product_of_the_gpt2_step_launches_exactly_what_the_model_says():
    """147 products: names, grids, shared memory, the 48 that split the inner dimension, 99 memsets of 4 bytes."""
    cases = [case for case in gpt2_step() if case.ops[0].name in ("aten::mm", "aten::addmm")]
    assert len(cases) == 147
    wrong = {case.name: differences(kernels(case.ops[0], H200), case.kernels) for case in cases}
    assert {name: lines for name, lines in wrong.items() if lines} == {}


def test_its_geometry_is_said_to_be_predicted_and_its_bytes_to_be_computed():
    for kernel in (*product(4096, 768, 768), *with_bias(32, 50257, 768), *product(64, 64, 64, "float32")):
        if kernel.kind is not Kind.MEMSET:
            assert kernel.geometry_origin is Origin.PREDICTED
            assert kernel.bytes_origin is Origin.COMPUTED


@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize(("m", "n", "k"), [(4096, 2304, 768), (1, 1, 1), (333, 50257, 77), (8, 8, 100_000), (16, 1, 5)])
def test_flops_are_two_a_multiplication(m: int, n: int, k: int, dtype: str, layout: str):
    found = product(m, n, k, dtype, layout)
    assert main(found).flops == 2 * m * n * k


@pytest.mark.parametrize(
    ("dtype", "math"),
    [
        ("bfloat16", Math.TENSOR_BF16),
        ("float16", Math.TENSOR_FP16),
        ("float32", Math.FP32),
        ("float64", Math.TENSOR_FP64),
    ],
)
def test_the_unit_follows_from_the_dtype(dtype: str, math: Math):
    assert main(product(512, 512, 512, dtype)).math is math


def test_each_factor_is_read_once_and_the_result_written_once():
    """bfloat16: 2 · (m·k + k·n) bytes in, 2 · m·n out; a bias is n more."""
    m, n, k = 32768, 3072, 768
    kernel = main(product(m, n, k))
    assert (kernel.min_bytes_read, kernel.min_bytes_written) == (2 * (m * k + k * n), 2 * m * n)
    assert main(with_bias(m, n, k)).min_bytes_read == 2 * (m * k + k * n + n)


def test_parts_of_a_split_product_go_through_memory_in_float32():
    """768 × 768 out of 32,768 tokens: tiles of 128 × 192 are 24, five parts each fill the GPU."""
    partial, reduce = product(768, 768, 32768, layout="cr")
    assert partial.name.endswith("splitK_NTN")
    assert partial.min_bytes_written == reduce.min_bytes_read == 5 * 768 * 768 * 4
    assert reduce.min_bytes_written == 768 * 768 * 2
    assert reduce.flops == 4 * 768 * 768


def test_into_how_many_parts_a_product_was_cut_is_told_by_its_grid():
    """Of 78 recorded products that were cut into resident blocks' parts 76: each part has at least four steps of 64
    along the inner dimension. Of the others the grid is as large as the GPU holds. Of no whole one any."""
    told: list[int | None] = []
    for case in LAYERS:
        cut = any(REDUCES in ran["name"] for ran in case["kernels"])
        for ran in case["kernels"]:
            if "nvjet" not in ran["name"]:
                continue
            kernel = replace(main(product(64, 64, 64)), name=ran["name"], grid=tuple(ran["grid"]))
            found = parts(kernel, case["m"], case["n"])
            if cut:
                assert found is not None or kernel.grid == (2, 66, 1)
                assert found is None or (found > 1 and case["k"] / found >= 4 * 64)
                told.append(found)
            else:
                assert found is None
    assert (len(told), told.count(None)) == (78, 2)


def test_a_square_product_reads_its_factors_again_where_they_do_not_fit_l2():
    """8192³ in bfloat16: 134 MB each; 50 MB of L2 hold none of them."""
    kernel = main(product(8192, 8192, 8192))
    assert kernel.traffic_bytes > kernel.min_bytes
    assert main(product(1024, 1024, 1024)).traffic_bytes is None


def test_nothing_is_launched_for_an_empty_result_and_zeros_for_an_empty_inner_dimension():
    assert product(0, 8, 8) == ()
    assert product(8, 0, 8) == ()
    (fill,) = product(8, 8, 0)
    assert (fill.kind, fill.min_bytes_written) == (Kind.FILL, 128)


def test_an_empty_inner_dimension_leaves_the_bias():
    (scaled,) = with_bias(8, 8, 0)
    assert scaled.kind is Kind.ELEMENTWISE
    assert scaled.min_bytes_written == 128


def test_a_matrix_that_is_neither_row_nor_column_major_is_copied_first():
    """Every second column: cuBLAS takes no such stride (prepare_matrix_for_cublas)."""
    first = tensor(64, 64, dtype="bfloat16", strides=(128, 2))
    found = kernels(op("mm", tensor(64, 64, dtype="bfloat16"), self=first, mat2=tensor(64, 64, dtype="bfloat16")), H200)
    assert [kernel.kind for kernel in found] == [Kind.COPY, Kind.MATMUL]


def test_a_matrix_for_a_bias_is_copied_into_the_result_which_the_product_adds_to():
    """addmm without cublasLt's epilogue: bytes of the result are read once more."""
    m, n, k = 256, 512, 128
    call = op(
        "addmm",
        tensor(m, n, dtype="bfloat16"),
        self=tensor(m, n, dtype="bfloat16"),
        mat1=tensor(m, k, dtype="bfloat16"),
        mat2=tensor(k, n, dtype="bfloat16"),
        beta=1,
        alpha=1,
    )
    copy, *rest = kernels(call, H200)
    assert copy.min_bytes_written == 2 * m * n
    assert main(tuple(rest)).min_bytes_read == 2 * (m * k + k * n + m * n)


def test_rows_that_start_off_16_bytes_take_no_tensor_map():
    """50,257 columns of 2 bytes: one block a tile, 3 × 8 by 393 / 8 of them (recorded: 24 × 50 of 128 threads)."""
    kernel = main(with_bias(384, 50257, 768))
    assert (kernel.grid, kernel.block) == ((24, 50, 1), (128, 1, 1))
    assert "nvjet" in main(with_bias(384, 50304, 768)).name


def test_a_batch_of_products_shares_one_launch():
    """384 heads of 1024 × 64 by 64 × 1024 (recorded: a memset, then 66 clusters of 2)."""
    query = tensor(384, 1024, 64, dtype="bfloat16")
    key = transposed(tensor(384, 1024, 64, dtype="bfloat16"))
    memset, kernel = kernels(op("bmm", tensor(384, 1024, 1024, dtype="bfloat16"), self=query, mat2=key), H200)
    assert memset.min_bytes_written == 4
    assert (kernel.grid, kernel.flops) == ((2, 66, 1), 2 * 384 * 1024 * 1024 * 64)


def test_baddbmm_copies_unless_it_works_in_place():
    one, two, out = (tensor(4, 64, 64, dtype="bfloat16") for _ in range(3))
    added = kernels(op("baddbmm", out, self=two, batch1=one, batch2=one, beta=1, alpha=1), H200)
    in_place = kernels(op("baddbmm_", two, self=two, batch1=one, batch2=one, beta=1, alpha=1), H200)
    assert added[0].kind is not Kind.MATMUL
    assert len(added) == len(in_place) + 1


def test_a_gpu_before_hopper_gets_a_block_a_tile():
    """No clusters, no resident blocks, no memset: 4096² is 512 tiles of 256 × 128."""
    from undertorch.gpus import find

    first, second = factors("rc", 4096, 4096, 4096, "bfloat16")
    (kernel,) = kernels(op("mm", tensor(4096, 4096, dtype="bfloat16"), self=first, mat2=second), find("A100-SXM4-80GB"))
    across, along = 4096 // 256, 4096 // 128
    assert kernel.blocks == across * along
    assert kernel.name.startswith("ampere_bf16")


def test_linear_and_its_backward_are_products_over_all_leading_dimensions():
    source, weight, bias = (
        tensor(4, 128, 256, dtype="bfloat16"),
        tensor(512, 256, dtype="bfloat16"),
        tensor(512, dtype="bfloat16"),
    )
    out = tensor(4, 128, 512, dtype="bfloat16")
    flops = 2 * 4 * 128 * 256 * 512
    assert main(kernels(op("linear", out, input=source, weight=weight, bias=bias), H200)).flops == flops
    backward = kernels(
        op(
            "linear_backward",
            source,
            weight,
            bias,
            self=source,
            grad_output=out,
            weight=weight,
            output_mask=(True, True, True),
        ),
        H200,
    )
    products = [kernel for kernel in backward if kernel.kind is Kind.MATMUL and kernel.math is Math.TENSOR_BF16]
    assert [kernel.flops for kernel in products] == [flops, flops]
    assert any(kernel.kind is Kind.REDUCTION for kernel in backward)


def test_a_dot_product_takes_128_elements_a_block_and_one_block_more():
    """Recorded: 100,000 elements, 782 blocks of 128 threads, then one block."""
    vector = tensor(100_000)
    multiply, add = kernels(op("dot", tensor(), self=vector, tensor=tensor(100_000)), H200)
    assert (multiply.grid, add.grid) == ((ceil(100_000 / 128), 1, 1), (1, 1, 1))
    assert multiply.flops + add.flops == 2 * 100_000 - 1
    assert multiply.min_bytes_read == 800_000


def test_a_product_of_8_bit_floats_reads_a_byte_an_element_and_its_scales():
    first = tensor(256, 512, dtype="float8_e4m3fn")
    second = transposed(tensor(1024, 512, dtype="float8_e4m3fn"))
    call = op(
        "_scaled_mm",
        tensor(256, 1024, dtype="bfloat16"),
        self=first,
        mat2=second,
        scale_a=tensor(),
        scale_b=tensor(),
        bias=None,
        scale_result=None,
        out_dtype="bfloat16",
        use_fast_accum=False,
    )
    kernel = main(kernels(call, H200))
    assert kernel.math is Math.TENSOR_FP8
    assert kernel.flops == 2 * 256 * 1024 * 512
    assert kernel.min_bytes_read == 256 * 512 + 1024 * 512 + 2 * 4


def test_a_matrix_times_a_vector_runs_on_cuda_cores_in_float32_and_on_tensor_cores_in_16_bits():
    """Recorded: gemv2T, 512 blocks of 128 threads for 4096 rows; nvjet, split, then the sum of the parts."""

    def mv(dtype: str) -> tuple[Kernel, ...]:
        matrix, vector = tensor(4096, 4096, dtype=dtype), tensor(4096, dtype=dtype)
        return kernels(op("mv", tensor(4096, dtype=dtype), self=matrix, vec=vector), H200)

    (single,) = mv("float32")
    assert (single.name, single.grid, single.block) == ("gemv2T_kernel_val", (512, 1, 1), (128, 1, 1))
    assert single.flops == 2 * 4096 * 4096
    multiply, add = mv("bfloat16")
    assert multiply.name.startswith("nvjet_sm90_tst")
    assert add.grid == (128, 1, 1)


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "grid"), [(20, 1500, 6000, (8, 24, 1)), (20, 6000, 1500, (8, 6, 5))]
)
def test_rows_of_whole_4_bytes_take_amperes_small_tiles(
    rows: int, inner: int, columns: int, grid: tuple[int, int, int]
):
    """The recurrent products of an LSTM of 1500 units, batch 20, and their backward, as an H200 launched them: 70 times
    each, 128 threads, 80 registers (tests/golden/measured/models.json.gz)."""
    found = main(product(20, columns, inner, "float16"))
    assert found.grid == grid
    assert (found.block, found.registers) == ((128, 1, 1), 80)
    with gzip.open(GOLDEN / "measured" / "models.json.gz") as file:
        launches = json.load(file)["models"]["lstm"]["launches"]
    recorded = [launch for launch in launches if launch[3] == list(grid) and launch[4] == [128, 1, 1]]
    assert len(recorded) >= 70


@pytest.mark.parametrize("width", [1500, 1502, 750])
def test_cp_async_serves_rows_of_4_bytes_and_not_of_2(width: int):
    """PTX ISA: cp.async copies 4, 8 or 16 bytes. Turing's kernels load through registers: odd rows are theirs."""
    assert "cutlass_80" in main(product(700, 10_000, width)).name
    assert "cutlass_75" in main(product(700, 10_000, width + 1)).name
