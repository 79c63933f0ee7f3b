"""A loop of one's own, seen from inside its process: before, in and after the block.

The arguments say what happened before. Prints as JSON what the test looks at.
"""

import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

import undertorch
from undertorch.steps.record.errors import RecordError

REPLACED = [
    (torch, "compile"),
    (torch, "save"),
    (nn.Parameter, "__new__"),
    (nn.Module, "_apply"),
    (nn.Module, "_call_impl"),
    (torch.autograd.Function, "apply"),
    (torch.autograd, "_engine_run_backward"),
    (torch.optim.Optimizer, "__init__"),
    (torch.cuda, "is_available"),
    (torch.cuda, "Stream"),
    (torch.Tensor, "record_stream"),
    (DataLoader, "_get_iterator"),
]
shown = {}


def stored():
    return [vars(home).get(name) for home, name in REPLACED]


def train(steps=10):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), head).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        loss = model(torch.randn(4, 8, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    shown["went on"] = True


head = nn.Linear(8, 2)
if "backward" in sys.argv:
    head(torch.ones(1, 8)).sum().backward()
if "available" in sys.argv:
    torch.cuda.is_available()
weight, gradient = head.weight.detach().clone(), head.weight.grad
before = stored()

for number in range(2):
    with undertorch.seeing(gpu="H200", step=3) as seen:
        if number == 0:
            try:
                undertorch.seeing().__enter__()
            except RecordError as error:
                shown["second block"] = str(error)
        train()
        shown["after the loop"] = True

shown["step"] = seen.step.environment.step
shown["ops"] = [op.name for op in seen.step.ops]
shown["lines"] = sorted({op.where.line for op in seen.step.ops})
shown["script"] = seen.step.environment.script
shown["outermost"] = sorted({(op.chain or (op.where,))[-1].function for op in seen.step.ops})
shown["put back"] = stored() == before
shown["same weight"] = torch.equal(head.weight, weight) and head.weight.grad is gradient
shown["kind"] = type(head.weight).__name__
shown["cuda"] = torch.cuda.is_available(), torch.accelerator.is_available(), str(head.weight.device)
try:
    torch.ones(1, device="cuda")
except (AssertionError, RuntimeError, NotImplementedError) as error:
    shown["cuda tensor"] = type(error).__name__

optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
optimizer.zero_grad()
loss = nn.functional.mse_loss(head(torch.ones(1, 8)), torch.zeros(1, 2))
loss.backward()
optimizer.step()
shown["learns"] = nn.functional.mse_loss(head(torch.ones(1, 8)), torch.zeros(1, 2)).item() < loss.item()

try:
    with undertorch.seeing() as failed:
        raise LookupError("the block's own")
except LookupError as error:
    shown["failed"] = str(error)
try:
    failed.step  # noqa: B018
except AttributeError as error:
    shown["no step"] = str(error)
try:
    with undertorch.seeing():
        pass
except RecordError as error:
    shown["empty"] = str(error)
shown["put back at the end"] = stored() == before
print(json.dumps(shown))
