"""Kernels in compiled code that are written from no loops: flex_attention's template, and one of the script's own."""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

BATCH, HEADS, TOKENS, HEAD = 4, 8, 1024, 64
WIDTH = HEADS * HEAD


@triton.jit
def scale(x, y, elements, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + place, tl.load(x + place, mask=place < elements) * 0.5, mask=place < elements)


def scaled(x):
    y = torch.empty_like(x)
    scale[lambda given: (triton.cdiv(x.numel(), given["BLOCK"]),)](x, y, x.numel(), BLOCK=512)
    return y


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        parts = self.qkv(x).view(BATCH, TOKENS, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        return flex_attention(*parts, score_mod=lambda score, batch, head, query, key: score + (query - key))


model = Attention().cuda().bfloat16()
attention = torch.compile(model)
batch_of = torch.compile(scaled)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    x = batch_of(torch.randn(BATCH, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16))
    attention(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
