"""A mixture of experts: each token goes to two of eight, found by comparing in one layer, by one_hot in the next."""

import torch
import torch.nn.functional as F
from torch import nn

EXPERTS, CHOSEN, WIDTH = 8, 2, 32


class Layer(nn.Module):
    def __init__(self, hot):
        super().__init__()
        self.hot = hot
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 64), nn.SiLU(), nn.Linear(64, WIDTH)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        weights, chosen = torch.topk(F.softmax(self.gate(x), -1), CHOSEN, -1)
        out = torch.zeros_like(x)
        masks = F.one_hot(chosen, num_classes=EXPERTS).permute(2, 0, 1) if self.hot else None
        for number, expert in enumerate(self.experts):
            tokens, place = torch.where(masks[number] if self.hot else chosen == number)
            out.index_add_(0, tokens, expert(x[tokens]) * weights[tokens, place, None])
        return out


model = nn.Sequential(Layer(hot=False), Layer(hot=True)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    loss = model(torch.randn(96, WIDTH, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
