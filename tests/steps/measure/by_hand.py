"""Traces written by hand, as torch.profiler writes them, beside what undertorch keeps of the same run."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undertorch.records import Phase, Where
from undertorch.steps.measure import exchange
from undertorch.steps.measure.exchange import Compiled, Mark, Measured

MAIN, ENGINE = 1, 2
"""Threads: the script's and the autograd engine's."""


class Written:
    """Events of one process, on an H200."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._correlation = 0

    def add(self, category: str, name: str, begin: float, end: float, thread: int = MAIN, **args: Any) -> None:
        """One event."""
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 9,
                "tid": thread,
                "ts": begin,
                "dur": end - begin,
                "args": args,
            }
        )

    def call(self, name: str, begin: float, end: float, thread: int = MAIN, **args: Any) -> None:
        """A call into ATen, a node of the engine or a marker."""
        self.add("cpu_op", name, begin, end, thread, **args)

    def launch(
        self,
        at: float,
        *kernels: tuple[str, float, float],
        thread: int = MAIN,
        graph: bool = False,
        grid: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        """A launch and what it ran on the GPU: names, starts and ends."""
        self._correlation += 1
        name = "cudaGraphLaunch" if graph else "cudaLaunchKernel"
        self.add("cuda_runtime", name, at, at + 1, thread, correlation=self._correlation)
        for kernel, begin, end in kernels:
            category = "gpu_memset" if kernel == "Memset" else "kernel"
            geometry = {} if category == "gpu_memset" else {"grid": list(grid), "block": [32, 1, 1]}
            self.add(category, kernel, begin, end, 7, correlation=self._correlation, device=0, stream=7, **geometry)

    def step(self, number: int, begin: float, end: float) -> None:
        self.add("user_annotation", f"ProfilerStep#{number}", begin, end)


def where(line: int) -> Where:
    return Where(file="train.py", line=line, function="forward")


def mark(line: int, phase: Phase | None = Phase.FORWARD, what: str = "call") -> Mark:
    return Mark(where=where(line), chain=(), module=None, phase=phase, microbatch=0, what=what)


def compiled(*calls: tuple[str, Sequence[int]]) -> tuple[Compiled, ...]:
    """Calls of a graph's code: a name and the lines that each came from."""
    return tuple(Compiled(name=name, wheres=tuple((where(line),) for line in lines)) for name, lines in calls)


def kept(folder: Path, written: Written, marks: Sequence[Mark] = (), **more: Any) -> Measured:
    """Puts both into a folder, as the script's process does."""
    trace = {"traceEvents": written.events, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}
    (folder / exchange.TRACE).write_bytes(gzip.compress(json.dumps(trace).encode()))
    measured = Measured(script="train.py", gpu_name="NVIDIA H200", marks=tuple(marks), **{"steps": (1,)} | more)
    exchange.write(folder, measured)
    return measured
