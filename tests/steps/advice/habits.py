"""A GPT of 6 layers in plain PyTorch, with habits that cost time, each of which can be mended alone.

python habits.py [HABIT …]
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

HABITS = ("explicit", "unbind", "odd", "foreach", "eager-loss", "float32", "eager-norms")
has = {habit: habit in sys.argv[1:] for habit in HABITS}
VOCABULARY = 50257 if has["odd"] else 50304
BATCH, CONTEXT, WIDTH, HEADS, LAYERS = 16, 1024, 768, 12, 6


def normed(x, branch, norm):
    """The residual stream with a branch added, and its norm as the next linear layer takes it."""
    x = x + branch
    return x, norm(x).to(branch.dtype)


def loss_of(logits, targets):
    """In float32, as most scripts have it."""
    return F.cross_entropy(logits.float(), targets)


if not has["eager-norms"]:
    normed = torch.compile(normed)
if not has["eager-loss"]:
    loss_of = torch.compile(loss_of)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.next = nn.LayerNorm(WIDTH)

    def forward(self, x, h):
        batch, context, width = x.shape
        if has["unbind"]:
            heads = self.qkv(h).view(batch, context, 3, HEADS, width // HEADS)
            q, k, v = heads.permute(2, 0, 3, 1, 4)
        else:
            parts = self.qkv(h).split(width, dim=2)
            q, k, v = (part.view(batch, context, HEADS, -1).transpose(1, 2) for part in parts)
        if has["explicit"]:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // HEADS)
            scores = scores.masked_fill(mask, float("-inf"))
            y = F.softmax(scores, dim=-1).to(v.dtype) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, context, width)
        x, h = normed(x, self.out(y), self.norm)
        return normed(x, self.down(F.gelu(self.up(h), approximate="tanh")), self.next)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        h = x
        for block in self.blocks:
            x, h = block(x, h)
        return self.head(h)


torch.manual_seed(0)
model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=not has["foreach"])
mask = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool, device="cuda").triu(1)
tokens = torch.randint(0, 50257, (BATCH, CONTEXT), device="cuda")

for _ in range(12):
    with torch.autocast("cuda", torch.bfloat16, enabled=not has["float32"]):
        logits = model(tokens)
        loss = loss_of(logits.view(-1, VOCABULARY), tokens.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
