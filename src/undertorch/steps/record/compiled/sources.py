"""From a line in the code that Inductor writes to the user's lines that it came from, as Inductor itself keeps them.

Above each call of a kernel stands a comment with the kernel's name and a number, and under both the compiled graph has
the stacks of the lines (torch/_inductor/codegen/wrapper.py, write_provenance_debug_handle).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator

from undertorch.records import Where
from undertorch.steps.qualnames import qualname
from undertorch.steps.record.places import Chains

HANDLE = re.compile(r"# \[Provenance debug handles\] (?P<handle>\S+)")
STACK_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
LAUNCH = re.compile(r"^\s*(?P<kernel>triton_\w+)\.run\(")
UNNAMED = ""
"""The name under which the lines of kernels are kept that Inductor writes without saying their names."""


Name = Callable[[str], str | None]
"""What a file is called in a recording; None where its frames are not the user's."""


def lines(code: str, provenance: str | None, name: Name) -> dict[int, Chains]:
    """By line of the code, counted from 1: what the calls came from that stand there, where anything is known of it."""
    kept = {} if not provenance else json.loads(provenance)
    told = {handle: _chains(stacks, name) for handle, stacks in kept.items()}
    unnamed = iter([told[handle] for handle in told if handle.rpartition(":")[0] == UNNAMED])
    return {number: chains for number, chains in _lines(code, told, unnamed) if chains}


def _lines(code: str, told: dict[str, Chains], unnamed: Iterator[Chains]) -> Iterator[tuple[int, Chains]]:
    handle = ""
    now: Chains = ()
    for number, text in enumerate(code.splitlines(), 1):
        if (said := HANDLE.search(text)) is not None:
            handle = said["handle"]
            now = told.get(handle, ())
        elif (launch := LAUNCH.match(text)) is not None and launch["kernel"] != handle.rpartition(":")[0]:
            now = next(unnamed, ())
            handle = f"{launch['kernel']}:"
        yield number, now


def _chains(stacks: Iterable[str], name: Name) -> Chains:
    """The user's frames of each stack as Python prints it, innermost first."""
    found = (tuple(_wheres(stack, name))[::-1] for stack in stacks)
    return tuple(dict.fromkeys(chain for chain in found if chain))


def _wheres(stack: str, name: Name) -> Iterator[Where]:
    for frame in STACK_LINE.finditer(stack):
        if (file := name(frame["file"])) is not None:
            line = int(frame["line"])
            yield Where(file=file, line=line, function=qualname(frame["file"], line) or frame["function"])
