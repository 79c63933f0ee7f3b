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
    from undertorch.records.ranks import RanksReport
    from undertorch.steps.traces import SeenTrace

ADDRESS = re.compile(r"(https?|ftp|s3|gs|hf):/")
"""Begins what is no file on this machine. Of the two slashes a Path keeps one."""

DIGITS = re.compile(r"(\d+)")


def traces_in(folder: Path) -> list[Path]:
    """The traces that lie in a folder, those of ranks in the order of their numbers. Raises BadInput where it cannot be
    read."""
    try:
        inside = [path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")) and path.is_file()]
    except OSError as error:
        raise BadInput(f"{folder} is a folder that cannot be read: {error.strerror}; name a file.") from error
    return sorted(inside, key=lambda path: [int(part) if part.isdigit() else part for part in DIGITS.split(path.name)])


def is_folder_of_traces(target: Path) -> bool:
    """A folder that is no module and has traces in it. Raises BadInput where it cannot be read."""
    from undertorch.steps.record.spawn import module_file

    return target.is_dir() and module_file(str(target)) is None and bool(traces_in(target))


def refuse_places(target: Path) -> None:
    """Raises BadInput where an address is given in place of a file, or a folder with neither traces nor a module."""
    from undertorch.steps.record.spawn import module_file

    if ADDRESS.match(str(target)):
        raise BadInput(f"{target} is an address, and nothing is fetched; download it, and name the file.")
    if target.is_dir() and module_file(str(target)) is None and not traces_in(target):
        scripts = sorted(path.name for path in target.iterdir() if path.name.endswith(".py"))
        such = f", such as {target / scripts[0]}" if scripts else ""
        raise BadInput(f"{target} is a folder, and no traces are in it; name the script that is to be seen{such}.")


def see_traces(given: Sequence[Path], gpu: str | None, number: int | None, files: Files) -> Status:
    """Shows of each trace the step of that number, or the one of median length; of a folder, of each trace in it. `gpu`
    names the sheet of all of them, where the traces do not.

    Traces that cannot be read are named, and the status says so. Raises BadInput where none can.
    """
    from undertorch.records.files import to_json

    _only_traces(given)
    paths = [path for one in given for path in (traces_in(one) if one.is_dir() else [one])]
    files.check(paths)
    sheet = None if gpu is None else only_gpu(gpu)
    read, failed = _read(paths, sheet, number)
    if not read:
        raise BadInput(" ".join(failed))
    several = len(paths) > 1
    ranks, apart = _ranks(read)
    seen = [(one.gpu, one.step) for one in read]
    with files.written(seen, several, ranks):
        if files.json == STDOUT:
            write_out(to_json([step for _, step in seen], several, ranks))
        else:
            _show(seen, several, ranks, apart)
    for sentence in failed:
        say(sentence)
    return Status.BAD_INPUT if failed else Status.FINE


def _ranks(read: "Sequence[SeenTrace]") -> "tuple[RanksReport | None, str | None]":
    """What they say of one another, where they are ranks of one run; otherwise why they are not, where each says which
    rank it is."""
    from undertorch.steps.ranks import join_ranks, why_not_one_run

    ranked = [one.ranked for one in read if one.ranked is not None]
    if not len(ranked) == len(read) > 1:
        return None, None
    apart = why_not_one_run(ranked)
    return (join_ranks(ranked), None) if apart is None else (None, apart)


def _only_traces(paths: Sequence[Path]) -> None:
    from undertorch.cli.see import OWN_OPTIONS
    from undertorch.steps.traces import is_trace

    for place, path in enumerate(paths):
        if str(path).partition("=")[0] in OWN_OPTIONS:
            raise BadInput(f"{path} stands behind {paths[0]}; put undertorch's options before the traces.")
        refuse_places(path)
        if not is_trace(path) and not is_folder_of_traces(path):
            beside = "a trace" if paths[0].exists() else "no file, and by its name a trace"
            raise BadInput(f"{paths[0]} is {beside}, which takes no arguments but more traces; {path} is none.")
        if path in paths[:place]:
            raise BadInput(f"{path} is given twice; name each trace once.")


def _read(paths: Sequence[Path], sheet: "Gpu | None", number: int | None) -> "tuple[list[SeenTrace], list[str]]":
    """Each trace's step, and a sentence for each that cannot be read."""
    from undertorch.steps import traces

    read: list[SeenTrace] = []
    failed = []
    overviews = []
    for path in paths:
        try:
            overviews.append((path, traces.look_over_ahead(path)))
        except traces.BadTrace as error:
            failed.append(str(error))
    among = traces.steady_on_all([overview for _, overview in overviews])
    for path, overview in overviews:
        beside = read[0].ranked if read else None
        try:
            one = traces.see_rank(path, sheet, number, beside, overview=overview, among=among)
        except traces.BadTrace as error:
            failed.append(str(error))
            continue
        other = None if sheet is None else _other_gpu(one.step.environment.gpu_name, sheet)
        if other is None or sheet is None:
            read.append(one)
        else:
            failed.append(f"{path} was recorded on {other}, and --gpu says {sheet.name}; leave it out.")
    return read, failed


def _other_gpu(recorded: str | None, sheet: "Gpu") -> str | None:
    """The GPU that a trace names, where the sheet is that of another. A sheet of one's own may be of any."""
    from undertorch import gpus

    if recorded is None or sheet not in gpus.all_gpus():
        return None
    try:
        own = gpus.find(recorded)
    except gpus.UnknownGpu:
        return None
    return None if own.name == sheet.name else own.name


def _show(seen: "Sequence[tuple[Gpu, Step]]", several: bool, ranks: "RanksReport | None", apart: str | None) -> None:
    from rich.text import Text

    from undertorch.reports.terminal import show
    from undertorch.reports.terminal.ranks import ranks as ranks_drawn
    from undertorch.reports.terminal.text import Paragraph
    from undertorch.reports.terminal.traces_compared import traces_compared

    sheet, step = seen[0]
    console = terminal()
    if several:
        console.print(traces_compared([step for _, step in seen], console.width), "", highlight=False)
    if apart is not None:
        console.print(Paragraph(text=Text(apart), indent=0), "", highlight=False)
    if ranks is not None:
        console.print(ranks_drawn(ranks, console.width), "", highlight=False)
    show(step, sheet, console)
    if len(seen) > 1:
        note = f"\nThis was {step.environment.script}, line by line; give another trace alone to see it so."
        console.print(Paragraph(text=Text(note), indent=0))
