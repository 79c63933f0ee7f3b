"""The same call on a real GPU: what `undertorch.cuda` and `undertorch.ptx` do with tensors that lie on one."""

from pathlib import Path

import numpy as np
import pytest
import torch

import undertorch
from undertorch.compilers.driver import DriverError
from undertorch.simt import BadLaunch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="asks a GPU, and there is none here"),
]

SOURCE = """
__device__ int calls;
__global__ void scale(float* y, const float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) atomicAdd(&calls, 1);
    if (i < n) y[i] = by * x[i];
}
__global__ void called(int* out) { *out = calls; }
struct Pair { int a; double b; };
__global__ void sums(double* out, Pair p, short h, unsigned char c) { *out = p.a + p.b + h + c; }
extern __shared__ float tile[];
__global__ void reverse(float* x, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = tile[n - 1 - i];
}
"""
COOPERATIVE = (Path(__file__).parent / "kernels" / "cooperative.ptx").read_text()


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


def test_the_gpu_and_the_machine_give_the_same_bits(kernels):
    x = torch.randn(10_007, generator=torch.Generator().manual_seed(3))
    here, there = torch.empty_like(x), torch.empty_like(x, device="cuda")
    kernels["scale"][-(-x.numel() // 128), 128](here, x, 1 / 3, x.numel())
    kernels["scale"][-(-x.numel() // 128), 128](there, x.cuda(), 1 / 3, x.numel())
    assert torch.equal(here, there.cpu())


def test_global_variables_keep_their_values_from_launch_to_launch():
    kernels = undertorch.cuda(SOURCE)
    x, out = torch.ones(8, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    for _ in range(3):
        kernels["scale"][1, 32](x, x, 1.0, 8)
    kernels["called"][1, 1](out)
    assert out.item() == 3


def test_structs_and_narrow_scalars_arrive(kernels):
    out = torch.zeros(1, dtype=torch.float64, device="cuda")
    pair = np.array([(7, 0.25)], np.dtype([("a", "i4"), ("b", "f8")], align=True))[0]
    kernels["sums"][1, 1](out, pair, -3, 200)
    assert out.item() == 204.25


@pytest.mark.parametrize("n", [1000, 40_000])
def test_dynamic_shared_memory_also_above_48_kib(kernels, n):
    """More than 48 KiB has to be asked for by cuFuncSetAttribute; an H200's block may have 227 KiB."""
    x = torch.arange(n, dtype=torch.float32, device="cuda")
    kernels["reverse"][1, 256, 4 * n](x, n)
    assert torch.equal(x.cpu(), torch.arange(n - 1, -1, -1, dtype=torch.float32))


def test_more_shared_memory_than_the_gpu_has_is_a_sentence(kernels):
    with pytest.raises((DriverError, BadLaunch)):
        kernels["reverse"][1, 256, 4 * 1024 * 1024](torch.zeros(4, device="cuda"), 4)
    torch.cuda.synchronize()  # and the context lives


def test_a_launch_goes_into_the_current_stream(kernels):
    """The side stream sleeps first: what the default stream read too early would be zeros."""
    side, x = torch.cuda.Stream(), torch.ones(1 << 20, device="cuda")
    y = torch.zeros_like(x)
    y.sum().item()  # loads sum's kernel, which may wait for the whole GPU
    kernels["scale"][1, 32](y, x, 0.0, 1)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(500_000_000)  # cycles: a quarter of a second
        kernels["scale"][x.numel() // 256, 256](y, x, 2.0, x.numel())
    early = y.sum().item()
    side.synchronize()
    assert (early, y.sum().item()) == (0, 2 * x.numel())


@pytest.mark.parametrize(("blocks", "block"), [(1, 33), (7, 96), (132, 1024)])
def test_a_grid_waits_for_all_its_blocks(blocks, block):
    x, rounds = torch.from_numpy(np.random.default_rng(1).integers(-50, 50, 20_011, np.int32)).cuda(), 3
    sums = torch.zeros(blocks, dtype=torch.int32, device="cuda")
    totals = torch.zeros(rounds, blocks, dtype=torch.int32, device="cuda")
    undertorch.ptx(COOPERATIVE)["grid_sums"][blocks, block](x, x.numel(), sums, totals, rounds)
    want = np.full((rounds, blocks), x.sum().item()) * np.arange(1, rounds + 1)[:, None]
    assert np.array_equal(totals.cpu().numpy(), want)


@pytest.mark.parametrize("size", [16, 64, 256])
def test_tiles_give_what_the_machine_gives(size):
    x = np.random.default_rng(size).integers(-50, 50, (3, 512), np.int32)
    here, there = np.zeros((3, 8, 512), np.int32), torch.zeros(3, 8, 512, dtype=torch.int32, device="cuda")
    file = undertorch.ptx(COOPERATIVE)
    file[f"tiles_of_{size}"][3, 512](x, here)
    file[f"tiles_of_{size}"][3, 512](torch.from_numpy(x).cuda(), there)
    assert np.array_equal(here, there.cpu().numpy())


def test_an_operator_of_torch_compiles_on_a_gpu(kernels):
    @undertorch.torch_op("undertorch_tests::scaled_there")
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        kernels["scale"][-(-x.numel() // 128), 128](y, x, by, x.numel())
        return y

    x = torch.randn(33, 65, device="cuda")
    both = torch.compile(lambda t: scaled(t + 1, 3.0) * 2, fullgraph=True)
    assert torch.allclose(both(x), (x + 1) * 6)


def test_inside_a_captured_graph(kernels):
    x, y = torch.arange(256, dtype=torch.float32, device="cuda"), torch.zeros(256, device="cuda")
    kernels["scale"][1, 256](y, x, 1.0, 256)  # loads the module: not allowed while capturing
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels["scale"][1, 256](y, x, 5.0, 256)
    x.add_(1)
    graph.replay()
    assert torch.equal(y, 5 * x)


def test_tensors_on_a_gpu_are_refused_by_the_machine(kernels):
    x, y = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda")  # inside, "cuda" would be the machine
    with undertorch.machine(gpu="H200"), pytest.raises(BadLaunch, match=r"move them with \.cpu\(\)"):
        kernels["scale"][1, 32](x, y, 1.0, 4)


def test_memory_of_the_host_is_refused_on_a_gpu(kernels):
    with pytest.raises(BadLaunch, match=r"move it with \.cuda\(\)"):
        kernels["scale"][1, 32](torch.zeros(4, device="cuda"), torch.zeros(4), 1.0, 4)
