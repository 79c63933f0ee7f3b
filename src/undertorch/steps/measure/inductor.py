"""Inductor's own account of its kernels, joined to the calls of them that the profiler saw.

Inductor keeps, for each call in the code that it writes, the stacks that the call came from, in order; the profiler
shows the same calls within a range that names the graph. They meet by name, the n-th of a name with the n-th. A graph
that is replayed (mode="reduce-overhead") shows kernels and no calls: Triton's meet by name, and what lies between two
of them by what Inductor has between those two.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from undertorch.records import Kind, Where
from undertorch.steps.measure.exchange import Compiled
from undertorch.steps.traces.fields import Is
from undertorch.steps.traces.joining import Joined
from undertorch.steps.traces.names import fused, short, told
from undertorch.steps.traces.reading import Seen

GRAPH = "## Call CompiledFxGraph "
"""Begins the name of the range around a compiled graph's code; its key follows (torch/_inductor/output_code.py)."""

TRITON = "triton_"
FALLBACK = re.compile(r"(?:torch\.ops\.)?(?P<space>\w+)\.(?P<name>\w+)(?:\.\w+)?$")
"""`torch.ops.aten._scaled_dot_product_cudnn_attention.default`: called as it is, for want of a kernel."""

EXTERN = "extern_kernels."
"""`extern_kernels.mm`: a library's kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """A call in compiled code with the lines that it came from."""

    event: Seen
    name: str
    wheres: tuple[tuple[Where, ...], ...]


def fused_calls(joined: Joined, compiled: Mapping[str, tuple[Compiled, ...]]) -> dict[int, Fused]:
    """By identity of a call in compiled code; of a replayed graph, of what ran on the GPU."""
    if not compiled:
        return {}
    children: dict[int, list[Seen]] = defaultdict(list)
    graphs: dict[int, Seen] = {}
    replays: dict[int, Seen] = {}
    """By correlation: the graph that was replayed."""
    for event in joined.trace.on_cpu:
        if event.name.startswith(GRAPH):
            graphs[id(event)] = event
        inside = event.parent
        if inside is None:
            continue
        if id(inside) in graphs and event.kind is Is.CALL:
            children[id(inside)].append(event)
        if event.kind is Is.LAUNCH and "GraphLaunch" in event.name and event.correlation is not None:
            around: Seen | None = inside
            while around is not None and id(around) not in graphs:
                around = around.parent
            if around is not None:
                replays[event.correlation] = around
    replayed: dict[int, list[Seen]] = defaultdict(list)
    for event in joined.trace.on_gpu:
        if event.correlation in replays:
            replayed[event.correlation].append(event)
    found: dict[int, Fused] = {}
    for graph in graphs.values():
        calls = compiled.get(_key(graph), ())
        found |= _by_calls(children[id(graph)], calls)
    for correlation, ran in replayed.items():
        found |= _by_kernels(ran, compiled.get(_key(replays[correlation]), ()))
    return found


def title(name: str) -> str:
    """What a call in compiled code is called as an Op: `inductor::fused_gelu_view`, `aten::mm`."""
    if _called(name) != name:
        return _called(name)
    return fused(name)


def _key(graph: Seen) -> str:
    return graph.name.removeprefix(GRAPH).split(" ")[0]


def _called(name: str) -> str:
    """What the profiler calls it."""
    if name.startswith(EXTERN):
        return f"aten::{name.removeprefix(EXTERN)}"
    match = None if name.startswith(TRITON) else FALLBACK.fullmatch(name)
    return name if match is None else f"{match['space']}::{match['name']}"


def _by_calls(events: Sequence[Seen], calls: Sequence[Compiled]) -> dict[int, Fused]:
    """What is named nowhere (a sum in the wrapper's Python) belongs to the call before it."""
    of_name: dict[str, list[Compiled]] = defaultdict(list)
    for call in calls:
        of_name[_called(call.name)].append(call)
    unnamed = of_name.pop("", [])
    taken: dict[str, int] = defaultdict(int)
    found: dict[int, Fused] = {}
    before: Compiled | None = None
    for event in events:
        there = of_name.get(event.name)
        if there is None and event.name.startswith(TRITON):
            there, name = unnamed, ""
        else:
            name = event.name
        if there:
            place = taken[name]
            taken[name] += 1
            before = there[min(place, len(there) - 1)]
        elif event.name.startswith(TRITON):
            continue  # Inductor kept nothing of it: its line is that of the call of the compiled code
        if before is not None:
            found[id(event)] = Fused(event=event, name=before.name or event.name, wheres=before.wheres)
    return found


def _by_kernels(ran: Sequence[Seen], calls: Sequence[Compiled]) -> dict[int, Fused]:
    """In order of their start, which is that of the code: one stream replays it."""
    ordered = sorted(ran, key=lambda one: one.start)
    named: dict[str, list[int]] = defaultdict(list)
    for place, call in enumerate(calls):
        named[call.name].append(place)
    unnamed = named.pop("", [])
    taken: dict[str, int] = defaultdict(int)
    anchors: list[int | None] = []
    for event in ordered:
        name = event.name if event.name in named else ""
        there = named.get(name, unnamed) if event.name.startswith(TRITON) else []
        place = taken[name]
        if there:
            taken[name] += 1
            anchors.append(there[min(place, len(there) - 1)])
        else:
            anchors.append(None)
    found: dict[int, Fused] = {}
    last, begin = -1, 0
    while begin < len(ordered):
        anchor = anchors[begin]
        if anchor is not None:
            found[id(ordered[begin])] = _of(ordered[begin], [calls[anchor]])
            last, begin = anchor, begin + 1
            continue
        end = begin
        while end < len(ordered) and anchors[end] is None:
            end += 1
        following = anchors[end] if end < len(ordered) else None
        between = [
            call
            for call in calls[last + 1 : len(calls) if following is None else following]
            if not call.name.startswith(TRITON) and call.name
        ]
        found |= _between(ordered[begin:end], between or ([calls[last]] if last >= 0 else []))
        begin = end
    return found


def _between(ran: Sequence[Seen], calls: Sequence[Compiled]) -> dict[int, Fused]:
    """Library kernels between two of Triton's: each call's own where they can be told apart, otherwise all lines."""
    if not calls:
        return {}
    groups: list[list[Seen]] = []
    waiting: list[Seen] = []
    for event in ran:
        waiting.append(event)
        if event.kind is Is.KERNEL and "splitK" not in event.name:
            groups.append(waiting)
            waiting = []
        elif groups and event.kind is Is.KERNEL:
            groups[-1] += waiting
            waiting = []
    if waiting and groups:
        groups[-1] += waiting
    if len(calls) == 1 or not groups:
        return {id(event): _of(event, calls) for event in ran}
    shares = _shared_out(groups, calls)
    return {
        id(event): _of(event, [call] if call is not None else calls)
        for group, call in zip(groups, shares, strict=True)
        for event in group
    }


def _shared_out(groups: Sequence[list[Seen]], calls: Sequence[Compiled]) -> list[Compiled | None]:
    """Of each group of kernels its call; None where it cannot be told."""
    if len(groups) == len(calls):
        return list(calls)
    attention = [call for call in calls if "attention" in call.name]
    products = [call for call in calls if "attention" not in call.name]
    kinds = [told(group[-1].name)[0] for group in groups]
    multiplied = [place for place, kind in enumerate(kinds) if kind is Kind.MATMUL]
    if len(attention) == 1 and len(multiplied) == len(products):
        by_place = dict(zip(multiplied, products, strict=True))
        return [by_place.get(place, attention[0]) for place in range(len(groups))]
    return [None] * len(groups)


def _of(event: Seen, calls: Sequence[Compiled]) -> Fused:
    wheres = dict.fromkeys(chain for call in calls for chain in call.wheres)
    return Fused(event=event, name=calls[0].name or short(event.name), wheres=tuple(wheres))
