"""Process groups of one process: DistributedDataParallel, FSDP and what else talks to other ranks, of which there are
none.

NCCL with one rank launches nothing for what stays in place, and copies what does not (ncclLaunchOneRank of its
src/device/onerank.cu). So do these groups, whose copies are recorded as the ops that they are.
"""

import os
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch
from torch import distributed
from torch.futures import Future

from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put

NAME = "undertorch"
NCCL_VERSION = (2, 27, 5)
"""What torch 2.9's CUDA wheels bring along (their metadata: nvidia-nccl-cu12==2.27.5); no op hangs on it."""
ALONE = (
    "the process group has one process: its collectives move nothing to another GPU, and the copies within are shown."
)


class SeveralProcesses(NotImplementedError):
    """A group that waits for processes which are not there."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"The process group wants {count} processes, and one is seen: run the script with WORLD_SIZE=1, and by"
            " itself where torchrun starts it."
        )


def install(notes: Notes) -> None:
    """Makes every process group one of these, whatever backend it asks for. Call once."""
    if not distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    c10d: Any = distributed_c10d
    for home in (distributed, distributed_c10d):
        put(home, "is_nccl_available", lambda: True)
    put(torch.cuda.nccl, "version", lambda: NCCL_VERSION)
    # It compares the shapes of the parameters across processes, by values.
    put(distributed, "_verify_params_across_processes", lambda *settings, **named: None)
    # It asserts that there is a timer, of which the guard makes none (as a CPU build).
    put(torch._C._distributed_c10d.Logger, "set_runtime_stats_and_log", lambda logger: None)
    # Before the second step it puts the gradients into buckets anew, by numbers that it sends over the GPU, where no
    # values are kept. One process sends no bucket, so that it does not matter which gradient lies in which.
    put(torch._C._distributed_c10d.Reducer, "_rebuild_buckets", lambda reducer: False)
    # A CPU build warns about NCCL's.
    put(distributed_c10d, "_get_default_timeout", lambda backend: distributed_c10d.default_pg_timeout)
    put(distributed_c10d, "rendezvous", _rendezvous(c10d.rendezvous))
    put(distributed_c10d, "_new_process_group_helper", _made(distributed_c10d, notes))


def _rendezvous(meet: Any) -> Any:
    """Says so at once where others would be waited for. What is missing torch says itself."""

    def met(url: str, rank: int = -1, world_size: int = -1, **named: Any) -> Any:
        asked = parse_qs(urlparse(url).query).get("world_size", [os.environ.get("WORLD_SIZE", "")])[0]
        count = world_size if world_size > 0 else int(asked) if asked.isdigit() else 1
        if count > 1:
            raise SeveralProcesses(count)
        return meet(url, rank, world_size, **named)

    return met


def _made(c10d: Any, notes: Notes) -> Any:
    make = c10d._new_process_group_helper

    def made(size: int, rank: int, ranks: Any, backend: Any, *settings: Any, **named: Any) -> Any:
        if size > 1:
            raise SeveralProcesses(size)
        notes.note(ALONE)
        if NAME.upper() not in c10d.Backend._plugins:
            c10d.Backend.register_backend(NAME, _group, extended_api=True, devices=["cpu", "cuda"])
        # Of options NCCL has its own; and bound to a device, a group asks its backend for communicators at once.
        named = {**_named(settings[2:]), **named, "backend_options": None, "device_id": None}
        group, store = make(size, rank, ranks, c10d.Backend(NAME), *settings[:2], **named)
        if group is not c10d.GroupMember.NON_GROUP_MEMBER:
            # What get_backend() answers.
            c10d._world.pg_map[group] = (str(backend), store)
        return group, store

    return made


def _named(settings: Sequence[Any]) -> dict[str, Any]:
    """What follows the store and the group's name, by name."""
    return dict(zip(("backend_options", "timeout", "pg_tag", "device_id", "group_desc"), settings, strict=False))


def _group(options: Any, backend_options: Any) -> Any:
    return _group_class()(options.group_rank, options.group_size)


@cache
def _group_class() -> Any:
    """Made when it is needed: there are builds of torch without process groups."""
    return type("OneProcess", (OneProcess, distributed.ProcessGroup), {})


class OneProcess:
    """What a process group does when its process is the only one."""

    def getBackendName(self) -> str:
        """torch asks for it."""
        return NAME

    @property
    def group_name(self) -> str:
        """The name by which functional collectives find it."""
        from torch.distributed import distributed_c10d

        names: Any = distributed_c10d._world.pg_names
        return str(names[self])

    def _stay(self, tensors: Any, *settings: Any, **named: Any) -> Any:
        """In place, and of one: nothing is to be done."""
        return _done(tensors)

    allreduce = allreduce_coalesced = broadcast = reduce = _stay

    def barrier(self, *settings: Any, **named: Any) -> Any:
        """Nobody is waited for."""
        return _done([])

    def _copy(self, outputs: Any, inputs: Any, *settings: Any, **named: Any) -> Any:
        """To each tensor what it is sent, by itself."""
        for output, source in zip(_flat(outputs), _flat(inputs), strict=False):
            if output.data_ptr() != source.data_ptr():
                output.copy_(source.view_as(output))
        return _done(outputs)

    allgather = gather = reduce_scatter = scatter = alltoall = _copy
    allgather_coalesced = allgather_into_tensor_coalesced = reduce_scatter_tensor_coalesced = _copy
    _allgather_base = _reduce_scatter_base = alltoall_base = _copy
    # The names of the same from torch 2.13 on.
    all_gather_single = reduce_scatter_single = all_to_all_single = _copy
    all_gather_single_coalesced = reduce_scatter_single_coalesced = _copy


def _flat(tensors: Any) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else [tensor for one in tensors for tensor in _flat(one)]


def _done(result: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(result)
    c10d: Any = torch._C._distributed_c10d
    return c10d._create_work_from_future(future)
