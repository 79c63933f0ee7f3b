"""What launched what: from a kernel to its launch, to the call into ATen, to the forward call, to the line."""

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field

from msgspec import structs

from undertorch.records import Where
from undertorch.steps.traces.fields import Is, number
from undertorch.steps.traces.nesting import outwards
from undertorch.steps.traces.reading import Seen, Trace
from undertorch.steps.traces.schemas import is_composite

NODE = "autograd::engine::evaluate_function: "
"""Begins the name of the range that the autograd engine puts around a node; the node's name follows."""

MARKER = re.compile(r"line:(?P<file>.+):(?P<line>\d+)")
"""A range that undertorch's own measuring puts around each torch function: the line that was running."""

FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)")
"""A Python function. Its line is that of its `def`: the profiler writes no other."""

MODULE = "nn.Module: "

NOT_THE_USERS = ("torch/", "<", "accelerate/", "lightning/", "lightning_fabric/", "pytorch_lightning/", "triton/")
"""Begin the paths of files that call what the user wrote, or that the user's lines call."""

GENERATED = re.compile(r"torchinductor_|(^|/)[a-z2-7]{2}/c[a-z2-7]{51}\.py$")
"""In the path of a file that Inductor wrote: its own cache, or the hash that names such a file in any other
(torch/_inductor/codecache.py, code_hash)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call was made, as far as the trace tells."""

    where: Where | None
    chain: tuple[Where, ...]
    module: str | None
    exact: bool
    """Whether the line is the one that ran, and not that of its function's `def`."""


@dataclass(slots=True, kw_only=True)
class Joined:
    """A trace with its joins."""

    trace: Trace
    launches: dict[int, Seen] = field(default_factory=dict)
    """Calls into the runtime, by correlation."""
    calls: dict[int, Seen] = field(default_factory=dict)
    """Calls into ATen, by `External id`."""
    forwards: dict[int, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    """Forward calls by sequence number, in order of time, the outermost first."""

    def launch_of(self, on_gpu: Seen) -> Seen | None:
        """The call into the runtime that launched it; a graph's launch is that of many."""
        correlation = on_gpu.correlation
        return None if correlation is None else self.launches.get(correlation)

    def call_of(self, on_gpu: Seen) -> Seen | None:
        """The call that launched it, as a recorder of ATen's calls sees it: see `dispatched`.

        Without one around it (a CUDA graph that is replayed, a Triton kernel of the user's) the launch itself, where
        a Python function or an autograd node tells whose it is.
        """
        innermost = self._innermost(on_gpu)
        if innermost is not None:
            return dispatched(innermost)
        launch = self.launch_of(on_gpu)
        owned = any(around.kind is Is.PYTHON or around.name.startswith(NODE) for around in outwards(launch))
        return launch if owned else None

    def _innermost(self, on_gpu: Seen) -> Seen | None:
        """The innermost call around its launch, otherwise the one that it names."""
        launch = self.launch_of(on_gpu)
        for around in outwards(launch):
            if around.kind is Is.CALL and not MARKER.fullmatch(around.name):
                return around
        external = number(on_gpu.args.external)
        if external is None:
            external = number(on_gpu.args.external_before)
        if external is None or external == on_gpu.correlation:
            # Before 2023 this field held the correlation once more, which names no call.
            return None
        return self.calls.get(external)

    def forward_of(self, call: Seen) -> Seen | None:
        """The forward call of the autograd node that a call ran in; None outside backward, or where it is not known."""
        node = node_of(call)
        if node is None:
            return None
        sequence = number(node.args.sequence)
        if sequence is None:
            return None
        before = [one for one in self.forwards.get(sequence, ()) if one.start < node.start]
        if not before:
            return None
        # A call that makes no node shows the number of the next that does: the latest is the one that made it.
        return dispatched(before[-1])

    def place_of(self, call: Seen) -> Place:
        """Where a call was made; of a backward call, where its forward was."""
        forward = self.forward_of(call)
        return place(call if forward is None else forward)


def join(trace: Trace) -> Joined:
    """The events have their parents already."""
    joined = Joined(trace=trace)
    for event in trace.on_cpu:
        if event.kind is Is.LAUNCH and event.correlation is not None:
            joined.launches[event.correlation] = event
        elif event.kind is Is.CALL:
            external = number(event.args.external)
            if external is not None:
                joined.calls[external] = event
            if number(event.args.sequence) is not None:
                if number(event.args.forward_thread):
                    _tell_node(event)
                else:
                    joined.forwards[number(event.args.sequence) or 0].append(event)
    return joined


def _tell_node(backward: Seen) -> None:
    """Gives a node's range the number of the node's own call, where it has none.

    The profiler does so itself, but looks at the first call in the range alone (torch/csrc/profiler/collection.cpp).
    Where a hook of the node runs before it (FSDP2 gathers parameters there), that is another.
    """
    node = next((one for one in outwards(backward.parent) if one.name.startswith(NODE)), None)
    if node is not None and number(node.args.sequence) is None and node.name == f"{NODE}{backward.name}":
        numbers = {"sequence": backward.args.sequence, "forward_thread": backward.args.forward_thread}
        node.args = structs.replace(node.args, **numbers)


def dispatched(innermost: Seen) -> Seen:
    """Of a call into ATen and the calls around it, the outermost that autograd does not take apart; itself elsewhere.

    `linear` is taken apart into `addmm`, which is not, whatever it calls in turn.
    """
    found = innermost
    for around in outwards(innermost):
        if around.name.startswith((NODE, "autograd::")):
            break
        if around.kind is Is.CALL and around.name.startswith("aten::") and not is_composite(around.name):
            found = around
    return found


def node_of(call: Seen) -> Seen | None:
    """The range of the innermost autograd node around a call."""
    return next((one for one in outwards(call) if one.name.startswith(NODE)), None)


def place(call: Seen) -> Place:
    """The marker around a call, otherwise the innermost Python function that is the user's."""
    frames: list[Where] = []
    modules: list[str] = []
    marked: Where | None = None
    ranges: list[str] = []
    for around in outwards(call):
        if around.kind is Is.CALL and marked is None and (marker := MARKER.fullmatch(around.name)):
            marked = Where(file=marker["file"], line=int(marker["line"]), function="")
        elif around.kind is Is.PYTHON:
            if around.name.startswith(MODULE):
                modules.append(around.name.removeprefix(MODULE))
            elif (frame := FRAME.fullmatch(around.name)) and _users(frame["file"]):
                frames.append(Where(file=frame["file"], line=int(frame["line"]), function=frame["function"]))
        elif around.kind is Is.RANGE and not around.name.startswith(("ProfilerStep#", "Optimizer.")):
            ranges.append(around.name)
    where = [marked] if marked is not None else frames[:1]
    return Place(
        where=where[0] if where else None,
        chain=tuple(frames if marked is not None else frames[1:]),
        module=".".join(reversed(modules)) or (ranges[0] if ranges else None),
        exact=marked is not None,
    )


def _users(file: str) -> bool:
    inside = "/" not in file and file.removesuffix(".py") in sys.stdlib_module_names
    return not inside and not file.startswith(NOT_THE_USERS) and GENERATED.search(file) is None


def backward_place(joined: Joined, backward: tuple[float, float] | None) -> Place:
    """Where backward() was called: what was open on the thread of the forward calls when the first node began."""
    found = None
    moment = None if backward is None else backward[0]
    threads = {one.thread for group in joined.forwards.values() for one in group}
    for event in joined.trace.on_cpu if moment is not None else ():
        if event.start >= (moment or 0.0):
            break
        if event.end > (moment or 0.0) and event.thread in threads:
            found = event
    return Place(where=None, chain=(), module=None, exact=True) if found is None else place(found)
