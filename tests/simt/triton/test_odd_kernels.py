"""Corners of Triton's language that few kernels use, against torch."""

import pytest
import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

pytestmark = pytest.mark.usefixtures("machine")


def seeded(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@triton.jit
def constants_kernel(x, y, N: tl.constexpr, NAME: tl.constexpr, F: tl.constexpr, ON: tl.constexpr, D: tl.constexpr,
                     NOTHING: tl.constexpr):  # fmt: skip
    values = tl.load(x + tl.arange(0, N))
    for i in tl.static_range(5, 0, -2):
        values = values * F + i
    if NAME == "relu":
        values = tl.maximum(values, 0)
    if ON and NOTHING is None:
        values += 1
    tl.store(y + tl.arange(0, N), values.to(D))


def test_constants_of_every_kind_and_loops_that_are_unrolled():
    x, y = seeded(64), torch.empty(64, dtype=torch.float64)
    constants_kernel[(1,)](x, y, 64, "relu", 1.5, True, tl.float64, None)
    want = x.clone()
    for i in (5, 3, 1):
        want = want * 1.5 + i
    assert torch.equal(y, (want.clamp_min(0) + 1).double())


@triton.jit
def assembly_kernel(x, y, z, N: tl.constexpr):
    """Four bytes lie in one register of the assembly, and come out as four."""
    wide, next = tl.inline_asm_elementwise(
        """{ .reg .b8 byte<4>;
        mov.b32 {byte0, byte1, byte2, byte3}, $8;
        cvt.u32.u8 $0, byte0; cvt.u32.u8 $1, byte1; cvt.u32.u8 $2, byte2; cvt.u32.u8 $3, byte3;
        add.u32 $4, $0, 1; add.u32 $5, $1, 1; add.u32 $6, $2, 1; add.u32 $7, $3, 1; }""",
        "=r,=r,=r,=r,=r,=r,=r,=r,r",
        [tl.load(x + tl.arange(0, N))],
        dtype=(tl.int32, tl.int32),
        is_pure=True,
        pack=4,
    )
    tl.store(y + tl.arange(0, N), wide)
    tl.store(z + tl.arange(0, N), next)


def test_assembly_inside_of_a_kernel():
    x = torch.arange(512).to(torch.uint8)
    y, z = torch.empty(512, dtype=torch.int32), torch.empty(512, dtype=torch.int32)
    assembly_kernel[(1,)](x, y, z, 512)
    assert torch.equal(y, x.int())
    assert torch.equal(z, x.int() + 1)


@triton.jit
def gather_kernel(x, index, y, A: tl.constexpr, B: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(y + at, tl.gather(tl.load(x + at), tl.load(index + at), AXIS))


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_takes_from_other_threads(axis):
    x, size = seeded(16, 32), (16, 32)[axis]
    index = torch.randint(size, (16, 32), dtype=torch.int32, generator=torch.Generator().manual_seed(axis))
    y = torch.empty_like(x)
    gather_kernel[(1,)](x, index, y, 16, 32, axis)
    assert torch.equal(y, x.gather(axis, index.long()))


@triton.jit
def rows_kernel(x, rows, y, n, columns, M: tl.constexpr, N: tl.constexpr):
    table = tl.make_tensor_descriptor(x, shape=[n, columns], strides=[columns, 1], block_shape=[1, N])
    sums = tl.make_tensor_descriptor(y, shape=[M, columns], strides=[columns, 1], block_shape=[M, N])
    sums.atomic_add([0, 0], table.gather(tl.load(rows + tl.arange(0, M)), 0))


def test_descriptors_gather_rows_and_add_to_them():
    """The last columns of the block lie outside of the tensor: they are neither read nor written."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
    x, y = seeded(100, 60), torch.ones(16, 60)
    rows = torch.randint(100, (16,), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    rows_kernel[(1,)](x, rows, y, 100, 60, 16, 64)
    assert torch.equal(y, x[rows.long()] + 1)


@triton.jit
def batched_kernel(a, b, c, B: tl.constexpr, M: tl.constexpr):
    at = tl.arange(0, B)[:, None, None] * M * M + tl.arange(0, M)[None, :, None] * M + tl.arange(0, M)[None, None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


def test_a_dot_of_three_dimensions():
    a, b = seeded(2, 4, 16, 16, dtype=torch.float16)
    c = torch.empty(4, 16, 16)
    batched_kernel[(1,)](a, b, c, 4, 16)
    assert ((c - a.double() @ b.double()).abs() <= 2**-20 * (a.double().abs() @ b.double().abs())).all()


@triton.jit
def scaled_kernel(a, a_scales, b, b_scales, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k, group = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)
    left, right = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + j[None, :])
    of_left = tl.load(a_scales + i[:, None] * (K // 32) + group[None, :])
    of_right = tl.load(b_scales + j[:, None] * (K // 32) + group[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot_scaled(left, of_left, "e5m2", right, of_right, "e5m2"))


def test_a_dot_of_bytes_with_scales():
    """OCP MX: a scale is 2^(byte - 127), one for 32 elements. Products of e5m2 are exact in bfloat16, sums are not."""
    m, n, k = 16, 16, 64
    a, b = seeded(m, k).to(torch.float8_e5m2), seeded(k, n).to(torch.float8_e5m2)
    scales = torch.randint(125, 130, (m + n, k // 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    c = torch.empty(m, n)
    scaled_kernel[(1,)](a, scales[:m].contiguous(), b, scales[m:].contiguous(), c, m, n, k)
    factors = torch.exp2(scales.double() - 127).repeat_interleave(32, 1)
    left, right = a.double() * factors[:m], b.double() * factors[m:].T
    assert ((c - left @ right).abs() <= 2**-17 * (left.abs() @ right.abs())).all()


@triton.jit
def copy_kernel(x, y, n, stride, N: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    tl.store(y + at, tl.load(x + at * stride, mask=at < n), mask=at < n)


@pytest.mark.parametrize("stride", [7, -7])
def test_strides_go_either_way_in_64_bits(stride):
    base, y = seeded(99, 7).view(-1), torch.empty(99)
    start = base[98 * 7 :] if stride < 0 else base
    copy_kernel[(2,)](start, y, 99, stride, 64)
    assert torch.equal(y, base[(0 if stride >= 0 else 98 * 7) + stride * torch.arange(99)])


@triton_op("undertorch_tests::copied", mutates_args={})
def copied(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(copy_kernel)[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), 1, 64)
    return y


copied.register_autograd(lambda context, upstream: upstream * 3)


def test_an_operator_of_torch_made_of_a_triton_kernel():
    x = seeded(100).requires_grad_()
    y = copied(x)
    y.sum().backward()
    assert torch.equal(y.detach(), x.detach())
    assert torch.equal(x.grad, torch.full((100,), 3.0))
