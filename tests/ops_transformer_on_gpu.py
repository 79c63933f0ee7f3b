"""What softmax, rotary embedding, linear layer with activation, and attention promise that only a GPU can show."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ops_promises import BF16, Row, far
from undertorch import ops
from undertorch.ops import BadCall


class Block(nn.Module):
    """A small transformer's block out of the four; `plain`: the same in plain torch."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(4 * width, width)
        self.up = nn.Linear(width, 4 * width)
        angle = torch.outer(torch.arange(32.0), 1e2 ** -(torch.arange(8) / 8))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, x: Tensor, plain: bool = False) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3 * self.heads, -1).transpose(1, 2).chunk(3, 1)
        reference = ops_in_plain_torch if plain else ops_of_ours
        q, k, y = reference(q, k, v, self.cos, self.sin)
        x = x + y.transpose(1, 2).reshape(batch, tokens, width)
        if plain:
            hidden = functional.gelu(self.up(x), approximate="tanh")
            return torch.softmax(self.out(hidden), -1)
        return ops.softmax(self.out(ops.linear_act(x, self.up.weight, self.up.bias, "gelu_tanh")))


def ops_of_ours(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Any:
    q, k = ops.rope(q, k, cos, sin)
    return q, k, ops.attention(q, k, v, causal=True, softcap=5.0) + ops.attention(q, k, v, causal=True)


def ops_in_plain_torch(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Any:
    c, s = cos[: q.shape[2]].to(q.dtype), sin[: q.shape[2]].to(q.dtype)

    def turned(x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat((a * c - b * s, b * c + a * s), -1)

    q, k = turned(q), turned(k)
    score = 5.0 * torch.tanh(q @ k.mT * q.shape[-1] ** -0.5 / 5.0)
    hidden = torch.ones_like(score, dtype=torch.bool).triu(1)
    capped = torch.softmax(score.masked_fill(hidden, -float("inf")), -1) @ v
    return q, k, capped + functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def results(block: Any, x: Tensor, parameters: list[nn.Parameter], plain: bool = False) -> list[Tensor]:
    y = block(x, plain)
    weighed = (y.float() * torch.linspace(-1, 1, y.shape[-1], device=y.device)).sum()
    return [y.detach(), *torch.autograd.grad(weighed, parameters)]


def off(ours: list[Tensor], theirs: list[Tensor], most: float) -> list[str]:
    return [
        f"tensor {n} is off by {far(a, b):.1e}"
        for n, (a, b) in enumerate(zip(ours, theirs, strict=True))
        if not far(a, b) <= most
    ]


def compiled(_: str) -> list[str]:
    """torch.compile(fullgraph=True): right, and at most two compilations over twenty batch sizes."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    block = Block().cuda()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    call = torch.compile(block, fullgraph=True, backend=counter)
    parameters = list(block.parameters())
    wrong = []
    for batch in range(2, 22):
        x = torch.randn(batch, 24, 64, device="cuda")
        wrong += off(results(call, x, parameters), results(block, x, parameters, plain=True), 1e-3)
    if counter.frame_count > 2:
        wrong.append(f"{counter.frame_count} compilations")
    return wrong[:5]


def in_a_graph(_: str) -> list[str]:
    """Forward and backward in a CUDA graph: what the same calls give without."""
    torch.manual_seed(0)
    block = Block().cuda()
    parameters = list(block.parameters())
    x = torch.randn(3, 24, 64, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        results(block, x, parameters)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = results(block, x, parameters)
    x.copy_(torch.randn_like(x))
    graph.replay()
    return off(kept, results(block, x, parameters), 1e-5)


def under_autocast(_: str) -> list[str]:
    """As near to float32 as plain torch is under autocast, within a factor of two."""
    torch.manual_seed(0)
    block = Block().cuda()
    parameters = list(block.parameters())
    x = torch.randn(3, 24, 64, device="cuda")
    exact = results(block, x, parameters, plain=True)
    with torch.autocast("cuda", BF16):
        ours, theirs = results(block, x, parameters), results(block, x, parameters, plain=True)
    return [
        f"tensor {n} is off by {far(a, c):.1e}, torch's by {far(b, c):.1e}"
        for n, (a, b, c) in enumerate(zip(ours, theirs, exact, strict=True))
        if far(a, c) > max(2 * far(b, c), 4e-3)
    ]


def refused(_: str) -> list[str]:
    """torch.func's transforms."""
    x, q = torch.randn(4, 8, device="cuda"), torch.randn(2, 3, 5, 16, device="cuda")
    weight, angles = torch.randn(6, 8, device="cuda"), torch.randn(2, 5, 8, device="cuda")
    calls: dict[str, Callable[[], Any]] = {
        "softmax": lambda: torch.func.grad(lambda t: ops.softmax(t)[0, 0])(x),
        "rope": lambda: torch.func.grad(lambda t: ops.rope(t, None, *angles)[0].sum())(q),
        "linear_act": lambda: torch.vmap(lambda t: ops.linear_act(t, weight))(x),
        "attention": lambda: torch.func.grad(lambda t: ops.attention(t, q, q, softcap=2.0).sum())(q),
    }
    wrong = []
    for name, call in calls.items():
        try:
            call()
        except BadCall:
            continue
        wrong.append(f"{name} was not refused")
    return wrong


def beyond_32_bits(_: str) -> list[str]:
    """More than 2^31 elements of rows, and of queries: the last ones are as those of a small call."""
    rows, width = 2**31 // 4096 + 100, 4096
    x = torch.randn(4096, width, device="cuda", dtype=BF16).repeat(rows // 4096 + 1, 1)[:rows].requires_grad_()
    y = ops.softmax(x)
    (dx,) = torch.autograd.grad(y, x, x.detach())
    tail = x.detach()[-64:].clone().requires_grad_()
    y_tail = ops.softmax(tail)
    (dx_tail,) = torch.autograd.grad(y_tail, tail, tail.detach())
    wrong = off([y[-64:].detach(), dx[-64:]], [y_tail.detach(), dx_tail], 4e-3)
    del x, y, dx
    tokens = 2**31 // 4096 + 100
    q = torch.randn(1, 32, 64, 128, device="cuda", dtype=BF16).repeat(1, 1, tokens // 64 + 1, 1)[:, :, :tokens]
    cos, sin = torch.randn(2, 64, 64, device="cuda").unbind()
    places = torch.arange(tokens, device="cuda") % 64
    turned, _none = ops.rope(q, None, cos, sin, positions=places)
    few, _none = ops.rope(q[:, :, -64:], None, cos, sin, positions=places[-64:])
    return wrong + off([turned[:, :, -64:]], [few], 0.0)


def transformer_gpu_rows() -> Iterator[Row]:
    """What stands above. The names are those that ops_past_bugs.py looks for."""
    checks: dict[str, Callable[[str], list[str]]] = {
        "compiled whole, twenty batch sizes": compiled,
        "in a CUDA graph": in_a_graph,
        "under autocast": under_autocast,
        "functorch is refused": refused,
        "more than 2^31 elements": beyond_32_bits,
    }
    for name, check in checks.items():
        yield Row(op="transformer", name=name, check=check, on_gpu_only=True)
