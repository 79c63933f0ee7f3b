"""mma and wmma: products of whole matrices against float64, and the sums of each generation's model, worked by hand.

Every form on tiles of its own: conformance/test_tensor.py. What a GPU answered: conformance/test_tensor_goldens.py.
"""

import numpy as np
import pytest
import torch

import undertorch
from simt.conformance.numbers import value
from simt.conformance.tensor import _mma_kernel, packed, product_of, unpacked
from undertorch.gpus import find
from undertorch.simt import BadLaunch, PtxError, launch
from undertorch.simt.numerics import GENERATIONS, numerics_of

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"


def multiplied(opcode, a, b, c, gpu, mma="exact"):
    """D as bits, of matrices as bits."""
    whole = product_of(opcode)
    parts = {role: whole.fragment(role) for role in "dabc"}
    words = [packed(parts[role], matrix) for role, matrix in zip("abc", (a, b, c), strict=True)]
    d = np.zeros((parts["d"].registers, 32), np.uint32)
    launch(_mma_kernel(opcode, parts), "kernel", 1, 32, (*words, d), gpu=find(gpu), mma=mma)
    return unpacked(parts["d"], d)


def one_row(opcode, gpu, products, c, mma="exact"):
    """D[0, 0] where row 0 of A times column 0 of B has these products (numbers with ones) and C is c."""
    whole = product_of(opcode)
    a, b = np.zeros((whole.m, whole.k), np.float32), np.zeros((whole.k, whole.n), np.float32)
    for k, (x, y) in enumerate(products):
        a[0, k], b[k, 0] = x, y
    full = np.zeros((whole.m, whole.n), np.float32)
    full[0, 0] = c
    given = [half_bits(m, whole.a) for m in (a, b)]
    d = multiplied(opcode, *given, full.view(np.uint32), gpu, mma)
    return value("f32", d[0, 0])


def half_bits(matrix, kind):
    if kind == "bf16":
        return (matrix.view(np.uint32) >> 16).astype(np.uint16)
    return matrix.astype(np.float16).view(np.uint16)


# -- models, by hand (arXiv 2511.10909, "T-FDPA")


ONE, LATE = (1.0, 1.0), (2.0**-12, 2.0**-12)
"""Products 1 and 2^-24."""


@pytest.mark.parametrize(
    ("gpu", "want"),
    [
        # Cut off behind 24 bits (25 on Hopper): all of 2^-24 is kept, twice it makes float32's last place.
        ("A100-80GB", 1 + 2.0**-23),
        ("H100-SXM", 1 + 2.0**-23),
        # Volta's sums have 23 bits: 2^-24 is lost before the sum.
        ("V100-SXM2-16GB", 1.0),
    ],
)
def test_small_products_beside_a_large_one_are_cut_off_before_the_sum(gpu, want):
    assert one_row("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", gpu, [ONE, LATE, LATE], 0.0) == want


def test_hopper_keeps_a_bit_more_than_ampere():
    """Four products of 2^-25 beside 1."""
    late = (2.0**-12, 2.0**-13)
    assert one_row(F16, "A100-80GB", [ONE, *[late] * 4], 0.0) == 1.0
    assert one_row(F16, "H200", [ONE, *[late] * 4], 0.0) == 1 + 2.0**-23


def test_the_sum_is_cut_off_towards_zero():
    """1 + 2^-24 + 2^-25 is nearer to the next float32."""
    for sign in (1.0, -1.0):
        assert (
            one_row(F16, "H200", [(sign, 1.0), (sign * 2.0**-12, 2.0**-12), (sign * 2.0**-12, 2.0**-13)], 0.0) == sign
        )


def test_ampere_adds_16_products_in_two_sums_and_hopper_in_one():
    """2^23, and -2^23 behind the eighth product: between them Ampere has float32's bits for the 1.5 that it adds."""
    large, small = (2.0**12, 2.0**11), (1.5, 1.0)
    products = [large, small, *[(0.0, 0.0)] * 6, (-(2.0**12), 2.0**11)]
    assert one_row(F16, "H200", products, 0.0) == 1.5
    assert one_row(F16, "A100-80GB", products, 0.0) == 1.0


def test_a_product_is_aligned_by_the_sum_of_its_factors_exponents():
    """1.5 · 1.5 = 2.25 counts as 2^0: beside it 2^-25 is kept on Hopper. (It would be lost behind 2^1.)"""
    products = [(1.5, 1.5), (-1.5, 1.5), ONE, (-1.0, 1.0), (2.0**-12, 2.0**-13)]
    assert one_row(F16, "H200", products, 0.0) == 2.0**-25
    assert one_row(F16, "A100-80GB", products, 0.0) == 0.0


def test_c_is_aligned_as_a_product_is():
    assert one_row(F16, "H200", [(2.0**-13, 2.0**-13), (-1.0, 1.0)], 1.0) == 0.0  # 2^-26 is lost beside C
    assert one_row(F16, "H200", [(2.0**-12, 2.0**-13), (-1.0, 1.0)], 1.0) == 2.0**-25


def test_fast_rounds_each_product_to_nearest_in_float32():
    """1 + 2^-24 is 1, 16 times; the model keeps 15 · 2^-24."""
    products = [ONE, *[LATE] * 15]
    assert one_row(F16, "H200", products, 0.0, "fast") == 1.0
    assert one_row(F16, "H200", products, 0.0, "exact") == 1 + 14 * 2.0**-24


def test_subnormal_numbers_count_in_full():
    """2^-24 is float16's least; 2^-133 is bfloat16's."""
    for mma in ("fast", "exact"):
        assert one_row(F16, "H200", [(2.0**-24, 1.0)] * 3, 0.0, mma) == 3 * 2.0**-24
        assert one_row(BF16, "H200", [(2.0**-133, 1.0)] * 3, 2.0**-149, mma) == 3 * 2.0**-133 + 2.0**-149


@pytest.mark.parametrize("mma", ["fast", "exact"])
def test_infinities_and_nan_follow_ieee_and_nan_is_the_tensor_cores(mma):
    inf = float("inf")
    assert one_row(F16, "H200", [(inf, 1.0), ONE], 0.0, mma) == inf
    assert one_row(F16, "H200", [(1.0, 1.0)], -inf, mma) == -inf
    whole = product_of(F16)
    a = np.full((whole.m, whole.k), 0x7C00, np.uint16)
    b = np.zeros((whole.k, whole.n), np.uint16)
    d = multiplied(F16, a, b, np.zeros((whole.m, whole.n), np.uint32), "H200", mma)
    assert (d == 0x7FFFFFFF).all()


def test_gpus_without_a_model_say_so():
    with pytest.raises(BadLaunch, match="is not modelled"):
        numerics_of(find("MI300X"), "exact")
    with pytest.raises(BadLaunch, match="fast, exact"), undertorch.machine(mma="slow"):
        pass
    assert numerics_of(find("H200"), "fast") is None
    assert numerics_of(find("H200"), "exact") is GENERATIONS[9, 0]
    assert numerics_of(find("A10"), "exact") is GENERATIONS[8, 0]  # sm_86


# -- whole products


WMMA = r"""
#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda;
extern "C" __global__ void kernel(const TYPE* a, const TYPE* b, float* c, int n, int k, int lda, int ldb) {
    wmma::fragment<wmma::matrix_a, M, N, 16, TYPE, wmma::A_MAJOR> fa;
    wmma::fragment<wmma::matrix_b, M, N, 16, TYPE, wmma::B_MAJOR> fb;
    wmma::fragment<wmma::accumulator, M, N, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    int row = blockIdx.y * M, col = blockIdx.x * N;
    __shared__ __align__(128) float tile[M * N];
    for (int i = 0; i < k; i += 16) {
        wmma::load_matrix_sync(fa, a + (A_ROW ? row * lda + i : i * lda + row), lda);
        wmma::load_matrix_sync(fb, b + (B_ROW ? i * ldb + col : col * ldb + i), ldb);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(tile, fc, N, wmma::mem_row_major);
    __syncwarp();
    for (int e = threadIdx.x; e < M * N; e += 32) c[(row + e / N) * n + col + e % N] = tile[e];
}
"""


def close(got, exact, depth, largest):
    """Within the roundings of a chain of `depth` sums in float32."""
    return (got.double() - exact).abs().max() <= depth * 2.0**-23 * largest


@pytest.mark.parametrize("mma", ["fast", "exact"])
@pytest.mark.parametrize(
    ("kind", "shape", "a_row", "b_row"),
    [
        ("__half", (16, 16), 1, 0),
        ("__nv_bfloat16", (8, 32), 0, 1),
        ("__half", (32, 8), 0, 0),
        ("__nv_bfloat16", (16, 16), 1, 1),
    ],
)
def test_cuda_wmma_multiplies_matrices(kind, shape, a_row, b_row, mma):
    majors = [f"-D{name}_MAJOR={'row' if row else 'col'}_major" for name, row in (("A", a_row), ("B", b_row))]
    options = [f"-DTYPE={kind}", f"-DM={shape[0]}", f"-DN={shape[1]}", f"-DA_ROW={a_row}", f"-DB_ROW={b_row}", *majors]
    kernel = undertorch.cuda(WMMA, options)["kernel"]
    m, n, k = 3 * shape[0], 2 * shape[1], 80
    torch.manual_seed(sum(shape) + a_row)
    dtype = torch.float16 if kind == "__half" else torch.bfloat16
    a, b, c = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.zeros(m, n)
    memory_a, memory_b = a if a_row else a.T.contiguous(), b if b_row else b.T.contiguous()
    with undertorch.machine(mma=mma):
        kernel[(2, 3), 32](memory_a, memory_b, c, n, k, k if a_row else m, n if b_row else k)
    exact = a.double() @ b.double()
    assert close(c, exact, k + 1, (a.double().abs() @ b.double().abs()).max())


INLINE = r"""
#include <cuda_bf16.h>
extern "C" __global__ void kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int k) {
    // A is 16 × k, row by row; B is k × 8, column by column; both go through shared memory and ldmatrix.
    __shared__ __align__(16) __nv_bfloat16 sa[16 * 16], sb[8 * 16];
    int t = threadIdx.x;
    float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
    for (int i = 0; i < k; i += 16) {
        for (int e = t; e < 256; e += 32) sa[e] = a[(e / 16) * k + i + e % 16];
        for (int e = t; e < 128; e += 32) sb[TRANSPOSED ? (e % 16) * 8 + e / 16 : e] = b[(e / 16) * k + i + e % 16];
        __syncwarp();
        unsigned at = __cvta_generic_to_shared(sa + (t % 16) * 16 + (t / 16) * 8);
        unsigned bt = __cvta_generic_to_shared(TRANSPOSED ? sb + (t % 16) * 8 : sb + (t % 8) * 16 + (t / 8 % 2) * 8);
        unsigned a0, a1, a2, a3, b0, b1;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3) : "r"(at));
#if TRANSPOSED
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(b0), "=r"(b1) : "r"(bt));
#else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(b0), "=r"(b1) : "r"(bt));
#endif
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};" : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
        __syncwarp();
    }
    int row = t / 4, col = t % 4 * 2;
    c[row * 8 + col] = d0; c[row * 8 + col + 1] = d1; c[(row + 8) * 8 + col] = d2; c[(row + 8) * 8 + col + 1] = d3;
}
"""


@pytest.mark.parametrize("transposed", [0, 1])
def test_cuda_ldmatrix_and_mma_multiply_matrices(transposed):
    """B's 8×8 matrices lie with their columns in rows; or, read with .trans, as they are."""
    kernel = undertorch.cuda(INLINE, [f"-DTRANSPOSED={transposed}"])["kernel"]
    torch.manual_seed(5)
    a, b, c = torch.randn(16, 96).bfloat16(), torch.randn(8, 96).bfloat16(), torch.zeros(16, 8)
    kernel[1, 32](a, b, c, 96)
    exact = a.double() @ b.double().T
    assert close(c, exact, 97, (a.double().abs() @ b.double().abs().T).max())


# -- what instructions do besides


def test_constants_may_stand_for_c_and_inactive_instructions_do_nothing():
    body = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {
.reg .b32 %a, %b, %t; .reg .f32 %d<4>; .reg .b64 %o; .reg .pred %p;
mov.u32 %t, %tid.x; mov.b32 %a, 0x3f803f80; mov.b32 %b, 0x3f803f80;
mov.f32 %d0, 0f40000000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;
setp.gt.u32 %p, %t, 64;
@%p mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%d0, %d1, %d2, %d3}, {%a, %a}, {%b}, {%d0, %d1, %d2, %d3};
ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 16, %o;
st.global.v4.f32 [%o], {%d0, %d1, %d2, %d3};
mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32
    {%d0, %d1, %d2, %d3}, {%a, %a}, {%b}, {0f00000000, 0f3F800000, 0f00000000, 0f3F800000};
st.global.v4.f32 [%o+512], {%d0, %d1, %d2, %d3};
ret; }"""
    out = np.zeros((2, 32, 4), np.float32)
    launch(body, "k", 1, 32, (out,), gpu=find("A100-80GB"))
    assert (out[0] == 2).all()
    assert (out[1] == [8, 9, 8, 9]).all()


def test_wmma_is_counted_as_the_instructions_of_the_text_and_by_what_its_lanes_read():
    """A 16×16 of float16 is read in 4 pieces of 8 rows of 16 bytes, though its fragment holds it twice."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .b32 %r<9>; .reg .b64 %a;
ld.param.u64 %a, [a];
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%a], 64;
ret; }"""
    a = np.zeros((16, 64), np.float16)
    counted = launch(text, "k", 1, 32, (a,), gpu=find("A100-80GB"), instrument="counters").counters
    assert counted.warp_instructions == 3
    read = [access for access in counted.accesses if access.space == "global"]
    assert [(r.requests, r.bytes, r.sectors) for r in read] == [(1, 128, 8)] * 4


def test_a_fragment_of_another_size_is_refused():
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k() { .reg .b32 %r<9>;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%r2, %r3}, {%r4, %r5, %r6, %r7};
ret; }"""
    with pytest.raises(PtxError, match="names 2 registers for A; it has 4"):
        launch(text, "k", 1, 32, (), gpu=find("A100-80GB"))
