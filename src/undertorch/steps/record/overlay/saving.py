"""Saving tensors that have no values, and reading them back.

`torch.save` and pickle keep what such a tensor is: its shape, strides, dtype, device and whether it wants gradients.
`torch.load` then gives a tensor without values again, of that kind. A safetensors file is as long as a real one and all
zeros, which take no room on the disk; loaded from it are real tensors of zeros.
"""

import copy
import json
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from undertorch.steps.record.notes import Notes
from undertorch.steps.record.overlay.importing import AfterImport
from undertorch.steps.record.patching import put
from undertorch.steps.record.to_host import ToHost

SAVED = "saved tensors without values: the file keeps their shapes, and loaded from it they have no values either."
SAVED_ZEROS = "saved tensors without values as a safetensors file of zeros."


def install(notes: Notes, to_host: ToHost) -> None:
    """Makes fake tensors something that can be saved. Call once, in a process of which nothing reaches the disk."""
    put(FakeTensor, "__reduce_ex__", _reduced(to_host))
    warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
    torch.serialization.add_safe_globals([rebuilt])
    put(torch, "save", _save(torch.serialization.save, notes, to_host))
    put(torch, "load", _load(torch.serialization.load))
    AfterImport("safetensors", _written_by_python).install()
    AfterImport("safetensors.torch", lambda module: _safetensors(module, notes)).install()
    AfterImport("wandb", _disable).install()


def rebuilt(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: str, wants: bool, parameter: bool
) -> torch.Tensor:
    """A tensor without values: made on the GPU, where every tensor is one, and moved where it belongs."""
    made = torch.empty_strided(shape, strides, dtype=dtype, device="cuda").to(device)
    return torch.nn.Parameter(made, wants) if parameter else made.requires_grad_(wants)


def _reduced(to_host: ToHost) -> Any:
    def reduced(tensor: Any, protocol: Any) -> Any:
        if sys._getframe(1).f_code is not copy.copy.__code__:  # which takes it apart and writes nothing
            to_host.copied(tensor)
        parameter = isinstance(tensor, torch.nn.Parameter)
        what = (tuple(tensor.shape), tensor.stride(), tensor.dtype, str(tensor.device), tensor.requires_grad, parameter)
        return rebuilt, what

    return reduced


def _save(save: Any, notes: Notes, to_host: ToHost) -> Any:
    def saved(found: Any, *settings: Any, **named: Any) -> None:
        if holds_fakes(found):
            notes.note(SAVED)
        with to_host.each_storage_once():
            save(found, *settings, **named)

    return saved


def _load(load: Any) -> Any:
    """`map_location` moves storages, and tensors without values have none."""

    def loaded(file: Any, map_location: Any = None, *settings: Any, **named: Any) -> Any:
        return moved(load(file, map_location, *settings, **named), map_location)

    return loaded


def moved(found: Any, location: Any) -> Any:
    """The same, with its fake tensors where `map_location` says; a function's word is not asked."""
    if isinstance(found, FakeTensor):
        device = location.get(str(found.device)) if isinstance(location, Mapping) else location
        return found.to(device) if isinstance(device, str | torch.device) else found
    if isinstance(found, dict):
        for key, value in found.items():
            found[key] = moved(value, location)
    elif isinstance(found, list):
        found[:] = [moved(value, location) for value in found]
    elif type(found) is tuple:
        return tuple(moved(value, location) for value in found)
    return found


def holds_fakes(found: Any) -> bool:
    """Whether tensors without values are among what is to be saved."""
    if isinstance(found, torch.nn.Module):
        return any(isinstance(tensor, FakeTensor) for tensor in found.state_dict(keep_vars=True).values())
    if isinstance(found, Mapping):
        return any(holds_fakes(value) for value in found.values())
    if isinstance(found, list | tuple | set):
        return any(holds_fakes(value) for value in found)
    return isinstance(found, FakeTensor)


# --- safetensors ------------------------------------------------------------------------------------------------------


def _written_by_python(module: ModuleType) -> None:
    """Its own writer renames the finished file without libc, past the copy."""
    serialize: Any = vars(module)["serialize"]

    def serialized(tensors: Any, filename: Any, metadata: Any = None) -> None:
        Path(os.fspath(filename)).write_bytes(serialize(tensors, metadata=metadata))

    put(module, "serialize_file", serialized)


def _safetensors(module: ModuleType, notes: Notes) -> None:
    save_file: Any = vars(module)["save_file"]
    save: Any = vars(module)["save"]
    names = {dtype: name for name, dtype in vars(module)["_TYPES"].items()}

    def saved_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
        if not holds_fakes(tensors):
            save_file(tensors, filename, metadata)
            return
        notes.note(SAVED_ZEROS)
        _to_host(tensors)
        head, size = layout(tensors, names, metadata)
        with Path(os.fspath(filename)).open("wb") as file:
            file.write(head)
            file.truncate(len(head) + size)

    def saved(tensors: Any, metadata: Any = None) -> Any:
        if not holds_fakes(tensors):
            return save(tensors, metadata)
        notes.note(SAVED_ZEROS)
        _to_host(tensors)
        head, size = layout(tensors, names, metadata)
        return head + bytes(size)

    put(module, "save_file", saved_file)
    put(module, "save", saved)
    _tell_storages_apart(module)


def _to_host(tensors: Mapping[str, Any]) -> None:
    """Each is moved to the host, as safetensors does it."""
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.to("cpu")


def _tell_storages_apart(module: ModuleType) -> None:
    """Tied weights are known by the address of their storage. Those without memory have none; a number serves."""
    address: Any = vars(module)["storage_ptr"]
    whole: Any = vars(module)["_is_complete"]

    def number(tensor: Any) -> int:
        return int(tensor.untyped_storage()._cdata if isinstance(tensor, FakeTensor) else address(tensor))

    def is_whole(tensor: Any) -> bool:
        if not isinstance(tensor, FakeTensor):
            return bool(whole(tensor))
        return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()

    put(module, "storage_ptr", number)
    put(module, "_is_complete", is_whole)


def layout(tensors: Mapping[str, Any], names: Mapping[Any, str], metadata: Any) -> tuple[bytes, int]:
    """The head of a safetensors file (its length in 8 bytes, then JSON, padded to 8), and how many bytes follow it.
    The largest elements come first, so that each tensor is aligned.
    """
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        size = tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, at


# --- wandb ------------------------------------------------------------------------------------------------------------


def _disable(module: ModuleType) -> None:
    """A mode that a script asks for by name goes before the environment's, and both others start a program that no
    library can be loaded into.
    """
    init: Any = vars(module)["init"]

    def disabled(*arguments: Any, **named: Any) -> Any:
        return init(*arguments, **{**named, "mode": "disabled"})

    put(module, "init", disabled)
