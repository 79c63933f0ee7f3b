"""Recurrent layers under autocast, with sequences first: 5 time steps of a batch of 3."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, num_layers=2)
        self.gru = nn.GRU(16, 16, bias=False)
        self.cell = nn.LSTMCell(16, 4)

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x, _ = self.lstm(x)
        with torch.autocast("cuda", dtype=torch.float16):
            x, _ = self.gru(x)
            hidden, _ = self.cell(x[-1])
        with torch.autocast("cuda", enabled=False):
            x, _ = self.gru(x.float())
        return x.sum() + hidden.sum()


net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    net(torch.randn(5, 3, 8, device="cuda")).backward()
    optimizer.step()
