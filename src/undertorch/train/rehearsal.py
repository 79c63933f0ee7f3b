"""Kernels that several processes take: the first measures and chooses, and tells the others.

Chosen apart, processes would round apart, and a checkpoint keeps one choice. Measured within a step, the others would
wait in a sum over all for one that measures. So it is done before: the first process makes one step of a model of one
layer, which calls each op as every layer of the model does, in shapes that are those of the run.
"""

from dataclasses import replace

import numpy as np
import torch

from undertorch.ops import choose
from undertorch.train import kept
from undertorch.train.config import Settings
from undertorch.train.distributed import Group, broadcast
from undertorch.train.model import made
from undertorch.train.step import attention_backends


def chosen_together(settings: Settings, one: Group) -> None:
    """Comes before the model is made, whose weights the generators give that are used here. A process alone chooses in
    its first steps; where only one result is wanted, in compiled code and on a CPU nothing is measured.
    """
    on_gpu = one.device.type == "cuda" and torch.cuda.is_available()
    if not one.grouped or not on_gpu or settings.deterministic or settings.compiled or choose.mode() != "auto":
        return
    if one.first:
        with choose.measuring():
            rehearsed(settings, one.device)
    kept.set_choices(broadcast(kept.choices(one.device) if one.first else None, one))


def rehearsed(settings: Settings, device: torch.device) -> None:
    """One forward and backward of one layer, on tokens that are drawn evenly."""
    shape = replace(settings.shape, layers=1)
    half = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = made(replace(settings, shape=shape), device, half)
    drawn = np.random.default_rng(settings.seed).integers(0, shape.vocabulary, (settings.batch, shape.context + 1))
    tokens = torch.from_numpy(drawn).to(device)
    with attention_backends(device):
        model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()).backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        del model, tokens
        torch.cuda.empty_cache()
