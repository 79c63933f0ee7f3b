"""The training step alone, for a few steps on made-up tokens: the script that `undertorch see` is shown.

undertorch see --gpu H200 one_step.py SETTINGS.json
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undertorch.train.config import Settings, Shape
from undertorch.train.distributed import Group
from undertorch.train.loader import Rows
from undertorch.train.model import GPT
from undertorch.train.step import Step
from undertorch.train.update import Update

STEPS = 24
"""More than a measurement takes (steps/measure/plan.py); it ends the script when it has what it wants."""


def settings_of(content: dict[str, Any]) -> Settings:
    """Settings from what dataclasses.asdict made of them and JSON kept."""
    given = {**content, "shape": Shape(**content["shape"]), "betas": tuple(content["betas"])}
    return Settings(**given)


def main(path: str) -> None:
    """Trains on tokens that are drawn evenly."""
    settings = settings_of(json.loads(Path(path).read_text("utf-8")))
    shape, device = settings.shape, torch.device("cuda")
    model = GPT(settings).to(device, torch.bfloat16)
    step = Step(model, Update(model, settings), settings, Group(rank=0, world=1, device=device))
    random = np.random.default_rng(settings.seed)
    for _ in range(STEPS):
        rows = random.integers(0, shape.vocabulary, (settings.batch, shape.context + 1))
        step.compute([Rows(tokens=rows, places=(0,) * settings.batch, epoch=0)] * settings.accumulate)
        step.update(settings.rate)


if __name__ == "__main__":
    main(sys.argv[1])
