"""What Triton's operations compute, against torch in float64 or exact integers."""

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.usefixtures("machine")


def seeded(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@triton.jit
def softmax_kernel(x, y, row, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    base = tl.program_id(0) * row
    values = tl.load(x + base + at, mask=at < n, other=-float("inf"))
    top = tl.exp(values - tl.max(values, 0))
    tl.store(y + base + at, top / tl.sum(top, 0), mask=at < n)


@triton.jit
def scan_kernel(x, sums, products, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(values, 0))
    tl.store(products + at, tl.cumprod(values, 0, reverse=True))


@triton.jit
def sort_kernel(x, y, most, which, N: tl.constexpr):
    at = tl.arange(0, N)
    values = tl.load(x + at)
    tl.store(y + at, tl.sort(values, descending=True))
    tl.store(most, tl.max(values, 0))
    tl.store(which, tl.argmax(values, 0))


@triton.jit
def histogram_kernel(x, counts, N: tl.constexpr, BINS: tl.constexpr):
    values = tl.load(x + tl.arange(0, N))
    tl.store(counts + tl.arange(0, BINS), tl.histogram(values, BINS))


@triton.jit
def atomics_kernel(x, total, most, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(total, tl.sum(values, 0))
    tl.atomic_max(most, tl.max(values, 0))
    tl.atomic_add(counts + values % 7, 1, mask=at < n)


@triton.jit
def locked_kernel(lock, value):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(value, tl.load(value) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def casts_kernel(x, halves, brains, eighths, whole, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(halves + at, values.to(tl.float16), mask=at < n)
    tl.store(brains + at, values.to(tl.bfloat16), mask=at < n)
    tl.store(eighths + at, values.to(tl.float8e5), mask=at < n)
    tl.store(whole + at, values.to(tl.int32), mask=at < n)


@triton.jit
def random_kernel(out, seed, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.randint(seed, at))


@triton.jit
def functions_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.sin(v), mask=at < n)
    tl.store(y + n + at, tl.exp2(v), mask=at < n)
    tl.store(y + 2 * n + at, tl.log(tl.abs(v)), mask=at < n)
    tl.store(y + 3 * n + at, tl.rsqrt(tl.abs(v)), mask=at < n)
    tl.store(y + 4 * n + at, tl.erf(v), mask=at < n)
    tl.store(y + 5 * n + at, tl.sigmoid(v), mask=at < n)
    tl.store(y + 6 * n + at, tl.floor(v), mask=at < n)


@triton.jit
def dot_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    product = tl.dot(
        tl.load(a + m[:, None] * K + k[None, :]),
        tl.load(b + k[:, None] * N + n[None, :]),
        input_precision=PRECISION,
        out_dtype=c.dtype.element_ty,
    )
    tl.store(c + m[:, None] * N + n[None, :], product)


@pytest.mark.parametrize(("rows", "columns"), [(7, 1000), (64, 128), (3, 33)])
def test_softmax(rows, columns):
    x = seeded(rows, columns)
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, columns, columns, BLOCK=triton.next_power_of_2(columns))
    torch.testing.assert_close(y.double(), x.double().softmax(1), rtol=1e-6, atol=1e-8)


def test_scans_of_integers_are_exact():
    x = torch.randint(-3, 4, (256,), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    x[x == 0] = 1
    sums, products = torch.empty_like(x), torch.empty_like(x)
    scan_kernel[(1,)](x, sums, products, N=256)
    assert torch.equal(sums, x.cumsum(0).int())
    wrapped = 1
    for value, got in zip(x.flip(0).tolist(), products.flip(0).tolist(), strict=True):
        wrapped = wrapped * value
        assert (wrapped - got) % 2**32 == 0


@pytest.mark.parametrize("n", [16, 512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float16])
def test_sort_and_argmax(n, dtype):
    x = (1000 * seeded(n)).to(dtype)
    y, most, which = torch.empty_like(x), torch.empty(1, dtype=dtype), torch.empty(1, dtype=torch.int32)
    sort_kernel[(1,)](x, y, most, which, N=n)
    assert torch.equal(y, x.sort(descending=True).values)
    assert (most.item(), which.item()) == (x.max().item(), x.argmax().item())


def test_histogram():
    x = torch.randint(0, 32, (1024,), generator=torch.Generator().manual_seed(3), dtype=torch.int32)
    counts = torch.zeros(32, dtype=torch.int32)
    histogram_kernel[(1,)](x, counts, N=1024, BINS=32)
    assert torch.equal(counts, torch.bincount(x, minlength=32).int())


def test_atomics_of_many_blocks():
    x = torch.randint(0, 1000, (5000,), generator=torch.Generator().manual_seed(4), dtype=torch.int32)
    total, most = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    counts = torch.zeros(7, dtype=torch.int32)
    atomics_kernel[(triton.cdiv(5000, 256),)](x, total, most, counts, 5000, BLOCK=256)
    assert (total.item(), most.item()) == (x.sum().item(), x.max().item())
    assert torch.equal(counts, torch.bincount(x % 7, minlength=7).int())


def test_a_lock_lets_one_block_in_at_a_time():
    lock, value = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    locked_kernel[(300,)](lock, value)
    assert (lock.item(), value.item()) == (0, 300)


def test_casts_round_as_torch_rounds():
    x = 100 * seeded(3000)
    held = [torch.empty(3000, dtype=d) for d in (torch.float16, torch.bfloat16, torch.float8_e5m2, torch.int32)]
    casts_kernel[(12,)](x, *held, 3000, BLOCK=256)
    for got in held:
        assert torch.equal(got.float(), x.to(got.dtype).float())


def test_random_numbers_are_those_of_philox():
    """Philox-4x32-10 (Salmon et al., 2011) of the counter (0, 0, 0, 0) under the key (0, 0): its first word."""
    out = torch.empty(64, dtype=torch.int32)
    random_kernel[(1,)](out, 0, N=64)
    assert out[0].item() & 0xFFFFFFFF == 0x6627E8D5


def test_functions():
    """float32 functions of Triton: a few units in the last place of float64's results, rounded."""
    x = seeded(2000)
    y = torch.empty(7, 2000)
    functions_kernel[(8,)](x, y, 2000, BLOCK=256)
    v = x.double()
    right = [v.sin(), v.exp2(), v.abs().log(), v.abs().rsqrt(), v.erf(), v.sigmoid(), v.floor()]
    torch.testing.assert_close(y.double(), torch.stack(right), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (64, 32, 128)])
@pytest.mark.parametrize(
    ("dtype", "precision", "bits"),
    [
        (torch.float16, "ieee", 11),
        (torch.bfloat16, "ieee", 8),
        (torch.float32, "tf32", 11),
        (torch.float32, "tf32x3", 22),
        (torch.float32, "ieee", 24),
    ],
    ids=lambda v: str(v).removeprefix("torch."),
)
def test_matmuls_of_floats(dtype, precision, bits, m, n, k):
    """Products of inputs that were rounded to so many bits, summed in float32."""
    a, b = seeded(m, k, dtype=dtype), seeded(k, n, dtype=dtype)
    c = torch.empty(m, n)
    dot_kernel[(1,)](a, b, c, m, n, k, precision)
    right = a.double() @ b.double()
    rounding = 0 if dtype != torch.float32 else 2.0**-bits
    bound = (a.double().abs() @ b.double().abs()) * (3 * rounding + k * 2.0**-23)
    assert ((c.double() - right).abs() <= bound).all()


def test_matmul_of_bytes_is_exact():
    a, b = (
        torch.randint(-128, 128, (32, 64), generator=torch.Generator().manual_seed(s)).to(torch.int8) for s in (1, 2)
    )
    b = b.reshape(64, 32)
    c = torch.empty(32, 32, dtype=torch.int32)
    dot_kernel[(1,)](a, b, c, 32, 32, 64, "ieee")
    assert torch.equal(c, a.int() @ b.int())


def test_matmul_of_doubles():
    a, b = seeded(16, 32, dtype=torch.float64), seeded(32, 16, dtype=torch.float64)
    c = torch.empty(16, 16, dtype=torch.float64)
    dot_kernel[(1,)](a, b, c, 16, 16, 32, "ieee")
    torch.testing.assert_close(c, a @ b, rtol=1e-14, atol=1e-14)
