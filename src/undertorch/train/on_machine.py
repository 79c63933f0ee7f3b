"""The step on a GPU in software: every Triton kernel of it runs, and the losses are held against torch's."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

import undertorch
from undertorch.ops.calls import on_host
from undertorch.train.config import Settings, changed, preset
from undertorch.train.distributed import Group
from undertorch.train.loader import Rows
from undertorch.train.model import made
from undertorch.train.step import Step
from undertorch.train.update import Update

GPU = "A100-80GB"
SMALL = {"nano": {"layers": 1, "width": 64, "heads": 4, "context": 16, "vocabulary": 320, "batch": 2}}
"""What runs in software in a minute or two: a kernel does the same on fewer rows."""
SMALL["nano-llama"] = SMALL["nano"]

TOLERANCE = 1e-4
"""Of a loss, against torch's on the CPU, both in float32: sums of some hundred terms in another order differ by some
1e-6 of their size, and three steps of AdamW, which divides small gradients by themselves, widen that."""


def compare(name: str | None, changes: Mapping[str, Any], say: Callable[[str], None]) -> bool:
    """Trains some steps by torch and on the machine, from the same weights and tokens; whether the losses agree."""
    chosen = "nano" if name is None else name
    given = {key: value for key, value in changes.items() if value is not None}
    settings = changed(preset(chosen), **{**SMALL.get(chosen, {}), "steps": 3, **given})
    by_torch, weights = trained(settings)
    launched: list[str] = []
    with undertorch.machine(gpu=GPU), on_host(), our_kernels(launched):
        on_machine, others = trained(settings)
    say(f"{settings.preset}, {settings.shape.layers_said}, as {GPU} runs it")
    agree = True
    for step, (ours, theirs) in enumerate(zip(on_machine, by_torch, strict=True), 1):
        off = abs(ours - theirs)
        agree = agree and off <= TOLERANCE
        say(f"step {step}  loss on the machine {ours:.7f}  by torch {theirs:.7f}  apart {off:.1e} of {TOLERANCE:.0e}")
    apart = max(float((others[name] - weights[name]).abs().max()) for name in weights)
    say(
        f"weights afterwards: at most {apart:.1e} apart, and the steps have moved them by up to {3 * settings.rate:.1e}"
    )
    for kernel in sorted(set(launched)):
        say(f"  {kernel}: {launched.count(kernel)} launches")
    say("the losses agree" if agree else "THE LOSSES DO NOT AGREE")
    return agree and bool(launched)


@contextmanager
def our_kernels(launched: list[str]) -> Iterator[None]:
    """Own kernels run, the usual way of each, and the names of all that Triton launches are noted."""

    def note(about: Any) -> None:
        launched.append(about.get()["name"])

    hooks = triton.knobs.runtime.launch_enter_hook
    before = os.environ.get("UNDERTORCH_OPS")
    os.environ["UNDERTORCH_OPS"] = "own"  # a GPU in software has no times to choose by
    hooks.add(note)
    try:
        yield
    finally:
        hooks.remove(note)
        if before is None:
            del os.environ["UNDERTORCH_OPS"]
        else:
            os.environ["UNDERTORCH_OPS"] = before


def trained(settings: Settings) -> tuple[list[float], dict[str, Tensor]]:
    """The loss of each step and the weights after the last, in float32 on the CPU or whatever stands in its place."""
    device = torch.device("cpu")
    model = made(settings, device, torch.float32)
    step = Step(model, Update(model, settings), settings, Group(rank=0, world=1, device=device))
    random = np.random.default_rng(settings.seed)
    found = []
    for _ in range(settings.steps):
        tokens = random.integers(0, settings.shape.vocabulary, (settings.batch, settings.shape.context + 1))
        rows = Rows(tokens=tokens, places=(0,) * settings.batch, epoch=0)
        found.append(step.gradients([rows] * settings.accumulate)[0])
        step.update(settings.rate)
    return found, {name: p.detach().clone() for name, p in model.named_parameters()}
