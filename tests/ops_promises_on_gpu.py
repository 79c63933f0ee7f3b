"""Rows of the contract that only a GPU can show: graphs, streams, compilation, sizes beyond 32 bits."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ops_promises import BF16, FP32, Row, far
from undertorch.ops import AdamW, BadCall, adamw, grad_norm, layer_norm, linear_cross_entropy, softmax
from undertorch.ops import cross_entropy as entropy
from undertorch.ops import rms_norm as norm
from undertorch.ops.adamw import reference as adamw_reference
from undertorch.ops.cross_entropy import reference as entropy_reference
from undertorch.ops.cross_entropy_ways import RINGS
from undertorch.ops.linear_cross_entropy import reference as linear_reference
from undertorch.ops.rms_norm import reference as norm_reference


class Small(nn.Module):
    """Two layers with a norm and a loss."""

    def __init__(self, width: int = 64, classes: int = 96) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, classes, bias=False)
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor, labels: Tensor, own: bool = True) -> Tensor:
        hidden = self.first(x)
        if own:
            hidden = layer_norm(norm(hidden, self.weight), self.weight, self.bias)
            return entropy(self.second(hidden), labels)
        hidden = functional.rms_norm(hidden, hidden.shape[-1:], self.weight, 1e-6)
        hidden = functional.layer_norm(hidden, hidden.shape[-1:], self.weight, self.bias)
        return functional.cross_entropy(self.second(hidden).flatten(0, -2), labels.flatten())


def same(ours: list[Tensor], theirs: list[Tensor], most: float = 1e-5) -> list[str]:
    return [
        f"tensor {n} is off by {far(a, b):.1e}"
        for n, (a, b) in enumerate(zip(ours, theirs, strict=True))
        if not far(a, b) <= most
    ]


def beyond_32_bits(_: str) -> list[str]:
    """More than 2^31 elements: the last rows are as those of a small call, which may be cut otherwise."""
    rows, width = 2**31 // 4096 + 100, 4096
    x = torch.randn(4096, width, device="cuda", dtype=BF16).repeat(rows // 4096 + 1, 1)[:rows].requires_grad_()
    weight = torch.rand(width, device="cuda", dtype=BF16)
    y = norm(x, weight)
    (dx,) = torch.autograd.grad(y, x, x.detach())
    tail = x.detach()[-64:].clone().requires_grad_()
    y_tail = norm(tail, weight)
    (dx_tail,) = torch.autograd.grad(y_tail, tail, tail.detach())
    return [] if alike(y[-64:], y_tail) and alike(dx[-64:], dx_tail) else ["the last rows differ"]


def alike(a: Tensor, b: Tensor) -> bool:
    """But for sums in another order, after which a bfloat16 may be its neighbour."""
    return torch.allclose(a.float(), b.float(), rtol=2.0**-7, atol=2.0**-10)


def entropy_beyond_32_bits(_: str) -> list[str]:
    """Logits of more than 2^31 elements."""
    rows, width = 43000, 50304
    logits = torch.randn(1000, width, device="cuda", dtype=BF16).repeat(rows // 1000, 1).requires_grad_()
    labels = torch.arange(rows, device="cuda") % 1000
    loss = entropy(logits, labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, logits)
    tail = logits.detach()[-64:].clone().requires_grad_()
    (expected,) = torch.autograd.grad(entropy(tail, labels[-64:], reduction="sum"), tail)
    return [] if torch.equal(gradient[-64:], expected) else ["the last rows differ"]


def softmax_beyond_32_bits(_: str) -> list[str]:
    """Rows of more than 2^31 elements, short and long ones, and their gradients."""
    wrong = []
    for width in (4096, 131072):
        rows = 2**31 // width + 100
        x = torch.randn(100, width, device="cuda", dtype=BF16).repeat(rows // 100 + 1, 1)[:rows].requires_grad_()
        y = softmax(x)
        (dx,) = torch.autograd.grad(y, x, x.detach())
        tail = x.detach()[-64:].clone().requires_grad_()
        y_tail = softmax(tail)
        (dx_tail,) = torch.autograd.grad(y_tail, tail, tail.detach())
        if not (alike(y[-64:], y_tail) and alike(dx[-64:], dx_tail)):
            wrong.append(f"the last rows of {width} differ")
    return wrong


def in_a_graph(_: str) -> list[str]:
    """A whole step in a CUDA graph: the same losses and weights as without."""
    torch.manual_seed(0)
    model = Small().cuda()
    other = Small().cuda()
    other.load_state_dict(model.state_dict())
    x, labels = torch.randn(32, 64, device="cuda"), torch.randint(0, 96, (32,), device="cuda")
    ours, theirs = AdamW(model.parameters(), lr=1e-2, max_norm=0.5), torch.optim.AdamW(other.parameters(), lr=1e-2)

    def step() -> Tensor:
        loss = model(x, labels)
        loss.backward()
        ours.step()
        ours.zero_grad(set_to_none=False)
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for _ in range(3):
        graph.replay()
    for _ in range(6):  # three before the graph and three in it: a capture runs nothing
        expected = other(x, labels, own=False)
        expected.backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        theirs.step()
        theirs.zero_grad()
    return same([loss, *model.parameters()], [expected, *other.parameters()], 2e-3)


def many_graphs(_: str) -> list[str]:
    """More graphs than tables are kept, of tensors that no eager step has seen, replayed in turn among allocations."""
    shapes = ((300, 7), (4097,), (1,), (70000,), (33, 5))
    chunks = [(chunk, 1024, 4) for chunk in (1024, 2048, 4096, 8192, 16384, 32768)]

    def made(device: str = "cuda") -> list[list[Tensor]]:
        generator = torch.Generator().manual_seed(3)
        p, g = ([torch.randn(shape, generator=generator).to(device) for shape in shapes] for _ in range(2))
        return [p, g, [torch.zeros_like(t) for t in p], [torch.zeros_like(t) for t in p],
                [torch.zeros((), device=device) for _ in p]]  # fmt: skip

    def step(lists: list[list[Tensor]], chunk: Any) -> None:
        adamw(*lists, lr=1e-2, norm=grad_norm(lists[1]), max_norm=0.5, configuration=chunk)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for chunk in chunks:
            step(made(), chunk)
    stream.synchronize()
    sets = [made() for _ in range(2)]
    torch.cuda.synchronize()
    graphs = []
    for chunk in chunks * 2:
        for lists in sets:
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1]):
                step(lists, chunk)
    kept = []
    for graph in graphs:
        kept.append(torch.full((50_000,), 7, device="cuda"))
        step(made(), chunks[0])
        graph.replay()
    exact = [[t.double() for t in some] for some in made()]
    norm = torch.stack([t.square().sum() for t in exact[1]]).sum().sqrt()
    for _ in range(len(graphs) // 2):
        adamw_reference(*exact, lr=1e-2, norm=norm, max_norm=0.5)
    right = [t for some in exact[:1] + exact[2:] for t in some]
    return [wrong for lists in sets for wrong in same([t for some in lists[:1] + lists[2:] for t in some], right, 1e-5)]


def on_another_stream(_: str) -> list[str]:
    """Work goes into the current stream, after what stands there."""
    x = torch.zeros(4096, 4096, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(3.0)
        y = norm(x)
    stream.synchronize()
    return [] if torch.allclose(y, torch.ones_like(y), atol=1e-4) else ["it did not wait for what stood in the stream"]


def compiled(_: str) -> list[str]:
    """torch.compile(fullgraph=True): right, and at most two compilations over twenty batch sizes."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Small().cuda()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    call = torch.compile(model, fullgraph=True, backend=counter)
    wrong = []
    for rows in range(8, 28):
        x, labels = torch.randn(rows, 64, device="cuda"), torch.randint(0, 96, (rows,), device="cuda")
        results = []
        for function in (call, lambda *a: model(*a, own=False)):
            model.zero_grad()
            loss = function(x, labels)
            loss.backward()
            results.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
        wrong += same(*results, 1e-4)
    if counter.frame_count > 2:
        wrong.append(f"{counter.frame_count} compilations")
    return wrong[:5]


def under_autocast(_: str) -> list[str]:
    """A step under autocast is as good as torch's."""
    torch.manual_seed(0)
    model = Small().cuda()
    x, labels = torch.randn(64, 64, device="cuda"), torch.randint(0, 96, (64,), device="cuda")
    results = []
    for own, cast in ((True, True), (False, True), (False, False)):
        model.zero_grad()
        with torch.autocast("cuda", BF16, enabled=cast):
            loss = model(x, labels, own)
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    ours, theirs, exact = results
    return [
        f"tensor {n} is off by {far(a, c):.1e}, torch's by {far(b, c):.1e}"
        for n, (a, b, c) in enumerate(zip(ours, theirs, exact, strict=True))
        if far(a, c) > max(2 * far(b, c), 2e-3)
    ]


def without_gradients(_: str) -> list[str]:
    """no_grad and inference_mode: results without a graph."""
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    labels = torch.zeros(8, dtype=torch.long, device="cuda")
    wrong = []
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            wrong += ["a graph was kept"] if norm(x).requires_grad or entropy(x, labels).requires_grad else []
    return wrong


def refused(call: Callable[[], Any]) -> Callable[[str], list[str]]:
    def check(_: str) -> list[str]:
        try:
            call()
        except BadCall:
            return []
        return ["nothing was raised"]

    return check


def used_twice(_: str) -> list[str]:
    """One tensor in two places: gradients add up."""
    x = torch.randn(16, 64, device="cuda", requires_grad=True)
    exact = x.detach().double().requires_grad_()
    (ours,) = torch.autograd.grad((norm(x, x[0]) * layer_norm(x)).sum(), x)
    (right,) = torch.autograd.grad((norm_reference(exact, exact[0]) * functional.layer_norm(exact, (64,))).sum(), exact)
    return same([ours], [right])


def another_gpu(_: str) -> list[str]:
    """Tensors of a GPU that is not the current one."""
    if torch.cuda.device_count() < 2:
        return []
    x = torch.randn(16, 64, device="cuda:1")
    return same([norm(x)], [norm_reference(x)]) + same([entropy(x, x.argmax(-1))], [entropy_reference(x, x.argmax(-1))])


def rings(_: str) -> list[str]:
    """cross_entropy.cu in every way it is cut, against the Triton kernel and float64."""
    file = import_module("undertorch.ops.cross_entropy")
    wrong = []
    for width, smoothing, z_loss in ((50304, 0.0, 0.0), (1032, 0.1, 1e-2), (8, 0.0, 0.0), (128256, 0.0, 0.0)):
        logits = (torch.randn(301, width, device="cuda") * 3).to(BF16)
        labels = torch.randint(0, width, (301,), device="cuda")
        labels[::7] = -100
        logits[torch.arange(301), labels.clamp_min(0)] += 12
        exact = logits.double().requires_grad_()
        loss = entropy_reference(exact, labels, label_smoothing=smoothing, z_loss=z_loss)
        loss.backward()
        for ring in (ring for ring in RINGS if ring.holds(width)):
            got, _, _, gradient = file.forward(
                logits, labels, None, -100, smoothing, "mean", z_loss, None, True, piece=ring
            )
            if far(got, loss.detach()) > 1e-6 or far(gradient, exact.grad) > 4e-3:
                wrong.append(f"{ring}, {width}: {far(got, loss.detach()):.1e}, {far(gradient, exact.grad):.1e}")
    return wrong


def linear_over_own_logits(_: str) -> list[str]:
    """linear_cross_entropy of real vocabularies, whose chunks' gradients are written over their logits by the kernel
    that each is cut for, with both kinds of sums, against float64.
    """
    wrong = []
    for classes in (50304, 50257, 128256):
        x, weight = (torch.randn(n, 64, device="cuda", dtype=BF16) * 0.35 for n in (600, classes))
        labels = torch.randint(0, classes, (600,), device="cuda")
        labels[::7] = -100
        given = [tensor.requires_grad_() for tensor in (x, weight)]
        exact = [tensor.detach().double().requires_grad_() for tensor in given]
        truth = linear_reference(*exact, labels)
        for accumulation in (FP32, BF16):
            loss = linear_cross_entropy(*given, labels, accumulation=accumulation)
            found = [loss, *torch.autograd.grad(loss, given, torch.full_like(loss, 0.5))]
            right = [truth, *torch.autograd.grad(truth, exact, torch.full_like(truth, 0.5), retain_graph=True)]
            off = [far(a.detach(), b.detach()) for a, b in zip(found, right, strict=True)]
            if off[0] > 1e-3 or max(off[1:]) > 1e-2:
                wrong.append(f"{classes} classes, {accumulation} sums: {off}")
    return wrong


ATTENTION_FIRST = """
import torch
from undertorch import ops
q = torch.randn(1, 2, 128, 64, device="cuda", dtype=torch.bfloat16)
ops.attention(q, q, q, causal=True)
first = torch._C._get_sdp_priority_order()[0]
prefers_cudnn = torch.cuda.get_device_capability() in ((9, 0), (10, 0)) and torch.backends.cudnn.version() > 91500
print(first == int(torch.nn.attention.SDPBackend.CUDNN_ATTENTION), prefers_cudnn)
"""


def order_of_backends(_: str) -> list[str]:
    """torch's order of attention backends, when ours was the first attention of a process, is the one of its source:
    cuDNN first on compute capabilities 9.0 and 10.0 (check_prefer_cudnn_attention, sdp_utils.cpp).
    """
    told = subprocess.run([sys.executable, "-c", ATTENTION_FIRST], capture_output=True, text=True, check=False)
    first, _, prefers = told.stdout.strip().partition(" ")
    return [] if first and first == prefers else [f"cuDNN first: {first}, in torch's: {prefers} {told.stderr[-200:]}"]


def gpu_rows() -> Iterator[Row]:
    """What stands above."""
    x = lambda: torch.randn(4, 8, device="cuda")  # noqa: E731
    checks: dict[str, Callable[[str], list[str]]] = {
        "in a CUDA graph": in_a_graph,
        "AdamW in many CUDA graphs": many_graphs,
        "in another stream": on_another_stream,
        "under autocast": under_autocast,
        "without gradients": without_gradients,
        "used twice": used_twice,
        "functorch is refused": refused(lambda: torch.func.grad(lambda t: norm(t).sum())(x())),
        "vmap is refused": refused(lambda: torch.vmap(norm)(x())),
        "vmap of softmax is refused": refused(lambda: torch.vmap(softmax)(x())),
        "a second derivative is refused": refused(
            lambda: torch.autograd.grad(softmax(t := x().requires_grad_())[:, 0].sum(), t, create_graph=True)
        ),
        "a weight of another length is refused": refused(lambda: norm(x(), torch.ones(7, device="cuda"))),
        "on a GPU that is not current": another_gpu,
        "compiled whole, twenty batch sizes": compiled,
        "more than 2^31 elements": beyond_32_bits,
        "logits of more than 2^31 elements": entropy_beyond_32_bits,
        "softmax of more than 2^31 elements": softmax_beyond_32_bits,
        "rows in shared memory": rings,
        "torch's order of attention backends": order_of_backends,
        "gradients over a linear layer's own logits": linear_over_own_logits,
    }
    for name, check in checks.items():
        yield Row(op="gpu", name=name, check=check, on_gpu_only=True)


__all__ = ["FP32", "gpu_rows"]
