"""A script in a package: relative imports, arguments, a data file beside it."""

import argparse
import json
from pathlib import Path

import torch

from .parts.model import Net
from .parts.settings import Settings


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=1)
    given = parser.parse_args()
    assert __package__ == "package"
    settings = Settings(**json.loads((Path(__file__).parent / "settings.json").read_text()))
    model = Net(settings).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=given.lr)
    for _ in range(given.steps):
        loss = model(torch.randn(4, settings.width, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
