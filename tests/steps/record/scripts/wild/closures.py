"""LBFGS: its step calls a closure, which runs the training's forward and backward as often as the step asks."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
x, y = torch.randn(64, 4, device="cuda"), torch.randn(64, 1, device="cuda")
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    return loss


for _ in range(3):
    optimizer.step(closure)
