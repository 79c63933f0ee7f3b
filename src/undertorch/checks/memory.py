"""Memory: accesses outside of what a launch was given, misaligned ones, and reads of what nobody wrote."""

import re
from collections.abc import Iterator

from undertorch.checks import layout
from undertorch.checks.told import Told, demangled
from undertorch.records import Finding, FindingKind, Place, Severity
from undertorch.simt.errors import Fault

REMEDIES = {
    "no-shared": "say how many bytes of dynamic shared memory the kernel gets: --shared BYTES, [grid, block, bytes]",
    "none": "give memory for that argument, or test for a null pointer before it is used",
    "out-of-bounds": "{guard}, or give the launch a buffer that is large enough",
    "misaligned": "let the address be a multiple of the access's size, or read smaller elements",
    "trap": "a thread executed trap: look at the condition that leads there",
    "assert": "the assertion does not hold: look at its condition",
    "invalid-free": "free what malloc returned, once",
}


def check_memory(told: Told) -> Iterator[Finding]:
    """The fault that ended the launch, and reads of bytes that were never written."""
    if isinstance(told.ended_by, Fault):
        yield _fault(told, told.ended_by)
    for pair in told.pairs:
        if int(pair["kind"]) == layout.UNINITIALIZED:
            place = told.place(told.site(int(pair["second"])))
            who = f"{told.thread(int(pair['second_thread']))} of {told.block_named(int(pair['second_block']))}"
            yield told.finding(
                FindingKind.UNINITIALIZED,
                Severity.ERROR,
                place,
                count=int(pair["count"]),
                message=f"a read of {'shared' if int(pair['shared']) else 'global'} memory that nobody has written.",
                evidence=f"{who} reads {told.memory(pair)}",
                remedy=f"write it before {told.line(place)}, all of it: on a GPU it holds anything",
            )


def _fault(told: Told, fault: Fault) -> Finding:
    place = Place(file=fault.file or "PTX", line=fault.line or 1)
    first = str(fault).split("\n", maxsplit=1)[0]
    said = (first.partition(f"{fault.kind}: ")[2] or first).replace(told.program.name, demangled(told.program.name))
    words = {
        "out-of-bounds": "an access outside of what the launch was given",
        "misaligned": "a misaligned access",
        "trap": "a thread gave up (trap)",
        "assert": "an assertion does not hold",
        "invalid-free": "a free of what was not allocated",
    }
    return told.finding(
        FindingKind(fault.kind),
        Severity.ERROR,
        place,
        message=f"{words.get(fault.kind, fault.kind)}; the launch ended here.",
        evidence=_without_host(said),
        remedy=REMEDIES[_cause(said) or fault.kind].format(guard=told.words.guard),
    )


def _cause(said: str) -> str | None:
    """Of an access outside: what no guard mends."""
    if "no dynamic shared memory" in said:
        return "no-shared"
    return "none" if said.rpartition(" (")[0].endswith(" is None") else None


def _without_host(said: str) -> str:
    """Without the host's address, another one in each run, and without the PTX that stands behind."""
    return re.sub(r" at 0x[0-9a-f]+ of global memory", " of global memory", _without_ptx(said))


def _without_ptx(said: str) -> str:
    """Of `… executed trap (trap;).` what stands before the instruction, which may have parentheses of its own."""
    if not said.endswith(";)."):
        return said.removesuffix(".")
    depth = 0
    for at in range(len(said) - 2, 0, -1):
        depth += {")": 1, "(": -1}.get(said[at], 0)
        if depth == 0:
            return said[:at].rstrip()
    return said
