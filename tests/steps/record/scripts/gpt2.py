"""GPT-2 124M, 32 sequences of 1024 tokens, bf16 autocast, clipping, fused AdamW: as in the golden H200 trace."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time, width = x.shape
        heads = self.qkv(self.ln1(x)).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, time, width))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary=50304, context=1024, layers=12, width=768, heads=12):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.lnf = nn.LayerNorm(width)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        logits = self.lnf(h) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, 50304).float(), y.view(-1))


torch.manual_seed(0)
model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
x = torch.randint(0, 50257, (32, 1024), device="cuda")
y = torch.randint(0, 50257, (32, 1024), device="cuda")

for _ in range(10):
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(x, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
