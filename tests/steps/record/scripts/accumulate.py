"""Three microbatches to a step, SGD with momentum: gradients are added to those that are there."""

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


model = nn.Sequential(nn.Linear(24, 40), Residual(40), Residual(40), nn.Linear(40, 7)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()

for _ in range(3):
    optimizer.zero_grad()
    for _ in range(3):
        x = torch.randn(6, 24, device="cuda")
        y = torch.randint(0, 7, (6,), device="cuda")
        loss = criterion(model(x), y) / 3
        loss.backward()
    optimizer.step()
