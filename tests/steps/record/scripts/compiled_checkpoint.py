"""A compiled model whose block runs again in the backward, attention and dropout, which draw the same numbers, too."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 768)

    def forward(self, x):
        q, k, v = self.up(x).view(4, 128, 3, 4, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.dropout(y.transpose(1, 2).reshape(x.shape), 0.1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False).square().mean()


device = "cuda" if torch.cuda.is_available() else "cpu"
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = torch.compile(model)
for _ in range(30):
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = compiled(torch.randn(4, 128, 256, device=device))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
