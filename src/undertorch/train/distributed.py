"""Several processes, by torch.distributed: who this one is, DDP and FSDP2, sums over all, checkpoints in shares."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
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

GATHERED, SUMMED = 2, 4
"""Bytes a parameter that FSDP holds beside its shares where it does not spare memory: weights in bfloat16 from forward
to backward; of several microbatches, their gradients in float32 until the last."""

MOST_OF_MEMORY = 1 / 8
"""Of a GPU's, for them: more, and FSDP spares it by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The processes that train together; one alone is rank 0 of 1."""

    rank: int
    world: int
    device: torch.device
    grouped: bool = False
    """Whether torch.distributed has a process group, of which this is one."""

    @property
    def first(self) -> bool:
        """Whether this process speaks for all."""
        return self.rank == 0

    def means(self, *values: float) -> list[float]:
        """Of each value, its mean over all processes."""
        if not self.grouped:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(together)
        return (together / self.world).tolist()

    def wait(self) -> None:
        """Until all are here."""
        if self.grouped:
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
    whole = False
    try:
        yield Group(rank=rank, world=world, device=device, grouped=True)
        dist.barrier()
        whole = True
    except RuntimeError as error:
        if not _connection_lost(error):
            raise
        said = " ".join(str(error).split())
        raise ProcessGone(
            f"another process of the run has ended (to process {rank} its connection says: {said[:200]}); its own "
            "message, if there is one, says why. --resume goes on from the last checkpoint."
        ) from error
    finally:
        leave(device, whole)


def leave(device: torch.device, whole: bool) -> None:
    """Ends the process group; `whole`: all processes come to its end. Where they may not, NCCL's is aborted: on a host
    its communicators end together (its manual, ncclCommDestroy).
    """
    group_of_all: Any = dist.group.WORLD
    if whole or device.type != "cuda":
        dist.destroy_process_group()
    else:
        group_of_all.abort()


def _connection_lost(error: RuntimeError) -> bool:
    """NCCL's errors have a class of their own; gloo's are known by its sources' names in them."""
    return isinstance(error, dist.DistBackendError) or "gloo/" in str(error) or "[gloo" in str(error).lower()


TORCHRUN = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}


def shared(model: GPT, settings: Settings, one: Group, stream: torch.cuda.Stream | None = None) -> nn.Module:
    """The model as the processes call it: itself, under DDP, or with its parameters in shares (FSDP2).

    `stream`: that its steps run on, if they have one of their own.
    """
    if not one.grouped:
        return model
    if settings.parallel == "fsdp":
        return _sharded(model, settings, one)
    return _replicated(model, one, stream)


def _replicated(model: GPT, one: Group, stream: torch.cuda.Stream | None) -> nn.Module:
    """Gradients are summed over the processes, in the parameters' dtype, as a backward makes them."""
    from torch.nn.parallel import DistributedDataParallel

    ids = [one.device.index] if one.device.type == "cuda" else None
    # What is no parameter is computed, and the same everywhere. (Its name until torch 2.12, and since.)
    known = signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    still: dict[str, Any] = {name: False}
    # On the step's stream: DDP keeps what adds up a gradient, which goes on where it was made (PyTorch's notes, "CUDA
    # Graphs").
    if stream is not None:
        stream.wait_stream(torch.cuda.current_stream())
    with nullcontext() if stream is None else torch.cuda.stream(stream):
        made = DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True, **still)
    if stream is not None:
        torch.cuda.current_stream().wait_stream(stream)
    return made


def _sharded(model: GPT, settings: Settings, one: Group) -> nn.Module:
    """A block's parameters are gathered before it computes, and its gradients scattered while the one before it does.

    Shares are float32, and so are the sums of gradients; on a GPU blocks compute in bfloat16. The embedding and the
    last layer are groups of their own where they are two: the one's gradients are scattered while the blocks compute.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    half = torch.bfloat16 if one.device.type == "cuda" else None
    # What goes into a block is not cast: it has its dtype already, and RoPE's cosines are to keep float32.
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32, cast_forward_inputs=False)
    again = spares(settings, one)
    if model.head is not None:
        fully_shard(model.tokens, mp_policy=policy).set_unshard_in_backward(False)  # its gradient asks for no weight
        fully_shard([model.norm, model.head], mp_policy=policy, reshard_after_forward=False)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=again)
    fully_shard(model, mp_policy=policy)
    return model


def spares(settings: Settings, one: Group) -> bool:
    """Whether FSDP gathers weights again for the backward, and sums gradients over the processes at every microbatch:
    as the settings say, and where they do not, if the GPU has no room for the rest.
    """
    if settings.sparing is not None:
        return settings.sparing
    if one.device.type != "cuda" or not torch.cuda.is_available():
        return False
    each = GATHERED + (SUMMED if settings.accumulate > 1 else 0)
    memory = torch.cuda.get_device_properties(one.device).total_memory
    return each * settings.shape.parameters > memory * MOST_OF_MEMORY


@contextmanager
def gradients(model: nn.Module, stay: bool) -> Iterator[None]:
    """Of a forward and backward inside: they stay where they are computed, or are summed over the processes with those
    that stayed before. `model`: as `shared` made it.
    """
    from torch.distributed.fsdp import FSDPModule
    from torch.nn.parallel import DistributedDataParallel

    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(not stay)
        model.set_is_last_backward(not stay)
        model.set_reshard_after_backward(not stay)
    with model.no_sync() if stay and isinstance(model, DistributedDataParallel) else nullcontext():
        yield


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
    if not one.grouped:
        return value
    held = [value]
    dist.broadcast_object_list(held, src=0, device=one.device)
    return held[0]
