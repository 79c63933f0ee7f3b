"""A benchmark of the forward and backward alone: nothing is ever updated."""

import torch
from torch import nn

model = nn.Linear(16, 16).cuda()
x = torch.randn(4, 16, device="cuda")
for _ in range(5):
    loss = model(x).sum()
    loss.backward()
    model.zero_grad()
