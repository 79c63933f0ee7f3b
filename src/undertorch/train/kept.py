"""What a checkpoint keeps of a run, written and read back: weights, moments, states of the generators, choices."""

import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undertorch import __version__
from undertorch.ops import choose
from undertorch.train.checkpoint import Checkpoint
from undertorch.train.distributed import SHARES, Group, read_shares, write_shares
from undertorch.train.errors import BadCheckpoint
from undertorch.train.update import Update

FILES = {"weights": "weights.safetensors", "exp_avg": "optimizer.safetensors", "exp_avg_sq": "optimizer.safetensors"}


def in_shares(update: Update) -> bool:
    """Whether this process holds only a share of each tensor."""
    return any(hasattr(tensor, "placements") for tensor in update.tensors().values())


def write(folder: Path, update: Update) -> None:
    """Weights and moments: as safetensors, or each process its share. Raises OSError."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = update.tensors()
    if in_shares(update):
        write_shares(folder, tensors)
        return
    by_file: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        by_file.setdefault(FILES[name.partition(".")[0]], {})[name] = tensor.cpu().contiguous()
    for file, content in by_file.items():
        try:
            save_file(content, folder / file)
        except SafetensorError as error:  # how the package tells of a full disk: `… (os error 28)`
            number = re.search(r"os error (\d+)", str(error))
            raise OSError(*((int(number[1]), os.strerror(int(number[1]))) if number else (str(error),))) from error


@torch.no_grad()
def read(found: Checkpoint, update: Update) -> None:
    """Into the run's tensors, in whole or in shares, as either was written. Raises BadCheckpoint for another model."""
    from safetensors import safe_open

    tensors = update.tensors()
    if (found.folder / SHARES).is_dir():
        read_shares(found.folder, tensors)
    else:
        left = set(tensors)
        for file in sorted(set(FILES.values())):
            with safe_open(found.folder / file, framework="pt") as given:
                for name in given.keys():  # noqa: SIM118 - no mapping
                    if name not in tensors or tuple(given.get_slice(name).get_shape()) != tuple(tensors[name].shape):
                        raise BadCheckpoint(f"the checkpoint {found.folder} is of another model: see its {name}.")
                    _put(given.get_tensor(name), tensors[name])
                    left.discard(name)
        if left:
            raise BadCheckpoint(f"the checkpoint {found.folder} is of another model: it has no {min(left)}.")
    update.restored(found.progress.step)


def _put(whole: Tensor, into: Tensor) -> None:
    placements: Any = getattr(into, "placements", None)
    if placements is None:
        into.copy_(whole)
        return
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(into, DTensor)
    share = distribute_tensor(whole.to(into.device), into.device_mesh, placements)
    into.to_local().copy_(share.to_local())


def random_states() -> dict[str, str]:
    """Of torch's generators. The loader's shuffle and the samples have seeds of their own."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return {name: state.numpy().tobytes().hex() for name, state in states.items()}


def set_random_states(states: Mapping[str, str]) -> None:
    """Those of a checkpoint; a generator that this machine has not is left out."""
    made = {name: torch.from_numpy(np.frombuffer(bytes.fromhex(s), np.uint8).copy()) for name, s in states.items()}
    torch.set_rng_state(made["cpu"])
    if "cuda" in made and torch.cuda.is_available():
        torch.cuda.set_rng_state(made["cuda"])


def choices(device: torch.device) -> dict[str, Any]:
    """What ops.choose has chosen for this GPU, or was told, as its file has it; of a CPU nothing is chosen."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return {}
    where = choose.environment(device)
    return choose.as_file({where: choose.stored_choices(where)})


def set_choices(chosen: Mapping[str, Any]) -> None:
    """The same kernels as before: another choice is another rounding."""
    if not chosen:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ops.json"
        path.write_text(json.dumps(chosen), "utf-8")
        choose.load(path)


def versions(one: Group) -> dict[str, str]:
    """Of what decides the last bit."""
    found = {"undertorch": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    found["processes"] = str(one.world)
    found["device"] = torch.cuda.get_device_name() if one.device.type == "cuda" and torch.cuda.is_available() else "cpu"
    if found["device"] == "cpu":
        found["threads"] = str(torch.get_num_threads())
    return found
