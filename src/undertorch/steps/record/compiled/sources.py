"""From a line in the code that Inductor writes to the user's lines that it came from, as Inductor itself keeps them.

Above each call of a kernel stands a comment with the kernel's name and a number, and under both the compiled graph has
the stacks of the lines (torch/_inductor/codegen/wrapper.py, write_provenance_debug_handle).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from undertorch.records import Where
from undertorch.steps.qualnames import qualname
from undertorch.steps.record.places import Written

HANDLE = re.compile(r"# \[Provenance debug handles\] (?P<handle>\S+)")
STACK_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
LAUNCH = re.compile(r"^\s*(?P<kernel>triton_\w+)\.run\(")
UNNAMED = ""
"""The name under which the lines of kernels are kept that Inductor writes without saying their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """Reads stacks as Python prints them."""

    name: Callable[[str], str | None]
    """What a file is called in a recording; None where its frames are not the user's."""
    loss: Callable[[str, str], bool]
    """Whether a file's function of that name is one of torch's losses."""

    def written(self, stacks: Iterable[str]) -> Written:
        """The user's frames of each stack, innermost first; stacks without any are left out."""
        chains: dict[tuple[Where, ...], None] = {}
        losses = []
        for stack in stacks:
            frames = list(STACK_LINE.finditer(stack))
            wheres = (self._where(frame) for frame in reversed(frames))
            chain = tuple(where for where in wheres if where is not None)
            if chain and chain not in chains:
                chains[chain] = None
                losses.append(any(self.loss(frame["file"], frame["function"]) for frame in frames))
        return Written(chains=tuple(chains), loss=bool(losses) and losses[0])

    def _where(self, frame: re.Match[str]) -> Where | None:
        name = self.name(frame["file"])
        if name is None:
            return None
        line = int(frame["line"])
        return Where(file=name, line=line, function=qualname(frame["file"], line) or frame["function"])


def lines(code: str, provenance: str | None, stacks: Stacks) -> dict[int, Written]:
    """By line of the code, counted from 1: what the calls came from that stand there."""
    kept = {} if not provenance else json.loads(provenance)
    told = {handle: stacks.written(texts) for handle, texts in kept.items()}
    unnamed = iter([told[handle] for handle in told if handle.rpartition(":")[0] == UNNAMED])
    return dict(_lines(code, told, unnamed))


def _lines(code: str, told: dict[str, Written], unnamed: Iterator[Written]) -> Iterator[tuple[int, Written]]:
    handle = ""
    now: Written | None = None
    for number, text in enumerate(code.splitlines(), 1):
        if (said := HANDLE.search(text)) is not None:
            handle = said["handle"]
            now = told.get(handle)
        elif (launch := LAUNCH.match(text)) is not None and launch["kernel"] != handle.rpartition(":")[0]:
            now = next(unnamed, None)
            handle = f"{launch['kernel']}:"
        if now is not None:
            yield number, now
