"""BERT-large, masked language modelling (Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers").

python benchmarks/models/bert.py [--batch 32] [--sequence 512] [--layers 24] [--steps 3]
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, POSITIONS, SEGMENTS = 30522, 512, 2
MASK, MASKED = 103, 0.15
IGNORED = -100


class Embeddings(nn.Module):
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(POSITIONS, width)
        self.segments = nn.Embedding(SEGMENTS, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(self.norm(self.tokens(tokens) + self.positions(positions) + self.segments(segments)))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.probability = heads, dropout
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def split(self, x: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        return x.view(batch, sequence, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        dropout = self.probability if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        x = self.norm1(x + self.dropout(self.out(y.transpose(1, 2).reshape(x.shape))))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class BertForMaskedLM(nn.Module):
    def __init__(self, layers: int = 24, width: int = 1024, heads: int = 16, dropout: float = 0.1):
        super().__init__()
        self.embeddings = Embeddings(width, dropout)
        self.layers = nn.ModuleList([Layer(width, heads, dropout) for _ in range(layers)])
        self.transform = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.decoder = nn.Linear(width, VOCABULARY)
        self.decoder.weight = self.embeddings.tokens.weight
        nn.init.normal_(self.decoder.weight, std=0.02)

    def forward(self, tokens: Tensor, segments: Tensor, present: Tensor) -> Tensor:
        mask = present[:, None, None, :]
        x = self.embeddings(tokens, segments)
        for layer in self.layers:
            x = layer(x, mask)
        return self.decoder(self.norm(F.gelu(self.transform(x))))


def train(batch: int, sequence: int, layers: int, steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = BertForMaskedLM(layers=layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10_000))
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")
    for _ in range(steps):
        text = torch.randint(1000, VOCABULARY, (batch, sequence), device=device)
        lengths = torch.randint(sequence // 2, sequence + 1, (batch, 1), device=device)
        present = torch.arange(sequence, device=device) < lengths
        segments = torch.zeros_like(text)
        hidden = (torch.rand(text.shape, device=device) < MASKED) & present
        tokens = text.masked_fill(hidden, MASK)
        labels = text.masked_fill(~hidden, IGNORED)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(tokens, segments, present)
            loss = F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    print(f"loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains BERT-large on random tokens.")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
