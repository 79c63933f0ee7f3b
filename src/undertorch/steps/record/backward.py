"""The backward: which node runs, and which forward Op made it.

Autograd gives each node a number when the forward makes it, counted in each thread apart. The forward's op is told to
the recorder just after its node was made, so the newest number then is that op's. A custom Function's node is made
before its forward runs, and is known by the line that called it.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from undertorch.steps.record.guard import Guard
from undertorch.steps.record.patching import put
from undertorch.steps.record.places import Place

Key = tuple[int, int]
"""Of a node: the thread that made it, and its number there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The backward node that an op ran in, or just after: the engine reduces and adds up what a node returned."""

    name: str
    """Such as `AddmmBackward0`."""
    key: Key
    """Of an AccumulateGrad that of the node that made the gradient."""
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
        self._forward: dict[Key, int] = {}
        self._functions: dict[Key, Place] = {}

    def follow(self) -> None:
        """Wraps the one function through which torch runs the engine. Call once, on the script's main thread."""
        run = torch.autograd.graph._engine_run_backward
        self.thread_begins()

        def followed(outputs: Any, *arguments: Any, **named: Any) -> Any:
            # run_backward(outputs, grad_outputs, retain_graph, create_graph, inputs, …)
            create_graph = bool(named.get("create_graph", arguments[2] if len(arguments) > 2 else False))
            if not self._runs:
                for told in self._started:
                    told()
            self._runs.append(create_graph)
            own = getattr(self._threads, "runs", None)
            if own is not None:
                self._threads.runs = own + 1
            try:
                return run(outputs, *arguments, **named)
            finally:
                self._threads.runs = own
                self._runs.pop()
                if not self._runs:
                    for told in self._ended:
                        told()

        self._follow_packing()
        put(torch.autograd.graph, "_engine_run_backward", followed)
        put(torch.autograd, "_engine_run_backward", followed)

    def _follow_packing(self) -> None:
        """Hooks that pack what a node saves (torch.autograd.graph.save_on_cpu) run between the node and its op. What
        they call has no part in either.
        """
        hooks = torch.autograd.graph.saved_tensors_hooks
        make: Any = hooks.__init__

        def made(given: Any, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
            def packed(tensor: torch.Tensor) -> Any:
                own = self._threads
                before = torch._C._autograd._get_sequence_nr()
                own.packing = getattr(own, "packing", 0) + 1
                try:
                    return pack_hook(tensor)
                finally:
                    own.packing -= 1
                    if not own.packing:
                        between = range(before, torch._C._autograd._get_sequence_nr())
                        own.packed = (*getattr(own, "packed", ()), *between)

            make(given, packed, unpack_hook)

        put(hooks, "__init__", made)

    def thread_begins(self) -> None:
        """This thread is one of the script's, and none that the engine keeps for itself."""
        self._threads.runs = 0

    @property
    def runs(self) -> bool:
        """Whether the engine is running, for this thread or on it. Other threads of the script go on meanwhile."""
        return bool(self._runs) and getattr(self._threads, "runs", None) != 0

    @property
    def creates_graph(self) -> bool:
        """Whether the innermost run builds a graph of its own work."""
        return self.runs and self._runs[-1]

    def node(self) -> Node | None:
        """The node that runs on this thread, or the one it ran last; None outside the engine."""
        if not self.runs:
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
        if getattr(self._threads, "packing", 0):
            return False
        newest = torch._C._autograd._get_sequence_nr()
        seen, before = getattr(self._threads, "seen", (0, None))
        packed = getattr(self._threads, "packed", ())
        self._threads.seen, self._threads.packed = (newest, op), ()
        numbers = [number for number in range(seen, newest) if number not in packed]
        if not numbers:
            return False
        thread = self._guard.thread_number()
        for number in numbers[:-1]:
            self._enter((thread, number), before)
        self._enter((thread, numbers[-1]), op)
        return True

    def function_called(self, place: Place | None) -> Key | None:
        """A custom Function is about to be called; answers its node, which torch makes first of all, and None where the
        call has no part in the graph. `place`: where, if the node will ever run.
        """
        if getattr(self._threads, "packing", 0):
            return None
        newest = torch._C._autograd._get_sequence_nr()
        seen, before = getattr(self._threads, "seen", (0, None))
        packed = getattr(self._threads, "packed", ())
        self._threads.seen, self._threads.packed = (newest + 1, before), ()
        thread = self._guard.thread_number()
        for number in range(seen, newest):
            if number not in packed:
                self._enter((thread, number), before)
        if place is not None:
            self._functions[thread, newest] = place
        return thread, newest

    def function_ran(self, node: Key, op: int) -> None:
        """The first Op that a custom Function's forward ran."""
        self._enter(node, op)

    def function_of(self, node: Node) -> Place | None:
        """Where the custom Function was called that a node is of; None where it is none's."""
        return self._functions.get(node.key)

    def forward_of(self, node: Node) -> int | None:
        """Id of the Op whose forward made a node; None where it was not recorded."""
        return self._forward.get(node.key)

    def _enter(self, key: Key, op: int | None) -> None:
        if op is not None:
            self._forward[key] = op


def _plain(name: bytes) -> str:
    return name.decode().rsplit("::", 1)[-1]
