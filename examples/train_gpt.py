"""Trains GPT-2 124M (Radford et al. 2019) in plain PyTorch, on one GPU.

    python examples/train_gpt.py [TEXT_FILE] [--batch 32] [--context 1024] [--steps 100]

Every byte of the text is a token. Without a file the model reads this script.
"""

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 50304  # GPT-2's 50,257 tokens, rounded up to a multiple of 128 for the matmul


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, context, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q = q.view(batch, context, self.heads, -1).transpose(1, 2)
        k = k.view(batch, context, self.heads, -1).transpose(1, 2)
        v = v.view(batch, context, self.heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, context, width)
        return self.out(y)


class MLP(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        x = F.gelu(x, approximate="tanh")
        return self.down(x)


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, context: int, layers: int = 12, width: int = 768, heads: int = 12):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.apply(self.initialize)
        self.head.weight = self.tokens.weight

    def initialize(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Text(Dataset):
    """Windows of a text; the targets are the same bytes, one further."""

    def __init__(self, path: Path, context: int, least: int):
        data = path.read_bytes()
        data *= 1 + (least + context) // len(data)  # a short text is read again and again
        self.tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self.context = context

    def __len__(self) -> int:
        return len(self.tokens) - self.context

    def __getitem__(self, start: int) -> tuple[Tensor, Tensor]:
        window = self.tokens[start : start + self.context + 1].long()
        return window[:-1], window[1:]


def make_optimizer(model: nn.Module, rate: float, device: str) -> torch.optim.Optimizer:
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=device == "cuda")


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    dataset = Text(args.text, args.context, least=args.batch)
    loader = DataLoader(dataset, batch_size=args.batch, shuffle=True, drop_last=True)
    model = GPT(args.context).to(device)
    optimizer = make_optimizer(model, args.rate, device)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")

    step = 0
    began = time.perf_counter()
    while step < args.steps:
        for tokens, targets in loader:
            tokens, targets = tokens.to(device), targets.to(device)

            with torch.autocast(device, dtype=torch.bfloat16):
                logits = model(tokens)
                loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))

            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)

            step += 1
            if step == 1 or step % args.print_every == 0:
                speed = step * tokens.numel() / (time.perf_counter() - began)
                print(f"step {step:4}  loss {loss.item():.4f}  {speed:,.0f} tokens a second")
            if step == args.steps:
                break


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains GPT-2 124M.")
    parser.add_argument("text", nargs="?", type=Path, default=Path(__file__), help="a text file; this script if none")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--print-every", type=int, default=10)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
