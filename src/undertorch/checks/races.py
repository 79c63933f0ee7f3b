"""Races: two accesses to the same bytes, one a write, that nothing orders (PTX ISA, "Memory Consistency Model")."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from undertorch.checks import layout
from undertorch.checks.layout import OTHER_BLOCK, SAME_WARP
from undertorch.checks.replicas import is_of_replicas
from undertorch.checks.told import Told
from undertorch.checks.words import TRITON
from undertorch.records import Finding, FindingKind, Place, Scope, Severity
from undertorch.simt.codegen.sites import Site

if TYPE_CHECKING:
    import numpy as np

SCOPES = (Scope.WARP, Scope.BLOCK, Scope.GRID)
"""By layout's levels."""


def check_races(told: Told) -> Iterator[Finding]:
    """Races by pairs of lines; of one pair those of the same value apart, as notes."""
    for pair in told.pairs:
        kind = int(pair["kind"])
        if all(_inside_cooperative_groups(told, int(pair[name])) for name in ("first", "second")):
            continue
        if kind == layout.RACE and told.words is TRITON and is_of_replicas(told, pair):
            continue
        if kind in {layout.RACE, layout.PARTIAL}:
            yield _race(told, pair, partial=kind == layout.PARTIAL)
        elif kind == layout.NC_WRITE:
            yield _read_only(told, pair)


def _inside_cooperative_groups(told: Told, site: int) -> bool:
    """CUDA's own header orders lanes by shfl alone, which by the PTX ISA orders no memory: nobody can mend that."""
    place = told.site(site).instruction.place
    return place is not None and "cooperative_groups" in place.file and place.file not in told.given.sources


def _race(told: Told, pair: "np.void", *, partial: bool) -> Finding:
    shared, same = bool(pair["shared"]), bool(pair["same"])
    first, second = (told.place(told.site(int(pair[name]))) for name in ("first", "second"))
    flags = [told.flags[int(pair[name])] for name in ("first", "second")]
    place, other = sorted((first, second), key=lambda p: (p.file, p.line, p.column or 0))
    kind = FindingKind.RACE_SHARED if shared else FindingKind.RACE_GLOBAL
    block = told.words.block
    between = ("lanes of one warp", f"warps of one {block}", f"{block}s")[int(pair["level"])]
    word = "warp-level race" if int(pair["level"]) == SAME_WARP else "race"
    what = "in shared memory" if shared else "in global memory"
    both = "two writes" if all(f & layout.WRITES for f in flags) else "a write and a read"
    message = f"{word} {what}: {both} of the same bytes by {between}, and nothing orders them"
    if same:
        message += "; all write the same value"
    together = told.words is TRITON and int(pair["level"]) == SAME_WARP and not all(f & layout.WRITES for f in flags)
    if together:
        message += "; Triton lets the lanes of a warp run together, and on no GPU so far this goes wrong"
    if partial:
        kind = FindingKind.RACE_PARTIAL
        message = f"atomic accesses by {between} overlap in part, which is no atomic access at all"
    return told.finding(
        kind,
        Severity.NOTE if same or together else Severity.ERROR,
        place,
        other=other,
        count=int(pair["count"]),
        message=message + ".",
        evidence=_evidence(told, pair, flags),
        scope=SCOPES[int(pair["level"])],
        remedy=_remedy(told, pair, first, second, flags) if not partial else _whole(told, first, second),
    )


def _evidence(told: Told, pair: "np.void", flags: list[int]) -> str:
    places = [told.place(told.site(int(pair[name]))) for name in ("first", "second")]
    blocks = [int(pair["first_block"]), int(pair["second_block"])]
    who = [told.thread(int(pair[f"{name}_thread"])) for name in ("first", "second")]
    said = []
    for n in range(2):
        of = (
            f" of {told.block_named(blocks[n])}"
            if n == 0 or blocks[0] != blocks[1]
            else f" of the same {told.words.block}"
        )
        memory = told.memory(pair) if n == 0 else "it"
        said.append(f"{who[n]}{of} {_verb(flags[n])} {memory} at {told.line(places[n])}")
    late = ", a copy that nobody had waited for" if int(pair["pending"]) else ""
    return f"{said[0]}{late}; {said[1]}"


def _verb(flags: int) -> str:
    if flags & layout.ATOMIC:
        return "atomically updates"
    if flags & layout.ASYNC:
        return "copies (cp.async) into"
    word = "writes" if flags & layout.WRITES else "reads"
    return f"{word} (volatile)" if flags & layout.VOLATILE else word


def _remedy(told: Told, pair: "np.void", first: Place, second: Place, flags: list[int]) -> str:
    level = int(pair["level"])
    if level == OTHER_BLOCK:
        return _between_blocks(told, first, second, flags)
    if int(pair["shared"]) and any(f & layout.ASYNC for f in flags):
        return _of_a_copy(told, pair, first, second, flags)
    a = told.line(first)
    barrier = told.words.warp_barrier if level == SAME_WARP else told.words.barrier
    if all(f & layout.VOLATILE for f in flags) and level == SAME_WARP:
        return (
            f"read into a register, {barrier}, write, {barrier}: volatile orders nothing, and lanes do not run in "
            "lockstep since sm_70"
        )
    if first.line == second.line and first.file == second.file and not flags[0] & layout.ATOMIC:
        if _updates(told, first):
            return f"make the update of {a} one atomic operation ({told.words.atomic}), or order it by a barrier"
        if all(f & layout.WRITES for f in flags):
            return told.words.one_writes.format(line=a)
    return _barrier(told, barrier, first, second)


def _barrier(told: Told, barrier: str, first: Place, second: Place) -> str:
    """Where one would part two lines. If one stands between them already, they meet around the end of a loop."""
    upper, lower = sorted((first, second), key=lambda p: (p.file, p.line))
    inside = upper.file == lower.file and any(upper.line < line < lower.line for line in _barriers(told, upper.file))
    if (upper.file, upper.line) == (lower.file, lower.line):
        a = told.line(lower)
        return f"put {barrier} behind {a}, before it runs again; if it runs once, between what it reads and writes"
    if inside:
        return f"put {barrier} behind {told.line(lower)}, before {told.line(upper, lower)} runs again"
    return f"put {barrier} between {told.line(upper)} and {told.line(lower, upper)}"


def _barriers(told: Told, file: str) -> Iterator[int]:
    for site in told.program.by_number:
        if site.instruction.name in {"bar.sync", "bar.red"}:
            place = told.place(site)
            if place.file == file:
                yield place.line


def _of_a_copy(told: Told, pair: "np.void", first: Place, second: Place, flags: list[int]) -> str:
    copy, other = (first, second) if flags[0] & layout.ASYNC else (second, first)
    a, b = told.line(copy), told.line(other, copy)
    if int(pair["pending"]):
        wait = f"wait for the copy of {a} before {b} (__pipeline_wait_prior(0), cp.async.wait_group)"
        if int(pair["first_thread"]) == int(pair["second_thread"]):
            return wait
        return f"{wait}, and then __syncthreads(): the wait covers the thread that copies, no other"
    if flags[0] & layout.ASYNC or not any(copy.line < n < other.line for n in _barriers(told, copy.file)):
        return f"put __syncthreads() between the wait for the copy of {a} and {b}: the wait covers no other thread"
    return _barrier(told, "__syncthreads()", first, second)


def _between_blocks(told: Told, first: Place, second: Place, flags: list[int]) -> str:
    a, b = told.line(first), told.line(second, first)
    strong = [bool(f & layout.STRONG) for f in flags]
    if all(strong):
        narrow = " and ".join(line for line, f in zip((a, b), flags, strict=True) if not f & layout.WIDE)
        return f"widen the scope at {narrow if a != b else a} to the GPU: {told.words.wider}"
    if any(strong):
        plain = b if strong[0] else a
        return f"make the access at {plain} atomic too, or order it: a fence on both sides of a flag, or another launch"
    if _updates(told, first) and first.line == second.line:
        return (
            f"make the update of {a} one atomic operation ({told.words.atomic}), or give each {told.words.block} its "
            "own element"
        )
    if _flags_pass(told):
        return (
            f"release and acquire: behind {a} {told.words.release}; behind the read of the flag {told.words.acquire} "
            f"before {b}"
        )
    block = told.words.block
    if all(f & layout.WRITES for f in flags) and (first.file, first.line) == (second.file, second.line):
        return f"let one {block} alone write in {a}, or give each {block} its own element"
    return f"{block}s are ordered by nothing but atomics: use one, give each its own bytes, or make two launches of it"


def _whole(told: Told, first: Place, second: Place) -> str:
    return f"access the same whole word, with one size, at {told.line(first)} and {told.line(second, first)}"


def _updates(told: Told, place: Place) -> bool:
    """Whether threads read what others write at a line, and overwrite it there too, as in `x[i] += 1`.

    Of `x[i] = x[i + 1]` each word has one writer, and `x[0] = y[i]` reads nothing that is written.
    """
    met = set()
    for pair in told.pairs:
        sites = [told.site(int(pair[name])) for name in ("first", "second")]
        if int(pair["kind"]) == layout.RACE and all(_on_line(told, site, place) for site in sites):
            met.add(all(site.writes for site in sites))
    return met == {True, False}


def _on_line(told: Told, site: Site, place: Place) -> bool:
    here = told.place(site)
    return (here.file, here.line) == (place.file, place.line)


def _flags_pass(told: Told) -> bool:
    """Whether the kernel has anything that blocks could tell each other by."""
    return any(f & layout.STRONG for f in told.flags)


def _read_only(told: Told, pair: "np.void") -> Finding:
    names = ("first", "second")
    if told.flags[int(pair["first"])] & layout.WRITES:
        names = ("second", "first")
    read, write = (told.place(told.site(int(pair[name]))) for name in names)
    return told.finding(
        FindingKind.NC_WRITE,
        Severity.ERROR,
        read,
        other=write,
        count=int(pair["count"]),
        message="ld.global.nc reads what the same launch writes: it may come from a cache that is not kept up to date.",
        evidence=_evidence(told, pair, [told.flags[int(pair[name])] for name in ("first", "second")]),
        remedy=f"take __restrict__, const or __ldg() from what is read at {told.line(read)}, for an ordinary load",
    )
