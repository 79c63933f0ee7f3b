"""Bank conflicts: lanes of a warp that queue at one bank of shared memory.

Shared memory has 32 banks, each of which gives one word of 4 bytes a cycle; word n lies in bank n mod 32. What a warp
accesses takes as many wavefronts as the busiest bank needs (Nsight Compute, "Memory tables", "Shared memory").
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from undertorch.checks.requests import Lanes, by_line, lanes_of, line_of_traffic, percent, stride_of, worst
from undertorch.checks.told import Told
from undertorch.checks.traffic import MATTERS, traffic
from undertorch.records import Figures, Finding, FindingKind, Request, Severity, Unit
from undertorch.simt.events import AccessCounters

BANKS, WORD = 32, 4
SLOW = 1.5
"""Wavefronts over the ideal from which a line is told of. Conflict-free code has 1.0; 1.5 leaves out rows of which one
in a few straddles, and a reduction's last steps."""
ROW = 64
"""Bytes between lanes from which on it is taken for a row of an array, and below for a field of a struct."""


def wavefronts(lanes: Lanes, width: int) -> int:
    """Of one request: in each pass the most distinct words that fall into one bank.

    `lanes`: byte offsets, None of a lane that takes no part; `width`: bytes of a lane.
    """
    return sum(max(busy(group, width)) for group in passes(lanes, width))


def ideal(lanes: Lanes, width: int) -> int:
    """128 bytes a wavefront; what takes fewer, as a broadcast, is its own ideal."""
    active = sum(at is not None for at in lanes)
    return min(wavefronts(lanes, width), -(-active * width // (BANKS * WORD)))


def passes(lanes: Lanes, width: int) -> list[Lanes]:
    """The groups of lanes that are served one behind the other: all 32, of 8 bytes a lane 16, of 16 bytes 8.

    Groups are twice as large where every active lane of the warp shares its address with the lane whose number differs
    in the last bit, if that is active, or every one with the lane whose number differs in the last but one. NVIDIA
    writes this down nowhere: it is what an H200 does (tests/golden/h200_counters.json.gz).
    """
    size = BANKS * WORD // max(width, WORD)
    if size < BANKS and (shared_by(lanes, 1) or shared_by(lanes, 2)):
        size *= 2
    groups = [lanes[n : n + size] for n in range(0, len(lanes), size)]
    return [group for group in groups if any(at is not None for at in group)]


def shared_by(lanes: Lanes, distance: int) -> bool:
    """Whether active lanes whose numbers differ in that bit have the same address."""
    return all(at == lanes[n ^ distance] or None in (at, lanes[n ^ distance]) for n, at in enumerate(lanes))


def busy(lanes: Lanes, width: int) -> list[int]:
    """Of each bank the distinct words that are asked of it."""
    words = {at // WORD + n for at in lanes if at is not None for n in range(max(1, width // WORD))}
    counts = [0] * BANKS
    for word in words:
        counts[word % BANKS] += 1
    return counts


def check_banks(told: Told) -> Iterator[Finding]:
    """Lines whose accesses take half as many wavefronts again as they need, and that this slows down.

    Atomic operations are left out: lanes that update one word have to follow each other anyway.
    """
    whole = traffic(told)
    slow = [a for a in told.counters.accesses if a.space == "shared" and not a.site.atomic and _is_slow(a)]
    for group in by_line(told, slow):
        taken, least = sum(a.wavefronts or 0 for a in group), sum(a.ideal for a in group)
        if whole.share_of_time(wavefronts=taken - least) >= MATTERS:
            yield _finding(told, group, taken, least, whole.wavefronts)


def _is_slow(one: AccessCounters) -> bool:
    return (one.wavefronts or 0) >= SLOW * one.ideal > 0


def _finding(told: Told, group: Sequence[AccessCounters], taken: int, least: int, whole: int) -> Finding:
    place = told.place(group[0].site)
    requests = sum(a.requests for a in group)
    example = worst(told, group, wavefronts, ideal)
    name = "" if example is None else _name(told, min(at for at in example.addresses if at is not None))
    return told.finding(
        FindingKind.BANK_CONFLICT,
        Severity.WARNING if told.words.banks is None else Severity.NOTE,
        place,
        message=f"lanes of a warp queue at banks of shared memory: a request takes {line_of_traffic(taken, requests)} "
        f"wavefronts instead of {line_of_traffic(least, requests)}.",
        evidence=_evidence(example, name) if example is not None else f"{requests:,} requests",
        cost=f"{percent((taken - least) / whole)} of the kernel's shared memory wavefronts "
        f"({taken - least:,} of {whole:,})",
        remedy=told.words.banks
        or (_remedy(example, name, told.line(place)) if _steady(told, group) else _in_turn(name)),
        count=requests,
        figures=Figures(unit=Unit.WAVEFRONTS, taken=taken, ideal=least, requests=requests, share=taken / whole,
                        example=_drawn(example)),
    )  # fmt: skip


def _steady(told: Told, group: Sequence[AccessCounters]) -> bool:
    """Whether lanes are always as far apart, or at no distance that has a name."""
    rows = [lanes_of(row) for one in group for row in told.samples.first(one.site.number)]
    strides = {stride_of(row) for row in rows if sum(at is not None for at in row) > 2}
    return len(strides) < 3 or None in strides


def _in_turn(name: str) -> str:
    return (
        f"the distance between lanes changes from round to round: let lane n access element n of {name} in each, and "
        "its partner the changing distance further (sequential instead of interleaved addressing)"
    )


def _drawn(example: Request | None) -> Request | None:
    if example is None:
        return None
    groups = [busy(group, example.bytes) for group in passes(example.addresses, example.bytes)]
    return Request(bytes=example.bytes, addresses=example.addresses, taken=example.taken, ideal=example.ideal,
                   banks=tuple(map(sum, zip(*groups, strict=True))))  # fmt: skip


def _name(told: Told, at: int) -> str:
    """The shared variable's."""
    return told.shared_at(at).partition(" of ")[2].removeprefix("shared ") or "shared memory"


def _evidence(example: Request, name: str) -> str:
    stride = stride_of(example.addresses)
    groups = [busy(group, example.bytes) for group in passes(example.addresses, example.bytes)]
    counts = max(groups, key=max)
    bank = counts.index(max(counts))
    apart = f"neighbouring lanes are {abs(stride)} bytes apart" if stride else "lanes are at uneven distances"
    return (
        f"{apart} in {name}: {max(counts)} different words of bank {bank} are asked for at once, and "
        f"{sum(c == 0 for c in counts)} banks have nothing to do"
    )


def _remedy(example: Request | None, name: str, line: str) -> str:
    """The least padding that mends the example, tried out; or what else helps."""
    if example is None:
        return f"let neighbouring lanes access neighbouring words in {line}"
    width = max(WORD, example.bytes)
    stride = stride_of(example.addresses)
    if stride is not None and abs(stride) < ROW:
        return (
            f"give each field an array of its own, so that neighbouring lanes access neighbouring elements in {line}; "
            "or move a whole struct at once, as one vector (float2, float4)"
        )
    for row in rows_of(example.addresses):
        padding = next((n * width for n in range(1, 5) if _padded(example, row, n * width)), None)
        if padding is None:
            continue
        wide = f"{row + padding} bytes instead of {row} ({padding // width} more of {width} bytes)"
        swizzled = (
            f"; or keep them and swizzle: XOR the column (in {width} bytes) with the row mod {128 // width}"
            if _swizzled(example, row, width)
            else ""
        )
        return f"pad the rows of {name}: {wide}{swizzled}"
    return f"lay {name} out so that what lanes of a warp access in {line} lies in different banks"


def rows_of(lanes: Lanes) -> list[int]:
    """Bytes that rows may have, by the distances of neighbouring lanes: the likeliest first."""
    there = [at for at in lanes if at is not None]
    steps = [abs(b - a) for a, b in pairwise(there)]
    found = sorted({step for step in steps if step >= ROW and step % WORD == 0}, key=lambda s: (-steps.count(s), s))
    return [*found, *(n for n in (128, 256, 512, 1024) if n not in found)]


def _padded(example: Request, row: int, padding: int) -> bool:
    """Whether rows that much longer have no conflict."""
    moved = [None if at is None else at + at // row * padding for at in example.addresses]
    return wavefronts(moved, example.bytes) <= example.ideal


def _swizzled(example: Request, row: int, width: int) -> bool:
    """Whether the same bytes with columns XORed by their row have no conflict."""
    columns = 128 // width
    if row % 128:
        return False
    moved = [None if at is None else at ^ (at // row % columns * width) for at in example.addresses]
    return wavefronts(moved, example.bytes) <= example.ideal
