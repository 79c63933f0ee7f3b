"""The backward: which node runs, and which forward Op made it.

Autograd gives each node a number when the forward makes it, counted in each thread apart. The forward's op is told to
the recorder just after its node was made, so the newest number then is that op's.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from undertorch.steps.record.guard import Guard
from undertorch.steps.record.patching import put


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The backward node that an op ran in, or just after: the engine reduces and adds up what a node returned."""

    name: str
    """Such as `AddmmBackward0`."""
    key: tuple[int, int]
    """The thread that made it and its number there; of an AccumulateGrad those of the node that made the gradient."""
    runs: bool
    """False: it is done, and the engine works on its gradients."""
    parameter: torch.Tensor | None = None
    """Of an AccumulateGrad node that runs: the tensor whose gradient it keeps."""


class Backward:
    """Follows the runs of the autograd engine, and knows the forward Op of each node."""

    def __init__(
        self, guard: Guard, started: Sequence[Callable[[], None]], ended: Sequence[Callable[[], None]]
    ) -> None:
        """`started` and `ended` are told of each outermost run of the engine."""
        self._guard = guard
        self._started = started
        self._ended = ended
        self._runs: list[bool] = []
        self._threads = threading.local()
        self._forward: dict[tuple[int, int], int] = {}

    def follow(self) -> None:
        """Wraps the one function through which torch runs the engine. Call once."""
        run = torch.autograd.graph._engine_run_backward

        def followed(outputs: Any, *arguments: Any, **named: Any) -> Any:
            # run_backward(outputs, grad_outputs, retain_graph, create_graph, inputs, …)
            create_graph = bool(named.get("create_graph", arguments[2] if len(arguments) > 2 else False))
            if not self._runs:
                for told in self._started:
                    told()
            self._runs.append(create_graph)
            try:
                return run(outputs, *arguments, **named)
            finally:
                self._runs.pop()
                if not self._runs:
                    for told in self._ended:
                        told()

        put(torch.autograd.graph, "_engine_run_backward", followed)
        put(torch.autograd, "_engine_run_backward", followed)

    @property
    def runs(self) -> bool:
        """Whether the engine is running."""
        return bool(self._runs)

    @property
    def creates_graph(self) -> bool:
        """Whether the innermost run builds a graph of its own work."""
        return bool(self._runs) and self._runs[-1]

    def node(self) -> Node | None:
        """The node that runs on this thread, or the one it ran last; None outside the engine."""
        if not self._runs:
            return None
        guard = self._guard
        finished = (guard.finished_thread(), guard.finished_sequence())
        if guard.nodes_running() < len(self._runs):
            return Node(name=_plain(guard.finished_name()), key=finished, runs=False)
        parameter = getattr(torch._C._current_autograd_node(), "variable", None)
        running = (guard.running_thread(), guard.running_sequence())
        key = running if parameter is None else finished
        return Node(name=_plain(guard.running_name()), key=key, runs=True, parameter=parameter)

    def made(self, op: int | None) -> bool:
        """Call for each op that torch is about to run, with its id where it is recorded. Answers whether it has a node.

        Nodes that were made since the op before, yet ahead of this one's, belong to the op before (an in-place write to
        a view makes a second one afterwards).
        """
        newest = torch._C._autograd._get_sequence_nr()
        seen, before = getattr(self._threads, "seen", (0, None))
        self._threads.seen = (newest, op)
        if newest == seen:
            return False
        thread = self._guard.thread_number()
        for number in range(seen, newest - 1):
            self._enter((thread, number), before)
        self._enter((thread, newest - 1), op)
        return True

    def forward_of(self, node: Node) -> int | None:
        """Id of the Op whose forward made a node; None where it was not recorded."""
        return self._forward.get(node.key)

    def _enter(self, key: tuple[int, int], op: int | None) -> None:
        if op is not None:
            self._forward[key] = op


def _plain(name: bytes) -> str:
    return name.decode().rsplit("::", 1)[-1]
