"""GPT-2 124M (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"), a decoder with a tied head.

python benchmarks/models/gpt2.py [--batch 16] [--sequence 1024] [--layers 12] [--steps 3]
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 50257


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        q, k, v = self.qkv(x).view(batch, sequence, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, sequence, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        hidden = F.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.dropout(self.down(hidden))


class GPT2(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, context: int = 1024, dropout: float = 0.0):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train(batch: int, sequence: int, layers: int, dropout: float, steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT2(layers=layers, context=sequence, dropout=dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")
    for _ in range(steps):
        window = torch.randint(VOCABULARY, (batch, sequence + 1), device=device)
        tokens, targets = window[:, :-1], window[:, 1:]
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains GPT-2 124M on random tokens.")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
