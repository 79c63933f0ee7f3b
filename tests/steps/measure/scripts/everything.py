"""Trains a small net with what makes joins hard: checkpointing, a custom Function, two microbatches, clipping, a read.

python everything.py LOSSES [eager|inductor]: writes the losses there, one a step, and how torch.compile fared; with a
backend the net is compiled.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x  # in Square.forward

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient  # in Square.backward


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(48, 64)
        self.norm = nn.LayerNorm(64)
        self.last = nn.Linear(64, 8)

    def block(self, x: Tensor) -> Tensor:
        x = self.first(x)  # first
        return F.gelu(self.norm(x))

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.block, x, use_reentrant=False)  # checkpoint
        x = Square.apply(x)  # apply
        return self.last(x)  # last


def train(out: Path, backend: str | None) -> None:
    torch.manual_seed(7)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = Net().to(device)
    model = net if backend is None else torch.compile(net, backend=backend)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)
    losses: list[str] = []
    try:
        for _ in range(40):
            for _ in range(2):
                x, y = torch.randn(24, 48, device=device), torch.randint(0, 8, (24,), device=device)  # batch
                loss = F.cross_entropy(model(x), y)  # model
                loss.backward()  # backward
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # clip
            losses.append(loss.item().hex())  # read
            optimizer.step()  # step
            optimizer.zero_grad()
    finally:
        counters = torch._dynamo.utils.counters if backend else {}
        out.write_text(json.dumps({"losses": losses, "counters": {k: dict(v) for k, v in counters.items()}}))


if __name__ == "__main__":
    train(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
