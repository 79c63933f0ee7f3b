"""Every Triton kernel compiles for NVIDIA's and AMD's GPUs, and the CUDA C++ for Hopper, without any of them."""

import re
import subprocess
import sys
from importlib import import_module

import pytest
import torch

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

from undertorch import ops  # noqa: E402
from undertorch.compilers.ptxas import programs  # noqa: E402
from undertorch.compilers.triton_driver import Driver, put_in_place  # noqa: E402
from undertorch.costs.softmax_and_rope import CLUSTERS  # noqa: E402
from undertorch.gpus import find  # noqa: E402
from undertorch.ops.calls import on_host  # noqa: E402
from undertorch.ops.cross_entropy_ways import RINGS, SOURCE, Settings  # noqa: E402

softmax = import_module("undertorch.ops.softmax")  # the package has the function of that name

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}

BF16 = torch.bfloat16
KERNELS = {
    *("norm_forward", "wide_norm_forward", "norm_backward", "wide_norm_dx", "wide_norm_dw", "column_sums"),
    *("losses", "gradients", "label_weight", "reduced", "squares", "root", "coefficients", "update"),
    *("gradients_unless_one", "scaled_unless_one", "gated_forward", "gated_backward"),
    *("softmax_forward", "softmax_backward", "wide_softmax_forward", "wide_softmax_backward", "rotate"),
    *("activate", "activate_backward"),
    *("attend", "attend_backward_queries", "attend_backward_keys"),
}
HELD = {"held_norm_backward", "held_softmax_forward", "held_softmax_backward"}
"""Of NVIDIA's GPUs alone."""


def calls():
    """Each op once, with everything switched on, and once more with rows too wide for registers."""
    for width in (768, 40000):
        x, residual = (torch.randn(4, width, dtype=BF16, requires_grad=True) for _ in range(2))
        weight, bias = (torch.randn(width, requires_grad=True) for _ in range(2))
        y, total = ops.add_layer_norm(x, residual, weight, bias)
        torch.autograd.grad([y, total], [x, weight, bias], [x.detach(), x.detach()])
        torch.autograd.grad(ops.rms_norm(x, weight), [x, weight], x.detach())
    labels = torch.tensor([1, 2, -100, 3])
    for settings in (
        {"gradient": "backward"},
        {"gradient": "forward"},
        {"label_smoothing": 0.1, "z_loss": 1e-3, "softcap": 20.0, "weight": torch.rand(40000)},
    ):
        torch.autograd.grad(ops.cross_entropy(x, labels, **settings), x, torch.tensor(1.0))
    odd = torch.randn(4, 39999, dtype=BF16, requires_grad=True)
    torch.autograd.grad(ops.cross_entropy(odd, labels), odd)
    head = torch.randn(301, 768, dtype=BF16, requires_grad=True)
    torch.autograd.grad(ops.linear_cross_entropy(x[:, :768], head, labels), [x, head])
    gate, up = torch.randn(6, 700, requires_grad=True).chunk(2, -1)
    for activated in (ops.swiglu(gate, up), ops.geglu(gate, up), ops.geglu(gate, up, approximate="tanh")):
        torch.autograd.grad(activated.sum(), [gate, up])
    x, weight = (torch.randn(*shape, dtype=BF16, requires_grad=True) for shape in ((3, 32768), (32768,)))
    torch.autograd.grad(ops.rms_norm(x, weight), [x, weight], x.detach())
    x = torch.randn(3, 65536, dtype=BF16, requires_grad=True)
    torch.autograd.grad(ops.softmax(x), x, x.detach())
    transformer_calls()
    p, master = torch.randn(5000, dtype=BF16, requires_grad=True), torch.randn(3000, requires_grad=True)
    p.grad, master.grad = p.detach(), master.detach()
    ops.AdamW([p, master], max_norm=1.0).step()


def transformer_calls():
    """The same of softmax, rotary embedding, linear layer with activation, and attention."""
    for width in (700, 40000):
        x = torch.randn(4, width, dtype=BF16, requires_grad=True)
        torch.autograd.grad(ops.softmax(x), x, x.detach())
    q, k, v = (torch.randn(1, heads, 20, 128, dtype=BF16, requires_grad=True) for heads in (4, 2, 2))
    for interleaved in (False, True):
        angles = (torch.randn(30, 24), torch.randn(30, 24))
        torch.autograd.grad(
            ops.rope(q, k, *angles, positions=torch.arange(20), interleaved=interleaved),
            [q, k],
            [q.detach(), k.detach()],
        )
    torch.autograd.grad(ops.attention(q, k, v, causal=True, window=9, softcap=20.0), [q, k, v], q.detach())
    x, weight, bias = (torch.randn(*shape, dtype=BF16, requires_grad=True) for shape in ((9, 64), (70, 64), (70,)))
    torch.autograd.grad(ops.linear_act(x, weight, bias).sum(), [x, weight, bias])


@pytest.fixture
def launched(request, tmp_path, monkeypatch):
    """The names of kernels that were compiled for the target; none runs."""
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    names = set()
    driver = Driver(find("H200"), lambda launch: names.add(launch.name), lambda name, count: None)
    driver._target = TARGETS[request.param]
    undo = put_in_place(driver)
    forget()
    yield names
    undo()
    forget()


def forget():
    """Triton keeps what it compiled for device 0, whatever driver said what that is."""
    for name, module in list(sys.modules.items()):
        if name.startswith("undertorch.ops."):
            for value in vars(module).values():
                if isinstance(value, JITFunction):
                    value.device_caches.clear()


# For NVIDIA's they are compiled by every test that runs them on the machine; all of them at once takes half a minute.
SLOW = {name: () if name == "gfx942" else (pytest.mark.slow,) for name in TARGETS}


@pytest.mark.parametrize(
    ("launched", "kernels"),
    [
        pytest.param(name, KERNELS if name == "gfx942" else KERNELS | HELD, marks=marks, id=name)
        for name, marks in SLOW.items()
    ],
    indirect=["launched"],
)
def test_every_kernel_compiles(launched, kernels):
    with on_host():
        calls()
    assert launched == kernels


@pytest.mark.parametrize("ring", RINGS, ids=str)
def test_the_cuda_source_compiles_for_hopper_without_spills(ring, tmp_path):
    everything = Settings(ignore_index=-100, smoothing=0.1, reduction="mean", z_loss=1e-3, softcap=None)
    said = said_of(SOURCE, ring.defines(everything), tmp_path)
    assert any("0 bytes stack frame, 0 bytes spill stores" in text for text in said)


@pytest.mark.parametrize(("width", "backward"), CLUSTERS)
def test_clusters_of_softmax_compile_for_hopper_without_spills(width, backward, tmp_path):
    """What a row's blocks hold of it is to stay in registers."""
    ways = softmax.ways(width, 4096, 132, backward=backward, cuda=True)
    for cluster in (way for way in ways if isinstance(way, softmax.Cluster)):
        said = said_of(softmax.SOURCE, cluster.defines(width, BF16), tmp_path)
        of_it = rf"properties for softmax_{'backward' if backward else 'forward'}\s.*?(\d+) bytes spill stores"
        spilt = [int(n) for text in said for n in re.findall(of_it, text, re.DOTALL)]
        assert spilt
        assert max(spilt) == 0


def said_of(source, defines, folder):
    """What each assembler there is says of a source's kernels."""
    pytest.importorskip("cuda.bindings")
    file = folder / "kernels.ptx"
    file.write_text(source.ptx(defines))
    return [
        subprocess.run(
            [program, "-v", "-arch=sm_90a", str(file), "-o", str(folder / "out")],
            capture_output=True,
            text=True,
            check=False,
        ).stderr
        for program in programs()
    ]
