"""Rows in shared memory, or in the registers of blocks in CUDA C++, give what float64 gives, on the machine."""

from importlib import import_module

import pytest
import torch
from torch.nn import functional

import undertorch
from undertorch.costs.softmax_and_rope import HeldRow, held_row
from undertorch.ops import norms
from undertorch.ops.norm_cuts import Held

softmax = import_module("undertorch.ops.softmax")  # the package has the function of that name

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
TOLERANCE = {BF16: 0.004, FP16: 0.0005, FP32: 2e-7}
"""Of the norm of a result: rounding errors of up to half a unit have a third of that."""

ROWS = 7
"""The machine's grid has two blocks, so that each walks over three rows or four."""


def apart(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return float((ours.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize(
    ("centred", "total", "dtype", "way"),
    [
        (False, False, BF16, Held(tile=512, tiles=4, warps=2)),
        (True, True, BF16, Held(tile=1024, tiles=2, warps=4, more=1)),
        (True, False, FP32, Held(tile=256, tiles=8, warps=2, more=9)),
        (True, False, FP16, Held(tile=1024, tiles=2, warps=4, bias_apart=True)),
    ],
    ids=str,
)
def test_a_norms_gradients_are_right_with_rows_in_shared_memory(centred, total, dtype, way):
    """Tiles of more rows than one on their way, a gradient of the sum, a weight that lies there too."""
    torch.manual_seed(0)
    width = 2048
    x, dy, dtotal = ((torch.randn(ROWS, width) * 2 + shift).to(dtype) for shift in (3, 0, 0))
    weight, bias = torch.randn(width).to(dtype), torch.randn(width).to(dtype) if centred else None
    value = x.double().requires_grad_()
    vectors = [vector.double().requires_grad_() for vector in (weight, bias) if vector is not None]
    if centred:
        y = functional.layer_norm(value, (width,), *vectors, 1e-5)
    else:
        y = value * torch.rsqrt(value.square().mean(-1, keepdim=True) + 1e-5) * vectors[0]
    wanted = torch.autograd.grad(y, [value, *vectors], dy.double())
    if total:
        wanted = (wanted[0] + dtotal.double(), *wanted[1:])
    mean = x.double().mean(-1).float() if centred else None
    spread = x.double().var(-1, correction=0) if centred else x.double().square().mean(-1)
    rstd = torch.rsqrt(spread + 1e-5).float()
    with undertorch.machine(gpu="H200"):
        found = [
            norms.backward(
                dy, dtotal if total else None, x, weight, mean, rstd, dtype if centred else None, True, True, centred,
                centred=centred, name="norm", tile=way,
            )
            for _ in range(2)
        ]  # fmt: skip
    for ours, again, exact in zip(*found, [*wanted, None][:3], strict=True):
        if exact is not None:
            assert apart(ours, exact) < TOLERANCE[dtype]
            assert torch.equal(ours, again)


def logits(width: int, dtype: torch.dtype) -> torch.Tensor:
    """Confident ones; nothing but -inf, which is nan as torch has it; -inf in a part; a part far below; all lowest."""
    x = (torch.randn(ROWS, width) * 4).to(dtype)
    x[1] = -float("inf")
    x[2, : width * 3 // 5] = -float("inf")
    x[3, width // 2 :] -= 3000
    x[4] = torch.finfo(dtype).min
    return x


def check_softmax(x, dy, y, dx):
    exact, others = x.double().softmax(-1), [0, 2, 3, 4, 5, 6]
    assert y[1].isnan().all()
    assert apart(y[others], exact[others]) < TOLERANCE[x.dtype]
    value, given = y.nan_to_num().double(), dy.double()
    gradient = value * (given - (given * value).sum(-1, keepdim=True))
    assert apart(dx, gradient) < 2 * TOLERANCE[x.dtype]  # few elements make up the norm of a confident row


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize(("threads", "vectors", "width", "keep"), [(64, 3, 1000, 0), (128, 2, 2048, 1)])
def test_softmax_in_cuda_is_right_with_one_block_a_row(dtype, threads, vectors, width, keep):
    """The machine has no clusters (docs/machine.md); what blocks of a cluster do apart from each other is the same."""
    pytest.importorskip("cuda.bindings")
    torch.manual_seed(0)
    defines = {"THREADS": threads, "CLUSTER": 1, "A_THREAD": vectors, "RESIDENT": 1, "KEEP": keep}
    defines["HALF"] = int(dtype == FP16)
    source = undertorch.cuda(softmax.SOURCE.path.read_text(), [f"-D{name}={value}" for name, value in defines.items()])
    x, dy = logits(width, dtype), torch.randn(ROWS, width).to(dtype)
    y, dx = torch.empty_like(x), torch.empty_like(x)
    bits = [tensor.view(torch.uint16) for tensor in (x, y, dy, dx)]
    source["softmax_forward"][ROWS, threads](bits[0], bits[1], width, width)
    y_given = y.nan_to_num()
    source["softmax_backward"][ROWS, threads](bits[2], y_given.view(torch.uint16), bits[3], width, width, width)
    check_softmax(x, dy, y, dx)


@pytest.mark.parametrize(("dtype", "slots", "kept", "again"), [(BF16, 4, 0, 0), (FP16, 2, 1, 1), (BF16, 1, 2, 1)])
def test_softmax_is_right_with_rows_in_shared_memory(dtype, slots, kept, again):
    """The forward wholly; the backward as far as there is room, then in registers, then twice."""
    torch.manual_seed(0)
    row = HeldRow(slots=slots, kept=kept, again=again)
    x, dy = logits(2048, dtype), torch.randn(ROWS, 2048).to(dtype)
    with undertorch.machine(gpu="H200"):
        whole = HeldRow(slots=4, kept=0, again=0)
        y = softmax.forward(x, tile=softmax.Held(row=whole, tile=512, warps=2))
        dx = softmax.backward(dy, y.nan_to_num(), tile=softmax.Held(row=row, tile=512, warps=2))
    check_softmax(x, dy, y, dx)


@pytest.mark.parametrize("width", [36864, 50176, 65536, 98304, 131072])
@pytest.mark.parametrize("shared", [99 * 1024, 163 * 1024, 227 * 1024])
@pytest.mark.parametrize("backward", [False, True])
def test_a_row_of_softmax_in_shared_memory_has_room_there(width, shared, backward):
    """Bytes of shared memory that a block can get: CUDA C++ Programming Guide, table of technical specifications."""
    row = held_row(width, 2, shared, backward=backward)
    if row is not None:
        assert row.slots * 4096 * 2 * (1 + backward) < shared
        assert (row.slots + row.kept + row.again) * 4096 == width
        assert backward or row.kept == row.again == 0
    assert held_row(width, 4, shared, backward=backward) is None
    assert held_row(width + 8, 2, shared, backward=backward) is None


@pytest.mark.parametrize("moved", ["dy", "x", "weight"])
def test_rows_at_an_odd_address_are_not_copied_to_shared_memory(moved, monkeypatch):
    """Where they cannot be: the usual way of a class of calls is another then, and right."""
    monkeypatch.setenv("UNDERTORCH_OPS", "own")
    torch.manual_seed(0)
    width = 16384
    given = {name: torch.randn(*shape).to(BF16) for name, shape in
             (("dy", (3, width)), ("x", (3, width)), ("weight", (width,)))}  # fmt: skip
    flat = given[moved].flatten()
    given[moved] = torch.cat([flat[:1], flat])[1:].view(given[moved].shape)
    assert given[moved].data_ptr() % 16
    x, weight, dy = (given[name].double().requires_grad_() for name in ("x", "weight", "dy"))
    rstd = torch.rsqrt(x.detach().square().mean(-1) + 1e-5)
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight
    wanted = torch.autograd.grad(y, [x, weight], dy.detach())
    needs = (None, True, True, False)
    with undertorch.machine(gpu="H200"):
        found = norms.backward(
            given["dy"], None, given["x"], given["weight"], None, rstd.float(), *needs, centred=False, name="rms_norm"
        )
    assert all(apart(ours, exact) < TOLERANCE[BF16] for ours, exact in zip(found, wanted, strict=False))
