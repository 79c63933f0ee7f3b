"""A mixture of experts as Mixtral has it (Jiang et al. 2024, "Mixtral of Experts"): of 8 experts each token takes 2.

python benchmarks/models/moe.py [--batch 8] [--sequence 2048] [--layers 12] [--steps 3]

Mixtral 8x7B's blocks at a width of 1024 in place of 4096, so that its training fits on one GPU. The experts run one
after another, each on the tokens that chose it: how many those are is known only when the router has run.
"""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 32000
EXPERTS, CHOSEN = 8, 2
BALANCE = 0.02


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    groups: int
    hidden: int


SMALL = Shape(layers=12, width=1024, heads=16, groups=4, hidden=3584)
MIXTRAL = Shape(layers=32, width=4096, heads=32, groups=8, hidden=14336)


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.features = shape.width // shape.heads
        self.q = nn.Linear(shape.width, shape.width, bias=False)
        self.k = nn.Linear(shape.width, shape.groups * self.features, bias=False)
        self.v = nn.Linear(shape.width, shape.groups * self.features, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (-1, self.features)).transpose(1, 2) for t in (self.q(x), self.k(x), self.v(x)))
        q, k = rotate(q, turns), rotate(k, turns)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(2))


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Pairs of features as complex numbers, turned by their position (as Llama's own code has it)."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


class Expert(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.router = nn.Linear(width, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert(width, hidden) for _ in range(EXPERTS)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x.flatten(0, 1)
        shares = F.softmax(self.router(tokens), dim=-1, dtype=torch.float32)
        weights, chosen = torch.topk(shares, CHOSEN, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        y = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, rank = torch.where(chosen == index)
            y.index_add_(0, rows, (expert(tokens[rows]) * weights[rows, rank, None]).to(y.dtype))
        taken = F.one_hot(chosen, EXPERTS).float().mean((0, 1))
        return y.view_as(x), EXPERTS * (taken * shares.mean(0)).sum()


class Block(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.norm1 = nn.RMSNorm(shape.width, eps=1e-5)
        self.attention = Attention(shape)
        self.norm2 = nn.RMSNorm(shape.width, eps=1e-5)
        self.experts = Experts(shape.width, shape.hidden)

    def forward(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        x = x + self.attention(self.norm1(x), turns)
        y, balance = self.experts(self.norm2(x))
        return x + y, balance


class Mixture(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.features = shape.width // shape.heads
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        self.blocks = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)

    def turns(self, sequence: int, device: torch.device) -> Tensor:
        frequencies = 1e6 ** (-torch.arange(0, self.features, 2, device=device) / self.features)
        angles = torch.outer(torch.arange(sequence, device=device), frequencies)
        return torch.polar(torch.ones_like(angles), angles)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.tokens(tokens)
        turns = self.turns(tokens.shape[1], tokens.device)
        balances = []
        for block in self.blocks:
            x, balance = block(x, turns)
            balances.append(balance)
        return self.head(self.norm(x)), torch.stack(balances).mean()


def train(batch: int, sequence: int, layers: int, steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = Shape(layers=layers, width=SMALL.width, heads=SMALL.heads, groups=SMALL.groups, hidden=SMALL.hidden)
    model = Mixture(shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")
    for _ in range(steps):
        window = torch.randint(VOCABULARY, (batch, sequence + 1), device=device)
        tokens, targets = window[:, :-1], window[:, 1:]
        with torch.autocast(device, dtype=torch.bfloat16):
            logits, balance = model(tokens)
            loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1)) + BALANCE * balance
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a mixture of experts on random tokens.")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=SMALL.layers)
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
