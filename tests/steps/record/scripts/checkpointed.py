"""Two blocks under activation checkpointing. Argument: `reentrant`, or nothing for the newer form."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x):
        hidden = F.gelu(self.up(x))
        return x + self.down(hidden)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant="reentrant" in sys.argv)
        return x


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    out = net(torch.randn(8, 16, device="cuda"))
    loss = F.mse_loss(out, torch.zeros_like(out))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
