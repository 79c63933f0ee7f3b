"""`undertorch see` for traces that torch.profiler wrote: one, or a table of several and the whole view of the first."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from undertorch.cli.exits import BadInput, Status, say
from undertorch.cli.files import Files
from undertorch.cli.named_gpus import only_gpu
from undertorch.cli.outputs import STDOUT, write_out
from undertorch.cli.terminal import terminal

if TYPE_CHECKING:
    from undertorch.records import Gpu, Step

ADDRESS = re.compile(r"(https?|ftp|s3|gs|hf):/")
"""Begins what is no file on this machine. Of the two slashes a Path keeps one."""


def refuse_places(target: Path) -> None:
    """Raises BadInput where an address is given in place of a file, or a folder that is no module either."""
    from undertorch.steps.record.spawn import module_file

    if ADDRESS.match(str(target)):
        raise BadInput(f"{target} is an address, and nothing is fetched; download it, and name the file.")
    if target.is_dir() and module_file(str(target)) is None:
        try:
            inside = sorted(path.name for path in target.iterdir())
        except OSError as error:
            raise BadInput(f"{target} is a folder that cannot be read: {error.strerror}; name a file.") from error
        traces = [name for name in inside if name.endswith((".json", ".json.gz"))]
        if traces:
            first = target / traces[0]
            raise BadInput(f"{target} is a folder; name the traces in it that are to be seen, such as {first}.")
        scripts = [name for name in inside if name.endswith(".py")]
        such = f", such as {target / scripts[0]}" if scripts else ""
        raise BadInput(f"{target} is a folder, and no traces are in it; name the script that is to be seen{such}.")


def see_traces(paths: Sequence[Path], gpu: str | None, number: int | None, files: Files) -> Status:
    """Shows of each trace the step of that number, or the one of median length. `gpu` names the sheet of all of them,
    where the traces do not.

    Traces that cannot be read are named, and the status says so. Raises BadInput where none can.
    """
    from undertorch.records.files import to_json

    _only_traces(paths)
    sheet = None if gpu is None else only_gpu(gpu)
    seen, failed = _read(paths, sheet, number)
    if not seen:
        raise BadInput(" ".join(failed))
    several = len(paths) > 1
    with files.written(seen, as_list=several):
        if files.json == STDOUT:
            write_out(to_json([step for _, step in seen], as_list=several))
        else:
            _show(seen, several)
    for sentence in failed:
        say(sentence)
    return Status.BAD_INPUT if failed else Status.FINE


def _only_traces(paths: Sequence[Path]) -> None:
    from undertorch.cli.see import OWN_OPTIONS
    from undertorch.steps.traces import is_trace

    for place, path in enumerate(paths):
        if str(path).partition("=")[0] in OWN_OPTIONS:
            raise BadInput(f"{path} stands behind {paths[0]}; put undertorch's options before the traces.")
        refuse_places(path)
        if not is_trace(path):
            raise BadInput(f"{paths[0]} is a trace, which takes no arguments but more traces; {path} is none.")
        if path in paths[:place]:
            raise BadInput(f"{path} is given twice; name each trace once.")


def _read(paths: Sequence[Path], sheet: "Gpu | None", number: int | None) -> "tuple[list[tuple[Gpu, Step]], list[str]]":
    """Each trace's sheet and step, and a sentence for each that cannot be read."""
    from undertorch.steps import traces

    seen, failed = [], []
    for path in paths:
        try:
            step, of = traces.see_trace(path, sheet, number)
        except traces.BadTrace as error:
            failed.append(str(error))
        else:
            seen.append((of, step))
    return seen, failed


def _show(seen: "Sequence[tuple[Gpu, Step]]", several: bool) -> None:
    from rich.text import Text

    from undertorch.reports.terminal import show
    from undertorch.reports.terminal.text import Paragraph
    from undertorch.reports.terminal.traces_compared import traces_compared

    sheet, step = seen[0]
    console = terminal()
    if several:
        console.print(traces_compared([step for _, step in seen], console.width), "", highlight=False)
    show(step, sheet, console)
    if len(seen) > 1:
        note = f"\nThis was {step.environment.script}, line by line; give another trace alone to see it so."
        console.print(Paragraph(text=Text(note), indent=0))
