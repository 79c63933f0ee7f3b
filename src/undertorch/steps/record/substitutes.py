"""What torch cannot do without a GPU, or in one process that is to end soon, and what stands in for it."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer
from torch.utils import _foreach_utils

from undertorch.records import Gpu
from undertorch.steps.record import compiling, cuda, distributed, loading, profilers, tensor_types, tensors
from undertorch.steps.record.compiled.compiler import Compiler
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put, undone_by
from undertorch.steps.record.places import Places
from undertorch.steps.record.samples import Samples
from undertorch.steps.record.storages import Storages
from undertorch.steps.record.to_host import ToHost
from undertorch.steps.record.values import Values


def substitute(
    gpu: Gpu,
    fakes: Fakes,
    values: Values,
    storages: Storages,
    notes: Notes,
    places: Places,
    samples: Samples,
    to_host: ToHost,
    compiler: Compiler | None,
) -> None:
    """Puts every substitute in place. Call once, before the script runs."""
    cuda.install(gpu, storages, notes, to_host.waited)
    tensors.install(fakes, values, places)
    _take_fakes_for_tensors()
    compiling.install(notes, compiler)
    loading.install(samples)
    distributed.install(notes)
    tensor_types.install()
    profilers.install(notes)
    put(torch, "ctc_loss", _ctc_loss(torch.ctc_loss))
    put(torch, "save", _save(torch.save, notes, to_host))
    # Whether a parameter lies in its distribution's domain is a question of values.
    put(torch.distributions.Distribution, "_validate_args", False)
    # With one GPU it hands its batch on; what it asks for that exists in a CUDA build alone.
    put(torch.nn.DataParallel, "forward", lambda self, *inputs, **named: self.module(*inputs, **named))


def _take_fakes_for_tensors() -> None:
    """Optimizers and clipping choose their foreach and fused forms by type; a fake tensor counts as a tensor."""
    for types in (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
        types.append(FakeTensor)
        undone_by(types.pop)


def _ctc_loss(loss: Any) -> Any:
    """Takes lengths in tensors to the host, as a GPU's does; under a dispatch mode torch would leave them be."""

    def found(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *settings: Any) -> Any:
        lengths = (input_lengths, target_lengths)
        if all(isinstance(length, torch.Tensor) for length in lengths):
            input_lengths, target_lengths = (length.cpu().tolist() for length in lengths)
        return loss(log_probs, targets, input_lengths, target_lengths, *settings)

    return found


NOT_SAVED = "torch.save was called on tensors without values, and wrote nothing."


def _save(save: Any, notes: Notes, to_host: ToHost) -> Any:
    def saved(found: Any, *settings: Any, **named: Any) -> None:
        fakes = list(_fakes(found))
        if not fakes:
            save(found, *settings, **named)
            return
        notes.note(NOT_SAVED)
        with to_host.each_storage_once():
            for tensor in fakes:
                to_host.copied(tensor)

    return saved


def _fakes(found: Any) -> Iterator[torch.Tensor]:
    """The tensors without values in what is to be saved."""
    if isinstance(found, torch.nn.Module):
        found = found.state_dict(keep_vars=True)
    if isinstance(found, Mapping):
        found = list(found.values())
    if isinstance(found, list | tuple | set):
        for value in found:
            yield from _fakes(value)
    elif isinstance(found, FakeTensor):
        yield found
