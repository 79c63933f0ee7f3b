"""`undertorch see` for several GPUs: a table of all, then the whole view of the first."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from undertorch.cli.exits import BadInput, Status, say
from undertorch.cli.files import Files
from undertorch.cli.outputs import STDOUT, write_out
from undertorch.cli.progress import progress
from undertorch.cli.terminal import terminal

if TYPE_CHECKING:
    from undertorch.records import Gpu


def see_several(
    script: Path,
    arguments: Sequence[str],
    sheets: Sequence["Gpu"],
    step: int | None,
    assumed: Mapping[str, str],
    files: Files,
) -> Status:
    """Shows every GPU for which the script ran; those for which it failed are named, and the status says so.

    Raises BadInput where it failed for all.
    """
    from undertorch.records.files import to_json
    from undertorch.reports.terminal import show
    from undertorch.reports.terminal.gpus_compared import gpus_compared
    from undertorch.steps import see as steps

    outcomes = steps.see_many(script, arguments, sheets, step=step, assume=assumed, progress=progress())
    seen = [(one.gpu, one.step) for one in outcomes if one.step is not None]
    failed = [one for one in outcomes if one.step is None]
    if not seen:
        raise BadInput(" ".join(dict.fromkeys(str(one.failure) for one in failed)))
    every = [step for _, step in seen]
    with files.written(seen, as_list=True):
        if files.json == STDOUT:
            write_out(to_json(every, as_list=True))
        else:
            first, shown = seen[0]
            others = ", ".join(gpu.name for gpu, _ in seen[1:])
            console = terminal()
            console.print(gpus_compared(seen, [one.gpu for one in failed]), "", highlight=False)
            show(shown, first, console)
            if others:
                note = f"\nThis was the {first.name}, line by line; --gpu with one name shows another: {others}."
                console.print(note, highlight=False)
    for one in failed:
        say(f"{one.gpu.name}: {one.failure}")
    return Status.BAD_INPUT if failed else Status.FINE
