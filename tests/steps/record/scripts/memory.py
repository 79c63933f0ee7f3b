"""Two linear layers and Adam, small enough to count every byte by hand."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 512, bias=False), nn.ReLU(), nn.Linear(512, 128, bias=False)).cuda()
optimizer = torch.optim.Adam(model.parameters(), fused=True)
x = torch.randn(64, 256, device="cuda")
for _ in range(3):
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del loss
