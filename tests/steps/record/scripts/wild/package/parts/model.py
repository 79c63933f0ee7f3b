"""The model."""

from torch import nn


class Net(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(settings.width, settings.width) for _ in range(settings.depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x
