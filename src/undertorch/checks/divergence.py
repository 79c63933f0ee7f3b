"""Divergence: warps of which some lanes wait while others run.

A warp executes one instruction at a time. Where a branch parts its lanes it runs each arm with the lanes that took it,
one arm behind the other; in a loop lanes that are done wait for the last one (CUDA C++ Programming Guide, "SIMT
Architecture"). What is predicated off (`@p` before one instruction) is no divergence and is counted as run.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from undertorch.checks.regions import Region, regions
from undertorch.checks.requests import percent
from undertorch.checks.told import Told
from undertorch.checks.traffic import MATTERS, traffic
from undertorch.records import Figures, Finding, FindingKind, LineLanes, Place, Severity, Unit
from undertorch.simt.codegen.flow import Block
from undertorch.simt.loops import waiting
from undertorch.simt.waiting import ranges

WARP = 32
IDLE = 0.2
"""Of all lanes of all warp instructions that wait because of one branch, from which on it is told of. Guards of a
kernel's tail, one thread's last sum and a reduction's last steps stay below 0.1 in kernels that work on more than a few
elements a thread."""

FEW = 16
"""Instructions of each warp below which they are lost beside what starting and ending a warp takes."""
ARM = 0.1
"""Of the instructions of both arms from which on a way counts as one: a jump or a return is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """A branch, and what waits because of it."""

    region: Region
    lanes: float
    """Active before it."""
    idle: float
    """Lanes × warp instructions that wait."""


def check_divergence(told: Told) -> Iterator[Finding]:
    """Branches that leave a fifth of the kernel's lanes idle, where its instructions are what takes the time."""
    whole = traffic(told)
    slots = WARP * whole.warp_instructions
    warps = math.prod(told.grid) * -(-math.prod(told.block) // WARP)
    for place, group in _by_line(told, [p for p in partings(told) if not _is_a_tail(told, p.region)]).items():
        idle = sum(parting.idle for parting in group)
        saved = idle / WARP
        if idle >= IDLE * slots and saved >= FEW * warps and whole.share_of_time(warp_instructions=saved) >= MATTERS:
            yield _finding(told, place, group, saved, whole.warp_instructions)


def _by_line(told: Told, found: Iterable[Parting]) -> dict[Place, list[Parting]]:
    groups: dict[tuple[str, int], list[Parting]] = {}
    places: dict[tuple[str, int], Place] = {}
    for parting in found:
        end = told.program.flow.blocks[parting.region.branch].end
        assert end is not None
        place = told.place_of(end)
        places.setdefault((place.file, place.line), place)
        groups.setdefault((place.file, place.line), []).append(parting)
    return {places[key]: sorted(group, key=lambda p: -p.idle) for key, group in groups.items()}


def partings(told: Told) -> list[Parting]:
    """Every branch under which lanes wait; none where few wait in all. What is under several counts for the one that
    parted it."""
    flow, counted = told.program.flow, told.counters
    if WARP * counted.warp_instructions - counted.thread_instructions < IDLE * WARP * counted.warp_instructions:
        return []
    found = {region.branch: region for region in regions(flow.blocks)}
    lanes = {branch: _before(told, region) for branch, region in found.items()}
    idle = dict.fromkeys(found, 0.0)
    waits = waiting(flow)
    for block in flow.blocks:
        times, active = told.blocks[block.number]
        if not times or block.number in waits:
            continue
        around = sorted((r for r in found.values() if block.number in r.blocks), key=lambda r: -len(r.blocks))
        levels = [lanes[region.branch] for region in around] + [active / times]
        for region, (outer, inner) in zip(around, pairwise(levels), strict=True):
            idle[region.branch] += times * instructions(block) * max(0.0, outer - inner)
    return [Parting(region=found[b], lanes=lanes[b], idle=idle[b]) for b in found if idle[b]]


def instructions(block: Block) -> int:
    """Of the kernel's text: what the compiler of the machine adds is left out."""
    items = [i for part in block.parts for i in part.instructions] + ([block.end] if block.end else [])
    return sum(i.counted for i in items)


def _before(told: Told, region: Region) -> float:
    """Active lanes of a warp that comes to a branch; of a loop, that enters it."""
    entries = region.entries if region.loops else (region.branch,)
    times = sum(told.blocks[n][0] for n in entries)
    return sum(told.blocks[n][1] for n in entries) / times if times else 0.0


def masks(told: Told, blocks: frozenset[int]) -> list[tuple[int, int, int]]:
    """Block, warp and lanes of accesses that were seen there."""
    program = told.program
    parts = [part for number in sorted(blocks) for part in program.flow.blocks[number].parts if part.step]
    sites = [
        program.sites[id(item)].number for part in parts for item in part.instructions if id(item) in program.sites
    ]
    return [(int(r["block"]), int(r["warp"]), int(r["mask"])) for n in sites for r in told.samples.all(n)]


def _is_a_tail(told: Told, region: Region) -> bool:
    """Whether the lanes that run are always the first ones, and part in one warp of a block only: those beyond the end
    of an array, or of the last steps of a reduction. No other order of the work needs fewer warps."""
    if _both_work(told, region):
        return False
    seen = masks(told, region.blocks)
    parted = {(block, warp) for block, warp, mask in seen if mask != _full(told, warp)}
    first = all(mask & (mask + 1) == 0 for _, _, mask in seen)
    return bool(seen) and first and len({block for block, _ in parted}) == len(parted)


def _both_work(told: Told, region: Region) -> bool:
    """Whether each arm is more than a way out."""
    ran = [_ran(told, arm) for arm in region.arms]
    return not region.loops and min(ran) >= ARM * sum(ran)


def _ran(told: Told, blocks: Iterable[int]) -> int:
    """Warp instructions."""
    return sum(told.blocks[n][0] * instructions(told.program.flow.blocks[n]) for n in blocks)


def _full(told: Told, warp: int) -> int:
    x, y, z = told.block
    return (1 << min(WARP, x * y * z - warp * WARP)) - 1


def _finding(told: Told, place: Place, group: Sequence[Parting], saved: float, whole: int) -> Finding:
    """`group`: the branches of one line; the first costs most."""
    region, loops = group[0].region, any(parting.region.loops for parting in group)
    lines = _lines(told, region, place.file)
    ran = sum(line.warp_instructions for line in lines)
    lanes = sum(line.thread_instructions for line in lines)
    mask = next((m for _, warp, m in masks(told, region.blocks) if m != _full(told, warp)), None)
    return told.finding(
        FindingKind.DIVERGENCE,
        Severity.WARNING if told.words.arms is None else Severity.NOTE,
        place,
        message="lanes of a warp leave this loop at different times, and wait for the last one."
        if loops
        else "a warp walks both arms of this branch, each with a part of its lanes."
        if _both_work(told, region)
        else "of a warp only some lanes have work under this branch, and the others wait.",
        evidence=f"{_arms(told, region, lines)}{_pattern(mask)}",
        cost=f"{percent(saved / whole)} of the kernel's warp instructions ({saved:,.0f} of {whole:,}) would not be "
        "there if all lanes worked",
        remedy=told.words.arms or _remedy(mask, loops=loops),
        count=told.blocks[region.branch][0],
        figures=Figures(unit=Unit.INSTRUCTIONS, taken=ran, ideal=max(ran - saved, lanes / WARP), share=ran / whole,
                        lines=tuple(lines)),
    )  # fmt: skip


def _lines(told: Told, region: Region, file: str) -> list[LineLanes]:
    """What ran under a branch, by line of its file."""
    found: dict[int, list[int]] = {}
    for number in sorted(region.blocks):
        block = told.program.flow.blocks[number]
        times, lanes = told.blocks[number]
        items = [i for part in block.parts for i in part.instructions] + ([block.end] if block.end else [])
        for item in items:
            place = told.place_of(item)
            if item.counted and times and place.file == file:
                row = found.setdefault(place.line, [0, 0])
                row[0] += times
                row[1] += lanes
    return [LineLanes(line=n, warp_instructions=a, thread_instructions=b) for n, (a, b) in sorted(found.items())]


def _arms(told: Told, region: Region, lines: Sequence[LineLanes]) -> str:
    worst = sorted(lines, key=lambda row: -row.warp_instructions)[:3]
    said = [
        f"line {row.line} runs with {row.thread_instructions / row.warp_instructions:.1f} of {WARP} lanes "
        f"({row.warp_instructions:,} warp instructions)"
        for row in sorted(worst, key=lambda row: row.line)
    ]
    return "; ".join(said)


def _pattern(mask: int | None) -> str:
    if mask is None:
        return ""
    return f"; seen there: lanes {ranges([n for n in range(WARP) if mask >> n & 1])}"


def _remedy(mask: int | None, *, loops: bool) -> str:
    """How to regroup the work so that a warp goes one way."""
    if loops:
        return (
            "give lanes of a warp work of like length (sort it by length, or split long pieces), or let a lane that is "
            "done take the next piece instead of waiting"
        )
    period = next((n for n in (2, 4, 8, 16) if mask is not None and _repeats(mask, n)), None)
    if period is not None:
        return (
            f"the condition repeats every {period} lanes: let it depend on whole warps (threadIdx.x / {WARP}), with "
            "the threads that take one arm numbered one behind the other"
        )
    return (
        "let whole warps take one arm: number the work so that what goes one way lies together (sort or compact it by "
        f"the condition, or test threadIdx.x / {WARP})"
    )


def _repeats(mask: int, period: int) -> bool:
    return all(mask >> n & 1 == mask >> n % period & 1 for n in range(WARP))
