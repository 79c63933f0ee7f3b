"""What torch cannot do without a GPU, or in one process that is to end soon, and what stands in for it."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils.data import DataLoader

from undertorch.records import Gpu
from undertorch.steps.record import cuda, tensors
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put
from undertorch.steps.record.places import Places
from undertorch.steps.record.storages import Storages
from undertorch.steps.record.values import Values


def substitute(gpu: Gpu, fakes: Fakes, values: Values, storages: Storages, notes: Notes, places: Places) -> None:
    """Puts every substitute in place. Call once, before the script runs."""
    cuda.install(gpu, storages, notes)
    tensors.install(fakes, values, places)
    _take_fakes_for_tensors()
    put(torch, "compile", _compile(notes))
    put(torch.nn.Module, "compile", lambda module, *settings, **named: notes.note(COMPILED))
    put(torch, "save", _save(torch.save, notes))
    put(DataLoader, "__init__", _loader(DataLoader.__init__))
    # With one GPU it hands its batch on; what it asks for that exists in a CUDA build alone.
    put(torch.nn.DataParallel, "forward", lambda self, *inputs, **named: self.module(*inputs, **named))


def _take_fakes_for_tensors() -> None:
    """Optimizers and clipping choose their foreach and fused forms by type; a fake tensor counts as a tensor."""
    optimizer._foreach_supported_types.append(FakeTensor)
    _foreach_utils._foreach_supported_types.append(FakeTensor)


COMPILED = "torch.compile left the model as it is: the step is recorded as it runs without compilation."


NOT_SAVED = "torch.save was called on tensors without values, and wrote nothing."


def _save(save: Any, notes: Notes) -> Any:
    def saved(found: Any, *settings: Any, **named: Any) -> None:
        if _holds_fakes(found):
            notes.note(NOT_SAVED)
        else:
            save(found, *settings, **named)

    return saved


def _holds_fakes(found: Any) -> bool:
    if isinstance(found, torch.nn.Module):
        return any(isinstance(tensor, FakeTensor) for tensor in found.state_dict(keep_vars=True).values())
    if isinstance(found, Mapping):
        return any(_holds_fakes(value) for value in found.values())
    if isinstance(found, list | tuple | set):
        return any(_holds_fakes(value) for value in found)
    return isinstance(found, FakeTensor)


def _compile(notes: Notes) -> Any:
    def compiled(model: Any = None, *settings: Any, **named: Any) -> Any:
        notes.note(COMPILED)
        return model if model is not None else lambda function: function

    return compiled


def _loader(make: Any) -> Any:
    """A DataLoader that loads in this process: worker processes know nothing of fake tensors, and one step needs no
    speed.
    """

    def made(self: Any, *arguments: Any, **named: Any) -> None:
        given = inspect.signature(make).bind(self, *arguments, **named)
        given.arguments.update(
            num_workers=0, pin_memory=False, prefetch_factor=None, persistent_workers=False, timeout=0
        )
        given.arguments["multiprocessing_context"] = None
        make(*given.args, **given.kwargs)

    return made
