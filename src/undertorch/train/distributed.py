"""Several processes, by torch.distributed: who this one is, DDP and FSDP2, sums over all, checkpoints in shares."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from undertorch.train.config import Settings
from undertorch.train.errors import ProcessGone
from undertorch.train.model import GPT

SHARES = "shares"
"""Folder in a checkpoint that holds what torch.distributed.checkpoint wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The processes that train together; one alone is rank 0 of 1."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process speaks for all."""
        return self.rank == 0

    def means(self, *values: float) -> list[float]:
        """Of each value, its mean over all processes."""
        if self.world == 1:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(together)
        return (together / self.world).tolist()

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def group(on: str) -> Iterator[Group]:
    """Joins the processes that torchrun started (RANK, WORLD_SIZE, LOCAL_RANK); alone without them.

    NCCL where each has a GPU, gloo on CPUs.
    """
    world, rank, local = (int(os.environ.get(name, usual)) for name, usual in TORCHRUN.items())
    device = torch.device("cuda", local) if on == "cuda" else torch.device("cpu")
    if device.type == "cuda" and torch.cuda.is_available():
        torch.cuda.set_device(device)
    if "RANK" not in os.environ or world == 1:
        yield Group(rank=0, world=1, device=device)
        return
    dist.init_process_group("nccl" if on == "cuda" else "gloo", device_id=device if on == "cuda" else None)
    try:
        yield Group(rank=rank, world=world, device=device)
        dist.barrier()
    except RuntimeError as error:
        if not _connection_lost(error):
            raise
        said = " ".join(str(error).split())
        raise ProcessGone(
            f"another process of the run has ended (to process {rank} its connection says: {said[:200]}); its own "
            "message, if there is one, says why. --resume goes on from the last checkpoint."
        ) from error
    finally:
        dist.destroy_process_group()


def _connection_lost(error: RuntimeError) -> bool:
    """NCCL's errors have a class of their own; gloo's are known by its sources' names in them."""
    return isinstance(error, dist.DistBackendError) or "gloo/" in str(error) or "[gloo" in str(error).lower()


TORCHRUN = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}


def shared(model: GPT, settings: Settings, one: Group) -> nn.Module:
    """The model as the processes call it: itself, under DDP, or with its parameters in shares (FSDP2)."""
    if one.world == 1:
        return model
    if settings.parallel == "fsdp":
        return _sharded(model, one)
    from torch.nn.parallel import DistributedDataParallel

    ids = [one.device.index] if one.device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)


def _sharded(model: GPT, one: Group) -> nn.Module:
    """A block's parameters are gathered while it computes, and its gradients scattered while the one before it does.

    Shares are float32, and so are the sums of gradients; on a GPU blocks compute in bfloat16.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    half = torch.bfloat16 if one.device.type == "cuda" else None
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model


def write_shares(folder: Path, state: Mapping[str, Tensor]) -> None:
    """Every process its part, by torch.distributed.checkpoint. Raises OSError in all where one could not."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_saver import save

    try:
        save(dict(state), checkpoint_id=folder / SHARES)
    except CheckpointException as error:
        failed = next(iter(error.failures.values()))[0]
        raise OSError(getattr(failed, "errno", None), str(failed)) from error


def read_shares(folder: Path, state: Mapping[str, Tensor]) -> None:
    """Into the tensors, whatever share of each is this process's."""
    from torch.distributed.checkpoint.state_dict_loader import load

    given: dict[str, Any] = dict(state)
    load(given, checkpoint_id=folder / SHARES, no_dist=not dist.is_initialized())


def broadcast(value: Any, one: Group) -> Any:
    """What the first process has, in all."""
    if one.world == 1:
        return value
    held = [value]
    dist.broadcast_object_list(held, src=0, device=one.device)
    return held[0]
