"""Llama 3 (Dubey et al. 2024, "The Llama 3 Herd of Models"): grouped queries, rotary positions, SwiGLU, RMS norm.

python benchmarks/models/llama.py [--size 1b|8b] [--batch 4] [--sequence 4096] [--layers N] [--steps 3]

Each block's activations are computed again in backward (checkpointing). The 1B trains float32 parameters under
autocast; of the 8B, parameters, gradients and moments are bfloat16, so that it fits on one GPU of 80 GB.
"""

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

VOCABULARY = 128256


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    groups: int
    """Heads of keys and values; each serves heads / groups of the queries'."""
    hidden: int
    tied: bool


SHAPES = {
    "1b": Shape(layers=16, width=2048, heads=32, groups=8, hidden=8192, tied=True),  # Llama 3.2 1B
    "8b": Shape(layers=32, width=4096, heads=32, groups=8, hidden=14336, tied=False),  # Llama 3.1 8B
}


def rotations(sequence: int, features: int, base: float = 500_000.0) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (sequence, features)."""
    frequencies = base ** (-torch.arange(0, features, 2).float() / features)
    angles = torch.outer(torch.arange(sequence).float(), frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.heads, self.groups, self.features = shape.heads, shape.groups, shape.width // shape.heads
        self.q = nn.Linear(shape.width, shape.heads * self.features, bias=False)
        self.k = nn.Linear(shape.width, shape.groups * self.features, bias=False)
        self.v = nn.Linear(shape.width, shape.groups * self.features, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        q = self.q(x).view(batch, sequence, self.heads, self.features).transpose(1, 2)
        k = self.k(x).view(batch, sequence, self.groups, self.features).transpose(1, 2)
        v = self.v(x).view(batch, sequence, self.groups, self.features).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(batch, sequence, width))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.norm1 = nn.RMSNorm(shape.width, eps=1e-5)
        self.attention = Attention(shape)
        self.norm2 = nn.RMSNorm(shape.width, eps=1e-5)
        self.mlp = SwiGLU(shape.width, shape.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, shape: Shape, layers: int, sequence: int):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        self.blocks = nn.ModuleList([Block(shape) for _ in range(layers)])
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)
        if shape.tied:
            self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)
        cos, sin = rotations(sequence, shape.width // shape.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = checkpoint(block, x, cos, sin, use_reentrant=False)
        return self.head(self.norm(x))


def train(size: str, batch: int, sequence: int, layers: int | None, steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = SHAPES[size]
    dtype = torch.float32 if size == "1b" else torch.bfloat16
    with torch.device(device):
        model = Llama(shape, layers or shape.layers, sequence).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")
    for _ in range(steps):
        window = torch.randint(VOCABULARY, (batch, sequence + 1), device=device)
        tokens, targets = window[:, :-1], window[:, 1:]
        with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == torch.float32):
            logits = model(tokens)
            loss = F.cross_entropy(logits.view(-1, VOCABULARY).float(), targets.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a Llama on random tokens.")
    parser.add_argument("--size", choices=sorted(SHAPES), default="1b")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--layers", type=int, help="fewer than the size has")
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
