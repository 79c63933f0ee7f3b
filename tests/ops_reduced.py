"""Calls of every own kernel at reduced shapes, in groups: what compute-sanitizer and undertorch.checking look at."""

import itertools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from ops_promises_on_gpu import many_graphs
from undertorch import ops
from undertorch.costs.softmax_and_rope import HeldRow
from undertorch.ops.cross_entropy_ways import RINGS
from undertorch.ops.norm_cuts import Held
from undertorch.ops.norms import backward

BF16 = torch.bfloat16
Device = str


def offset(tensor: torch.Tensor) -> torch.Tensor:
    """The same, beginning one element after a multiple of 16 bytes."""
    return torch.cat([tensor.flatten()[:1], tensor.flatten()])[1:].view(tensor.shape)


def norms(device: Device) -> None:
    """Widths that are whole vectors and not, rows that are whole tiles and not, too wide for registers, offset."""
    for rows, width, dtype in ((70, 768, BF16), (33, 1001, torch.float32), (5, 4096, BF16), (3, 40001, BF16)):
        x, residual = (torch.randn(rows, width, device=device).to(dtype) for _ in range(2))
        for source in (x, offset(x)):
            weight, bias = (torch.randn(width, device=device, requires_grad=True) for _ in range(2))
            given = source.detach().requires_grad_()
            y, total = ops.add_layer_norm(given, residual, weight, bias)
            torch.autograd.grad([y, total], [given, weight, bias], [x, x])
            torch.autograd.grad(ops.rms_norm(given, weight), [given, weight], x)


def losses(device: Device) -> None:
    """Every option, vocabularies that are whole vectors and not, all that a label can be."""
    for rows, width, dtype in ((40, 1024, BF16), (7, 5001, torch.float32), (3, 50257, BF16)):
        logits = torch.randn(rows, width, device=device).to(dtype).requires_grad_()
        labels = torch.randint(0, width, (rows,), device=device)
        labels[0], labels[1] = -100, width - 1
        weight = torch.rand(width, device=device)
        for settings in (
            {"gradient": "forward"},
            {"gradient": "backward"},
            {"label_smoothing": 0.1, "z_loss": 1e-3, "softcap": 20.0, "weight": weight},
            {"reduction": "none"},
        ):
            loss = ops.cross_entropy(logits, labels, **settings)
            torch.autograd.grad(loss, logits, torch.full_like(loss, 2.0))
        x, head = (
            torch.randn(rows, 24, device=device, dtype=dtype, requires_grad=True),
            torch.randn(width, 24, device=device, dtype=dtype, requires_grad=True),
        )
        torch.autograd.grad(ops.linear_cross_entropy(x, head, labels), [x, head])


def gated(device: Device) -> None:
    """Halves of one tensor, and odd sizes."""
    for rows, width, dtype in ((9, 700, torch.float32), (70, 127, BF16)):
        gate, up = torch.randn(rows, 2 * width, device=device).to(dtype).requires_grad_().chunk(2, -1)
        for y in (ops.swiglu(gate, up), ops.geglu(gate, up), ops.geglu(gate, up, approximate="tanh")):
            torch.autograd.grad(y.sum(), [gate, up])


def optimizer(device: Device) -> None:
    """Tensors of one element to some chunks, offset, of half types with masters; more sets than tables are kept."""
    for _ in range(10):
        plain = [torch.randn(size, device=device, requires_grad=True) for size in (1, 3, 4096, 4097, 30001)]
        moved = [offset(torch.randn(5001, device=device)).requires_grad_()]
        half = [torch.randn(5000, device=device).to(BF16).requires_grad_()]
        parameters = plain + moved + half
        for p in parameters:
            p.grad = torch.randn_like(p)
        optimizer = ops.AdamW(parameters, max_norm=1.0)
        for _ in range(2):
            optimizer.step()


def rows_and_heads(device: Device) -> None:
    """Softmax of whole rows and of pieces; the rotary embedding, partly, of heads beside each other."""
    for rows, width in ((9, 1000), (2, 40001)):
        x = torch.randn(rows, width, device=device).to(BF16).requires_grad_()
        torch.autograd.grad(ops.softmax(x), x, x.detach())
    q, k = (torch.randn(2, 5, heads, 24, device=device).transpose(1, 2).requires_grad_() for heads in (4, 2))
    angles = torch.rand(5, 8, device=device)
    for interleaved in (False, True):
        turned = ops.rope(q, k, angles.cos(), angles.sin(), interleaved=interleaved)
        torch.autograd.grad(turned, [q, k], [t.detach() for t in turned])


def held(device: Device) -> None:
    """Norms' backward and softmax with rows in shared memory: more rows than SMs, so that blocks walk on."""
    width, like = 1024, {"device": device, "dtype": BF16}
    x, dy, dtotal = (torch.randn(270, width, **like) for _ in range(3))
    weight, row = torch.randn(width, **like), torch.randn(270, device=device)
    for tiles, more, apart in ((2, 0, False), (4, 3, True)):
        way = Held(tile=width // tiles, tiles=tiles, warps=2, more=more, bias_apart=apart)
        backward(
            dy, dtotal, x, weight, row, row, BF16, True, True, True, centred=True, name="add_layer_norm", tile=way
        )  # fmt: skip
    file: Any = import_module("undertorch.ops.softmax")
    for slots, kept, again in ((4, 0, 0), (2, 1, 1)):
        way = file.Held(row=HeldRow(slots=slots, kept=kept, again=again), tile=width // 4, warps=1)
        file.backward(dy, x, tile=way)
    file.forward(x, tile=file.Held(row=HeldRow(slots=4, kept=0, again=0), tile=width // 4, warps=1))


def layers(device: Device) -> None:
    """A linear layer with each activation."""
    x, weight, bias = (torch.randn(*s, device=device).to(BF16).requires_grad_() for s in ((37, 24), (40, 24), (40,)))
    for activation in ("gelu", "gelu_tanh", "silu", "relu"):
        y = ops.linear_act(x, weight, bias, activation)
        torch.autograd.grad(y, [x, weight, bias], y.detach())


def graphs(device: Device) -> None:
    """AdamW in more graphs than tables are kept (tests/ops_promises_on_gpu.py)."""
    wrong = many_graphs(device)
    if wrong:
        raise AssertionError(wrong[0])


def rings(device: Device) -> None:
    """cross_entropy.cu in each way it is cut; its loads and stores are bulk copies of the copy engine."""
    file: Any = import_module("undertorch.ops.cross_entropy")
    for width in (1032, 8192):
        logits, labels = torch.randn(150, width, device=device).to(BF16), torch.arange(150, device=device)
        for ring in (ring for ring in RINGS if ring.holds(width)):
            file.forward(logits, labels, None, -100, 0.1, "mean", 1e-3, None, True, piece=ring)


def clusters(device: Device) -> None:
    """softmax.cu with as many blocks a row as there can be, whose last one has less to do, or nothing."""
    file: Any = import_module("undertorch.ops.softmax")
    for width, blocks, keep, bulk in itertools.product((4104, 72), (1, 2, 4, 8), (True, False), (True, False)):
        x, dy = (torch.randn(30, width, device=device).to(BF16) for _ in range(2))
        way = file.Cluster(blocks=blocks, threads=96, resident=1, keep=keep, bulk=bulk)
        file.backward(dy, file.forward(x, tile=way), tile=way)


EVERYWHERE: dict[str, Callable[[Device], None]] = {
    "norms": norms, "losses": losses, "gated": gated, "optimizer": optimizer, "rows_and_heads": rows_and_heads,
    "held": held, "layers": layers,
}  # fmt: skip
"""What runs on a GPU and on the machine."""

ON_GPU: dict[str, Callable[[Device], None]] = {"graphs": graphs, "rings": rings, "clusters": clusters}
"""What only a GPU has, or can run."""
