"""What a Deadlock says: which lanes wait where, and for whom."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from undertorch.simt.errors import Deadlock
from undertorch.simt.program import Program
from undertorch.simt.ptx.instructions import Instruction
from undertorch.simt.runtime import layout
from undertorch.simt.runtime.layout import WARP

MOST = 8
"""Groups of lanes that a message tells of."""
MEETS_ANY = "bar.warp.sync"
"""Meets any other one with the same mask; the other .sync instructions meet at one place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Lanes of one warp that stand at the same place."""

    lanes: list[int]
    text: str
    exchange: Instruction | None
    """The shfl.sync, vote.sync, … at which they wait for the other lanes of their mask."""


def deadlock(program: Program, threads: int, blocks: Iterable[tuple[Any, list[Any]]], why: str) -> Deadlock:
    """The error for blocks of `threads` threads that get no further: of each its state and those of its warps."""
    waiting: list[str] = []
    parted = ""
    for state, warps in blocks:
        ctaid = ", ".join(str(int(i)) for i in state["ctaid"])
        for n, warp in enumerate(warps):
            groups = list(_groups(program, threads, state, warp))
            waiting += [f"block ({ctaid}) warp {n} lanes {ranges(group.lanes)} {group.text}" for group in groups]
            parted = parted or _parted(groups)
    shown = "; ".join(waiting[:MOST]) + (f"; and {len(waiting) - MOST} more" if len(waiting) > MOST else "")
    return Deadlock(f"{program.name}: deadlock: {why}: {shown}.{parted}", tuple(waiting))


def _groups(program: Program, threads: int, state: Any, warp: Any) -> Iterator[Group]:
    places: dict[tuple[int, int], list[int]] = {}
    for lane in range(WARP):
        pc = int(warp["pc"][lane])
        if pc != layout.EXITED:
            places.setdefault((pc, int(warp["barrier"][lane]) if pc >= layout.WAITING else -1), []).append(lane)
    for (pc, barrier), lanes in places.items():
        blocks = program.flow.blocks
        if pc >= layout.WAITING:
            row = state["barriers"][barrier]
            of = int(row["expected"]) or threads - int(state["exited"])
            behind = line_of(blocks[(pc & layout.PC_MASK) - 1].end)
            text = f"wait at barrier {barrier} ({int(row['arrived'])} of {of} threads came){behind}"
            yield Group(lanes=lanes, text=text, exchange=None)
            continue
        block = blocks[pc & layout.PC_MASK]
        first = block.parts[0].instructions[0] if block.parts else block.end
        text, exchange = "wait for lanes of their mask" if pc >= layout.PARKED else "run", None
        if pc >= layout.PARKED and first is not None and first.name != MEETS_ANY:
            text, exchange = f"{text}, which have to come to this {first.name}", first
        yield Group(lanes=lanes, text=f"{text}{line_of(first)}", exchange=exchange)


def _parted(groups: list[Group]) -> str:
    """A sentence where lanes of a warp have come to different exchanges: in two arms of a branch, mostly.

    CUDA C++ Programming Guide, "Warp Shuffle Functions" and "Warp Vote Functions": all threads that the mask names have
    to execute the same intrinsic with the same mask, or the result is undefined.
    """
    places = list(dict.fromkeys(f"{g.exchange.name}{line_of(g.exchange)}" for g in groups if g.exchange is not None))
    if len(places) < 2:
        return ""
    return (
        f" Lanes of one warp wait for each other at different instructions: {', '.join(places)}. All lanes that a mask "
        "names have to execute the same one, or the result is undefined: take it out of the branch."
    )


def line_of(instruction: Instruction | None) -> str:
    """` at FILE:LINE` of an instruction, as far as it is known."""
    if instruction is None:
        return ""
    if instruction.place is None:
        return f" at PTX line {instruction.text_line}"
    return f" at {instruction.place.file}:{instruction.place.line}"


def ranges(numbers: list[int]) -> str:
    """`0-3, 7`."""
    out: list[list[int]] = []
    for n in numbers:
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in out)
