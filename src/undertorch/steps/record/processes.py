"""Processes that the script starts to train in, or to compute in.

`torch.multiprocessing.spawn` with a process a GPU starts one: it runs here instead, where it is seen. Python processes
that multiprocessing starts anew import the script, and with it make CUDA tensors, which are fake there too.
"""

from collections.abc import Callable, Sequence
from multiprocessing import spawn
from types import SimpleNamespace
from typing import Any

from torch import multiprocessing

from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put

HERE = "torch.multiprocessing.spawn ran its one process within the script's own, where it is seen."
STARTED = "what processes of multiprocessing compute is not shown: the step is that of the script's own process."


def install(notes: Notes, request: str) -> None:
    """`request`: the file that says what is recorded, for processes that begin anew. Call once."""
    put(multiprocessing, "spawn", _spawn(notes))
    if request:
        put(spawn, "get_command_line", _command(spawn.get_command_line, notes, request))


def _spawn(notes: Notes) -> Callable[..., Any]:
    def spawned(
        fn: Callable[..., object],
        args: Sequence[object] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> Any:
        if nprocs > 1:
            raise NotImplementedError(
                f"torch.multiprocessing.spawn is to start {nprocs} processes, and one GPU is seen: start one, such as"
                " torch.cuda.device_count() has it."
            )
        notes.note(HERE)
        fn(0, *args)
        return None if join else SimpleNamespace(processes=[], pids=lambda: [], join=lambda *times: True)

    return spawned


def _command(make: Any, notes: Notes, request: str) -> Any:
    """Such a process begins with `begin`."""

    def made(**given: Any) -> list[str]:
        notes.note(STARTED)
        command: list[str] = make(**given)
        program = command.index("-c") + 1
        command[program] = f"from undertorch.steps.record.child import begin; begin({request!r}); {command[program]}"
        return command

    return made
