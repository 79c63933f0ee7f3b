"""`device="cuda"` on the CPU's memory, and torch as it was before on leaving."""

import pytest
import torch
import triton
import triton.language as tl
from torch.utils.checkpoint import checkpoint

import undertorch

pytestmark = pytest.mark.builds


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


class Doubled(torch.autograd.Function):
    """As people write it for a GPU."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        assert x.is_cuda
        ctx.save_for_backward(x)
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        double_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        assert x.device.type == dy.device.type == "cuda"
        dx = torch.empty(dy.shape, device="cuda")
        double_kernel[(triton.cdiv(dy.numel(), 64),)](dy.contiguous(), dx, dy.numel(), BLOCK=64)
        return dx


def all_of_torch():
    """What the machine replaces, as it is stored."""
    homes = (
        torch,
        torch.Tensor,
        torch.cuda,
        torch.cuda.random,
        torch.accelerator,
        torch.autograd,
        torch.amp.autocast_mode.autocast,
        torch.utils.checkpoint,
    )
    return {(home.__name__, name): value for home in homes for name, value in vars(home).items()}


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(5, device="cuda"),
        lambda: torch.zeros(5, device=torch.device("cuda:0")),
        lambda: torch.tensor([1.0, 2.0], device=0),
        lambda: torch.ones(5).cuda(),
        lambda: torch.ones(5).to("cuda", torch.float16),
        lambda: torch.ones(5).to(device="cuda:0", non_blocking=True),
        lambda: torch.empty_like(torch.ones(5), device="cuda"),
        lambda: torch.ones(5).new_zeros(3, device="cuda"),
        lambda: torch.nn.Linear(3, 4).cuda().weight,
        lambda: torch.nn.Linear(3, 4, device="cuda").weight,
        lambda: torch.randn(5, generator=torch.Generator(device="cuda").manual_seed(1), device="cuda"),
    ],
)
def test_what_is_made_for_cuda_says_that_it_is_there(make):
    tensor = make()
    assert tensor.is_cuda
    assert tensor.device == torch.device("cuda", 0) == triton.runtime.driver.active.get_active_torch_device()
    assert tensor.get_device() == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_pins_its_batches_in_its_thread_and_they_go_to_the_gpu(workers):
    data = torch.utils.data.TensorDataset(torch.arange(6.0))
    loader = torch.utils.data.DataLoader(data, 3, pin_memory=True, num_workers=workers)
    batches = [batch for (batch,) in loader]
    assert all(batch.is_pinned() for batch in batches)
    assert torch.cat([batch.to("cuda", non_blocking=True) for batch in batches]).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("machine")
def test_memory_is_pinned_where_it_is_asked_for():
    x = torch.arange(3.0)
    pinned = x.pin_memory()
    x += 1
    assert pinned.is_pinned()
    assert pinned.tolist() == [0, 1, 2], "a copy, as there"
    assert pinned.pin_memory() is pinned
    assert torch.zeros(2, pin_memory=True).is_pinned()
    assert not x.is_pinned()
    assert not pinned.cuda().is_pinned()


def test_what_training_scripts_ask_of_the_memory_is_answered():
    with undertorch.machine(gpu="H200"):
        torch.cuda.reset_peak_memory_stats()
        free, total = torch.cuda.mem_get_info()
        assert free == total == torch.cuda.get_device_properties(0).total_memory
        assert torch.accelerator.memory_allocated() == torch.cuda.max_memory_allocated() == 0
        assert "CPU" in torch.cuda.memory_summary()
        assert torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator().type == "cuda"


def test_outside_it_says_where_it_lies():
    with undertorch.machine():
        x = torch.randn(5, device="cuda")
    assert x.device.type == "cpu"
    assert not x.is_cuda


@pytest.mark.usefixtures("machine")
def test_moving_copies_as_it_does_to_a_gpu():
    x = torch.zeros(5)
    on_gpu = x.cuda()
    on_gpu += 1
    back = on_gpu.cpu()
    on_gpu += 1
    assert (x.sum(), back.sum(), on_gpu.sum()) == (0, 5, 10)
    assert on_gpu.to("cuda") is on_gpu
    assert on_gpu.cuda() is on_gpu


@pytest.mark.usefixtures("machine")
def test_a_leaf_on_the_gpu_stays_a_leaf():
    w = torch.randn(3, device="cuda", requires_grad=True).to("cuda")
    w.sum().backward()
    assert torch.equal(w.grad, torch.ones(3))


@pytest.mark.usefixtures("machine")
def test_torch_cuda_answers_for_the_gpu():
    """Of an A100: 108 SMs, compute capability 8.0."""
    assert torch.cuda.is_available()
    assert (torch.cuda.device_count(), torch.cuda.current_device()) == (1, 0)
    assert torch.cuda.get_device_capability() == (8, 0)
    assert torch.cuda.get_device_properties("cuda").multi_processor_count == 108
    assert "A100" in torch.cuda.get_device_name()
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) >= 0


@pytest.mark.usefixtures("machine")
def test_torch_accelerator_asks_no_driver():
    """Adam asks so at each step where torch is built for CUDA; without a driver that raised."""
    assert torch.accelerator.current_device_index() == 0
    assert not torch.accelerator.current_stream().is_capturing()
    torch.accelerator.synchronize()


@pytest.mark.usefixtures("machine")
def test_a_second_gpu_is_none():
    with pytest.raises(RuntimeError, match="one GPU, cuda:0"):
        torch.zeros(3, device="cuda:1")


@pytest.mark.usefixtures("machine")
def test_seeds_repeat():
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append(torch.randn(4, device="cuda"))
        torch.cuda.manual_seed(5)
        drawn.append(torch.randn(4, device="cuda"))
    assert torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[1], drawn[3])


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("how", ["backward", "grad", "checkpoint"])
def test_a_function_of_ones_own_goes_both_ways(how):
    x = torch.randn(100, device="cuda", requires_grad=True)
    if how == "checkpoint":
        y = checkpoint(lambda x: Doubled.apply(torch.nn.functional.dropout(x, 0.0)), x, use_reentrant=False)
    else:
        y = Doubled.apply(x)
    assert torch.equal(y, 2 * x)
    if how == "grad":
        (dx,) = torch.autograd.grad(y.sum(), x)
    else:
        y.sum().backward()
        dx = x.grad
    assert torch.equal(dx, torch.full((100,), 2.0))


@pytest.mark.usefixtures("machine")
def test_autocast_of_cuda_casts():
    """To float16 unless it is said otherwise, as on a GPU."""
    layer, x = torch.nn.Linear(4, 4, device="cuda"), torch.randn(2, 4, device="cuda")
    with torch.autocast("cuda"):
        assert layer(x).dtype == torch.float16
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == torch.float16
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer(x).dtype == torch.float32


@pytest.mark.usefixtures("machine")
def test_a_scaled_training_step():
    layer = torch.nn.Linear(4, 4).cuda()
    optimizer, scaler = torch.optim.AdamW(layer.parameters()), torch.amp.GradScaler("cuda")
    before = layer.weight.clone()
    scaler.scale(layer(torch.randn(3, 4, device="cuda")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(layer.weight, before)


@pytest.mark.usefixtures("machine")
def test_a_default_device_may_be_cuda(tmp_path):
    with torch.device("cuda"):
        x = torch.ones(3)
    assert x.is_cuda
    torch.save(x, tmp_path / "x.pt")
    assert torch.equal(torch.load(tmp_path / "x.pt", map_location="cuda"), x)


def test_cuda_kernels_run_among_tensors_that_say_cuda():
    scale = undertorch.ptx(SCALE)["scale"]
    with undertorch.machine():
        x = torch.ones(32, device="cuda")
        scale[1, 32](x)
    assert torch.equal(x, torch.full((32,), 3.0))


def test_all_is_as_it_was_on_leaving():
    before, active = all_of_torch(), triton.runtime.driver._active
    run, bench = triton.runtime.autotuner.Autotuner.run, triton.runtime.autotuner.Autotuner._bench
    with undertorch.machine(), undertorch.machine(gpu="H200"):
        assert torch.cuda.get_device_name() == "NVIDIA H200"
    with pytest.raises(undertorch.simt.BadLaunch), undertorch.machine(), undertorch.machine(instrument="nothing"):
        pass
    assert all_of_torch() == before
    assert triton.runtime.driver._active is active
    assert (triton.runtime.autotuner.Autotuner.run, triton.runtime.autotuner.Autotuner._bench) == (run, bench)


SCALE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    mul.f32 %f2, %f1, 0f40400000;
    st.global.f32 [%rd3], %f2;
    ret;
}
"""
