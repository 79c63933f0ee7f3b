"""Triton's kernels on CPU tensors: what a launch takes, and what it does."""

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import undertorch
from undertorch.simt import BadLaunch

pytestmark = pytest.mark.usefixtures("machine")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def scalars_kernel(out, i, long, f, half: "fp16", brain: "bf16", double: "fp64", small: "i8", flag, pair, nothing):  # noqa: F821
    tl.store(out, i)
    tl.store(out + 1, long)
    tl.store(out + 2, f)
    tl.store(out + 3, half)
    tl.store(out + 4, brain)
    tl.store(out + 5, double)
    tl.store(out + 6, small)
    tl.store(out + 7, flag)
    tl.store(out + 8, pair[0])
    tl.store(out + 9, pair[1])
    tl.store(out + 10, nothing is None)


@triton.jit
def transpose_kernel(x, y, rows, columns, x_row, x_column, y_row, y_column, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (r < rows) & (c < columns)
    tl.store(y + c * y_row + r * y_column, tl.load(x + r * x_row + c * x_column, mask=inside), mask=inside)


@triton.jit
def place_kernel(out):
    at = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    tl.store(out + at, at)


@triton.jit
def described_kernel(given, y, rows, columns, BLOCK: tl.constexpr):
    made = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [BLOCK, BLOCK])
    at = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    made.store(at, given.load(at) * 2)


@triton.jit
def gathered_kernel(addresses, out, BLOCK: tl.constexpr):
    which = tl.program_id(0)
    x = tl.load(addresses + which).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + which * BLOCK + at, tl.load(x + at))


@pytest.mark.parametrize("n", [1, 100, 1024, 5003])
@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS, *FLOATS], ids=str)
def test_every_dtype_is_copied_bit_for_bit(dtype, n):
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (n * dtype.itemsize,), dtype=torch.uint8)
    x = bits.view(dtype)
    y = torch.zeros_like(bits).view(dtype)
    copy_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, BLOCK=256)
    if dtype.is_floating_point:  # NaNs keep their payload too
        assert torch.equal(y.view(torch.uint8), bits)
    else:
        assert torch.equal(y, x)


def test_scalars_tuples_and_none_arrive():
    """Values that each type holds exactly; 1.1 is rounded to nearest in float32, and 2**40 takes 64 bits."""
    out = torch.zeros(11, dtype=torch.float64)
    scalars_kernel[(1,)](out, 7, 2**40, 1.1, 0.125, 3.0, 1.1, -5, True, (11, 2.5), None)
    assert out.tolist() == [7, 2**40, torch.tensor(1.1).item(), 0.125, 3.0, 1.1, -5, 1, 11, 2.5, 1]


@pytest.mark.parametrize("shape", [(33, 70), (1, 5), (64, 64)])
def test_strides_are_the_kernels_to_use(shape):
    x = torch.randn(shape[0] * 2, shape[1] + 3, generator=torch.Generator().manual_seed(1))[::2, 3:]
    y = torch.zeros(shape[1], shape[0])
    transpose_kernel[triton.cdiv(shape[0], 32), triton.cdiv(shape[1], 32)](
        x, y, *shape, *x.stride(), *y.stride(), BLOCK=32
    )
    assert torch.equal(y, x.T)


@pytest.mark.parametrize("grid", [(5,), (5, 3), (2, 3, 4)])
def test_grids_have_up_to_three_dimensions(grid):
    out = torch.full((24,), -1, dtype=torch.int32)
    place_kernel[grid](out)
    blocks = torch.tensor(grid).prod().item()
    assert out.tolist() == [*range(blocks), *[-1] * (24 - blocks)]


def test_a_grid_without_blocks_runs_nothing():
    out = torch.full((1,), -1, dtype=torch.int32)
    place_kernel[(0,)](out)
    assert out.item() == -1


def test_tensor_descriptors_are_made_on_either_side():
    """On sm_80 Triton rewrites them to pointers; what a block reaches beyond the edge is zero, and is not stored."""
    x = torch.randn(40, 52, generator=torch.Generator().manual_seed(2))
    y = torch.zeros_like(x)
    given = TensorDescriptor.from_tensor(x, [16, 16])
    described_kernel[3, 4](given, y, *x.shape, BLOCK=16)
    assert torch.equal(y, 2 * x)


def test_addresses_inside_of_a_tensor_lead_to_live_tensors():
    parts = [torch.randn(64) for _ in range(5)]
    addresses = torch.tensor([part.data_ptr() for part in parts])
    out = torch.empty(5, 64)
    gathered_kernel[(5,)](addresses, out, BLOCK=64)
    assert torch.equal(out, torch.stack(parts))


def test_an_address_of_nothing_is_a_fault():
    held = torch.empty(1 << 20)
    addresses = torch.tensor([held.data_ptr()])
    del held
    with pytest.raises(undertorch.simt.Fault, match="out-of-bounds"):
        gathered_kernel[(1,)](addresses, torch.empty(64), BLOCK=64)


def test_a_kernel_is_compiled_once_for_each_specialisation():
    x, y = torch.randn(64), torch.zeros(64)
    first = copy_kernel[(1,)](x, y, 64, BLOCK=64)
    assert copy_kernel[(1,)](y, x, 64, BLOCK=64) is first
    assert copy_kernel[(1,)](x, y, 64, BLOCK=128) is not first
    assert copy_kernel[(1,)](x, y, 63, BLOCK=64) is not first  # no multiple of 16


def test_warmup_compiles_and_runs_nothing():
    compiled = copy_kernel.warmup(torch.float32, torch.float32, 16, BLOCK=16, grid=(1,))
    assert ".target sm_80" in compiled.asm["ptx"]
    x, y = torch.randn(16), torch.zeros(16)
    compiled[1, 1, 1](x, y, 16, 16)
    assert torch.equal(x, y)


def test_run_takes_what_brackets_do():
    x, y = torch.randn(16), torch.zeros(16)
    copy_kernel.run(x, y, 16, BLOCK=16, grid=(1,), warmup=False)
    assert torch.equal(x, y)


def test_hooks_are_told_of_launches(monkeypatch):
    told = []
    monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", lambda m: told.append(("enter", m.get()["name"])))
    monkeypatch.setattr(triton.knobs.runtime, "launch_exit_hook", lambda m: told.append(("exit", m.get()["name"])))
    copy_kernel[(1,)](torch.ones(8), torch.ones(8), 8, BLOCK=8)
    assert told == [("enter", "copy_kernel"), ("exit", "copy_kernel")]


def test_clusters_are_refused():
    with pytest.raises(Exception, match="num_ctas"):
        copy_kernel[(1,)](torch.ones(8), torch.ones(8), 8, BLOCK=8, num_ctas=2)


def test_a_cooperative_grid_has_to_be_resident():
    """108 SMs of 2048 threads hold 16 blocks of 128 threads each: 1728."""
    x, y = torch.ones(8), torch.zeros(8)
    copy_kernel[(1728,)](x, y, 8, BLOCK=8, launch_cooperative_grid=True)
    with pytest.raises(BadLaunch, match="1728 of 128 threads"):
        copy_kernel[(1729,)](x, y, 8, BLOCK=8, launch_cooperative_grid=True)


def test_counters_count_triton_kernels_too():
    """4096 floats are read and written: 512 sectors of 32 bytes each way."""
    with undertorch.machine(instrument="counters") as counting:
        copy_kernel[(4,)](torch.ones(4096), torch.ones(4096), 4096, BLOCK=1024)
    accesses = counting.launches[0].counters.accesses
    assert sum(a.sectors for a in accesses if a.site.reads) == 512
    assert sum(a.sectors for a in accesses if a.site.writes) == 512


def test_a_hopper_runs_code_of_sm_80():
    with undertorch.machine(gpu="H200"):
        compiled = copy_kernel[(1,)](torch.ones(8), torch.zeros(8), 8, BLOCK=8)
    assert ".target sm_80" in compiled.asm["ptx"]


def test_a_gpu_that_runs_no_ptx_is_refused():
    with undertorch.machine(gpu="MI300X"), pytest.raises(BadLaunch, match="MI300X has warps of 64 lanes"):
        copy_kernel[(1,)](torch.ones(8), torch.zeros(8), 8, BLOCK=8)
