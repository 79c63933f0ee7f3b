"""Whose line each thing that ran on the GPU is, from the ranges around its launch.

The innermost range that tells something decides: a marker (the line that called torch), a graph that Inductor compiled
(the lines that its kernel came from), a node of the autograd engine (the line of the forward call that made it).
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from undertorch.records import Phase, Where
from undertorch.steps.measure.exchange import Described, Mark, Measured, OwnCall
from undertorch.steps.measure.inductor import GRAPH, Fused, fused_calls, title
from undertorch.steps.measure.naming import mark_number
from undertorch.steps.traces.fields import Is, number
from undertorch.steps.traces.joining import NODE, Joined, dispatched
from undertorch.steps.traces.nesting import outwards
from undertorch.steps.traces.reading import Seen

ACCUMULATES = "AccumulateGrad"
OPTIMIZER = "Optimizer.step"
COLLECTIVES = re.compile(r"nccl|rccl|c10d::|all_?reduce|all_?gather|reduce_scatter|broadcast_coalesced", re.IGNORECASE)
NO_LAUNCH = "the profiler lost the call that launched it"
NO_FORWARD = "its node was made before the profiled steps, or by no call that was seen"
OUTSIDE = "no call of torch's was running: a library, or a thread of its own, launched it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One Op to be: a call that launched something, or a line that a compiled kernel came from."""

    key: tuple[int, int]
    """Identity of the event that it stands for, and which of several of it."""
    name: str
    start: float
    call: Seen | None
    """With its arguments; None: there is no such call."""
    where: Where | None
    chain: tuple[Where, ...] = ()
    module: str | None = None
    phase: Phase
    microbatch: int | None = None
    forward: "Source | None" = None
    node: str | None = None
    lists: tuple[tuple[Described, ...], ...] = ()
    """What the call's arguments hold that are lists of tensors."""
    memories: tuple[tuple[int, ...], ...] = ()
    """Which of these are one memory."""
    own: OwnCall | None = None
    """Where the call is one of undertorch's own op."""
    why: str | None = None
    """Why there is no line, where there is none."""


@dataclass(slots=True)
class _Around:
    """The ranges around a launch that tell something."""

    mark: Mark | None = None
    graph: Seen | None = None
    """A compiled graph, within the mark."""
    node: Seen | None = None
    """Where the engine ran it; the mark lies within."""
    updates: bool = False
    noted: bool = False
    """Whether autograd noted a forward call within the node: it computes again (checkpointing)."""
    communicates: bool = False


@dataclass(slots=True)
class Lines:
    """The joins of one trace."""

    joined: Joined
    measured: Measured
    _fused: dict[int, Fused] = field(default_factory=dict)
    _threads: dict[int, tuple[object, object]] = field(default_factory=dict)
    """Of the number that the profiler gave a thread that ran forward calls: the thread."""
    _nodes: dict[tuple[object, object], list[Seen]] = field(default_factory=lambda: defaultdict(list))
    """Of each thread its nodes but those that accumulate, in order of time."""
    _made: dict[tuple[object, ...], "Source"] = field(default_factory=dict)
    _backwards: list[tuple[Seen, Mark]] = field(default_factory=list)
    """Runs of the engine."""
    captured: dict[int, tuple["Lines", tuple[Seen, ...]]] = field(default_factory=dict)
    """Of each captured CUDA graph its calls in order, and their joins (replays.py)."""
    replayed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By identity of what a replay ran: its place in it, and how many it ran."""

    def __post_init__(self) -> None:
        nodes = [event for event in self.joined.trace.on_cpu if event.name.startswith(NODE)]
        for node in nodes:
            if ACCUMULATES not in node.name:
                self._nodes[node.thread].append(node)
        self._threads = _threads(self.joined, nodes)
        self._fused = fused_calls(self.joined, self.measured.compiled)
        for event in self.joined.trace.on_cpu:
            mark = self._mark(event)
            if mark is not None and mark.what == "backward":
                self._backwards.append((event, mark))

    def sources(self, on_gpu: Seen) -> tuple[Source, ...]:
        """Of something that ran on the GPU; one at least."""
        begun = self._begun(on_gpu)
        if begun is None:
            return (self._lost(on_gpu),)
        around = self._around(begun)
        if COLLECTIVES.search(on_gpu.name):
            around.communicates = True
        fused = self._fused.get(id(on_gpu)) or (None if around.graph is None else self._fused_of(begun, around.graph))
        if fused is not None and fused.wheres:
            return self._compiled(on_gpu, begun, around, fused)
        call = self._captured(on_gpu, around)
        if call is not None:
            return (self._replayed(call[0], call[1], begun),)
        return (self._plain(on_gpu, begun, around),)

    def line_of(self, event: Seen) -> Where | None:
        """Of an event on the CPU."""
        return self._plain(event, event, self._around(event)).where

    def _begun(self, on_gpu: Seen) -> Seen | None:
        """The call into the runtime that launched it, otherwise the innermost call that it names."""
        launch = self.joined.launch_of(on_gpu)
        if launch is not None:
            return launch
        external = number(on_gpu.args.external)
        return None if external is None or external == on_gpu.correlation else self.joined.calls.get(external)

    def _mark(self, event: Seen) -> Mark | None:
        found = mark_number(event.name) if event.kind is Is.CALL else None
        return self.measured.marks[found] if found is not None and found < len(self.measured.marks) else None

    def _around(self, begun: Seen) -> _Around:
        around = _Around()
        for one in outwards(begun):
            if one.name.startswith(NODE):
                around.node = one
                break
            mark = self._mark(one)
            if mark is not None:
                if mark.where is not None or mark.own is None:  # in the engine's thread no line calls an own op
                    around.mark = _within(around.mark, mark)
            elif one.name.startswith(GRAPH):
                around.graph = around.graph or (one if around.mark is None else None)
            elif one.kind is Is.RANGE and one.name.startswith(OPTIMIZER):
                around.updates = True
            elif one.kind is Is.CALL:
                around.communicates |= bool(COLLECTIVES.search(one.name))
                around.noted |= number(one.args.sequence) is not None and number(one.args.forward_thread) == 0
        return around

    def _call(self, begun: Seen) -> Seen | None:
        """The call that launched it, as a recorder of ATen's calls sees it."""
        for one in outwards(begun):
            if one.name.startswith(NODE):
                return None
            if one.kind is Is.CALL and mark_number(one.name) is None:
                return dispatched(one)
            if self._own(one) is not None:
                return one
        return None

    def _own(self, event: Seen | None) -> OwnCall | None:
        """The call of undertorch's own op that a range stands for."""
        mark = None if event is None else self._mark(event)
        return None if mark is None else mark.own

    def _plain(self, on_gpu: Seen, begun: Seen, around: _Around) -> Source:
        call = self._call(begun)
        event = begun if call is None else call
        key = (id(event), 0)
        made = self._made.get(key)
        if made is not None:
            return made
        own = self._own(call)
        name = own.name if own is not None else call.name if call is not None else _named(on_gpu, begun, around)
        source = self._placed(
            Source(key=key, name=name, start=event.start, call=call, where=None, phase=Phase.OTHER, own=own), around
        )
        self._made[key] = source
        return source

    def _placed(self, source: Source, around: _Around) -> Source:
        """With its line and phase."""
        mark, node = around.mark, around.node
        if node is None:
            if mark is None:
                return self._outside(source, around)
            phase = mark.phase or Phase.OTHER
            if mark.what == "replay" or around.communicates:
                phase = Phase.COMMUNICATE if around.communicates else phase
            return _at(source, mark, phase)
        if around.updates and mark is not None:
            return _at(source, mark, Phase.UPDATE)
        if mark is not None and (mark.phase is Phase.RECOMPUTE or around.noted):
            return _at(source, mark, Phase.RECOMPUTE)
        return self._backward(source, around, node)

    def _outside(self, source: Source, around: _Around) -> Source:
        """Nothing of ours is around it. While the engine runs the thread that called it waits: it is of that call."""
        phase = Phase.COMMUNICATE if around.communicates else Phase.UPDATE if around.updates else None
        began = self._began(source.start)
        if began is not None:
            return _at(source, began, phase or Phase.BACKWARD)
        return replace(source, phase=phase or Phase.OTHER, why=OUTSIDE)

    def _began(self, moment: float) -> Mark | None:
        """The run of the engine that was going on, the innermost."""
        return next((mark for event, mark in reversed(self._backwards) if event.start <= moment < event.end), None)

    def _backward(self, source: Source, around: _Around, node: Seen) -> Source:
        """At the line of the forward call that made the node, or made the gradient that the node accumulates."""
        accumulates = ACCUMULATES in node.name
        maker = self._before(node) if accumulates else node
        forward = None if maker is None else self._forward(maker)
        phase = Phase.BACKWARD
        if around.communicates:
            phase = Phase.COMMUNICATE
        elif accumulates and source.name in ("aten::add", "aten::add_"):
            phase = Phase.ACCUMULATE
        named = None if accumulates else node.name.removeprefix(NODE)
        if forward is not None and forward.where is not None:
            return replace(
                source,
                where=forward.where,
                chain=forward.chain,
                module=forward.module,
                phase=phase,
                microbatch=forward.microbatch,
                forward=None if accumulates else forward,
                node=named,
            )
        if around.mark is not None:
            return replace(_at(source, around.mark, phase), node=named)
        began = self._began(node.start)
        if phase is Phase.COMMUNICATE and began is not None:
            return replace(_at(source, began, phase), node=named)
        return replace(source, phase=phase, node=named, why=f"{node.name.removeprefix(NODE)}: {NO_FORWARD}")

    def _before(self, node: Seen) -> Seen | None:
        """The node that ran last on this thread: what it returned is what an AccumulateGrad gets."""
        others = self._nodes.get(node.thread, [])
        place = bisect_left(others, node.start, key=lambda one: one.start)
        return others[place - 1] if place else None

    def _forward(self, node: Seen) -> Source | None:
        """The forward call that made a node."""
        sequence = number(node.args.sequence)
        thread = self._threads.get(number(node.args.forward_thread) or 0)
        if sequence is None:
            return None
        made = [
            one
            for one in self.joined.forwards.get(sequence, ())
            if one.start < node.start and (thread is None or one.thread == thread) and mark_number(one.name) is None
        ]
        if not made:
            return None
        # A call that makes no node shows the number of the next that does: the latest is the one that made it.
        event = made[-1]
        return self._plain(event, event, self._around(event))

    def _captured(self, on_gpu: Seen, around: _Around) -> tuple["Lines", Seen] | None:
        """The call of the capture that a kernel of a replay comes from; None where it cannot be told."""
        what = "" if around.mark is None else around.mark.what
        place = self.replayed.get(id(on_gpu))
        if place is None or not what.startswith("replay "):
            return None
        found = self.captured.get(int(what.split()[1]))
        if found is None or len(found[1]) != place[1]:
            return None
        return found[0], found[1][place[0]]

    def _replayed(self, lines: "Lines", call: Seen, begun: Seen) -> Source:
        """What the capture says of a call, at the moment of the replay."""
        around = lines._around(call)
        source = lines._plain(call, call, around)
        forward = source.forward
        if forward is not None:
            forward = replace(forward, key=(id(begun), forward.key[0]), start=begun.start)
        return replace(source, key=(id(begun), source.key[0]), start=begun.start, forward=forward)

    def _fused_of(self, begun: Seen, graph: Seen) -> Fused | None:
        """What Inductor says of the call in the graph's code that a launch lies in."""
        call = None
        for one in outwards(begun):
            if one is graph:
                break
            if one.kind is Is.CALL:
                call = one
        return None if call is None else self._fused.get(id(call))

    def _compiled(self, on_gpu: Seen, begun: Seen, around: _Around, fused: Fused) -> tuple[Source, ...]:
        """The lines that a compiled kernel came from. What a library computes for compiled code keeps its call."""
        call = self._call(begun) if around.graph is not None else None
        if call is not None and not call.name.startswith("aten::"):
            call = None
        phase = Phase.BACKWARD if around.node is not None else Phase.FORWARD
        base = id(fused.event) if call is None else id(call)
        found = []
        for place, chain in enumerate(fused.wheres):
            key = (base, place)
            if key not in self._made:
                self._made[key] = Source(
                    key=key,
                    name=title(fused.name) if call is None else call.name,
                    start=begun.start,
                    call=call if place == 0 else None,
                    where=chain[0],
                    chain=chain[1:],
                    module=None,
                    phase=phase,
                    microbatch=None if around.mark is None else around.mark.microbatch,
                    node=None if around.node is None else around.node.name.removeprefix(NODE),
                )
            found.append(self._made[key])
        return tuple(found)

    def _lost(self, on_gpu: Seen) -> Source:
        key = (id(on_gpu), 0)
        phase = Phase.COMMUNICATE if COLLECTIVES.search(on_gpu.name) else Phase.OTHER
        return Source(key=key, name="unknown", start=on_gpu.start, call=None, where=None, phase=phase, why=NO_LAUNCH)


def _within(inner: Mark | None, mark: Mark) -> Mark:
    """The innermost decides. What a custom Function's forward calls runs without gradients, and yet is of the phase in
    which the Function was applied."""
    if inner is None:
        return mark
    if mark.what == "apply" and inner.phase is Phase.OTHER:
        return replace(inner, phase=mark.phase, microbatch=mark.microbatch)
    return inner


def _at(source: Source, mark: Mark, phase: Phase) -> Source:
    return replace(
        source,
        where=mark.where,
        chain=mark.chain,
        module=mark.module,
        phase=phase,
        microbatch=mark.microbatch,
        lists=mark.lists,
        memories=mark.memories,
        why=None if mark.where is not None else OUTSIDE,
    )


def _named(on_gpu: Seen, begun: Seen, around: _Around) -> str:
    """What stands in an Op's name where no call of torch's launched it."""
    what = None if around.mark is None else around.mark.what
    if "GraphLaunch" in begun.name:
        return "cuda::graph_replay"
    if what == "triton":
        return f"triton::{on_gpu.name}"
    return f"cuda::{begun.name}"


def _threads(joined: Joined, nodes: Iterable[Seen]) -> dict[int, tuple[object, object]]:
    """Which thread the profiler means by the number that a node names for its forward's.

    Sequence numbers are counted anew on each thread, so that a number alone may name calls of several. That thread is
    meant whose calls are called as the nodes are (`AddmmBackward0`, `aten::addmm`).
    """
    votes: dict[int, Counter[tuple[object, object]]] = defaultdict(Counter)
    for node in nodes:
        sequence, thread = number(node.args.sequence), number(node.args.forward_thread)
        if sequence is None or not thread:
            continue
        wanted = _bare(node.name.removeprefix(NODE).rsplit("::", 1)[-1].partition("Backward")[0])
        for call in joined.forwards.get(sequence, ()):
            if call.start < node.start:
                alike = _bare(call.name.rpartition("::")[2]) == wanted
                votes[thread][call.thread] += 100 if alike else 1
    return {thread: found.most_common(1)[0][0] for thread, found in votes.items()}


def _bare(name: str) -> str:
    return name.replace("_", "").lower()
