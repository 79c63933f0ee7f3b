"""Formulas that autograd writes in place on a GPU, layers with CUDA kernels of their own, a custom Function."""

import torch
import torch.nn.functional as F
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x, factor)
        scaled = x * factor
        return scaled + 1

    @staticmethod
    def backward(ctx, grad):
        x, factor = ctx.saved_tensors
        return grad * factor, (grad * x).sum(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(8, 64))
        self.norm = nn.RMSNorm(64)
        self.rnn = nn.LSTM(64, 32, batch_first=True)
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.1)

    def forward(self, rows, image, target):
        x = self.norm(self.table)
        picked = x[rows].sum()
        most = x.max(-1)[0].sum()
        gathered = x.gather(1, rows[None]).sum()
        binary = F.binary_cross_entropy_with_logits(x, target)
        recurrent = self.rnn(self.drop(x)[None])[0].sum()
        convolved = self.bn(self.conv(image)).relu_().sum()
        scaled = Scale.apply(x, x[0]).sum()
        written = x * 2
        written[:, 3:6].mul_(2)
        return picked + most + gathered + binary + recurrent + convolved + scaled + written.sum()


net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
rows = torch.tensor([1, 5, 2], device="cuda")
image = torch.randn(2, 3, 8, 8, device="cuda")
target = torch.rand(8, 64, device="cuda")
for _ in range(3):
    optimizer.zero_grad()
    net(rows, image, target).backward()
    optimizer.step()
