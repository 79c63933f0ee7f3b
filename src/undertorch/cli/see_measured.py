"""`undertorch see` on a machine with a CUDA GPU, where none is named: the script runs for real and is measured."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from undertorch.cli.exits import BadInput, Status, say
from undertorch.cli.files import Files
from undertorch.cli.outputs import STDOUT, write_out
from undertorch.cli.progress import progress
from undertorch.cli.terminal import terminal

if TYPE_CHECKING:
    from undertorch.steps.measure.ranks import Group

FOR_REAL = "no --gpu given, so the script runs for real on this machine's GPU, and what it writes is written."


def see_measured(script: Path, arguments: Sequence[str], number: int | None, files: Files) -> Status:
    """Shows the step of that number, or one of those after the warm-up; of several ranks, what they say of one another
    too. Raises BadInput.
    """
    from undertorch.cli.see import misplaced
    from undertorch.steps.measure.ranks import group
    from undertorch.steps.record.errors import RecordError
    from undertorch.steps.traces import BadTrace

    together = group()
    if together is None or together.local_rank == 0:
        say(FOR_REAL)
    try:
        if together is None:
            return _alone(script, arguments, number, files)
        return _together(together, script, arguments, number, files)
    except (RecordError, BadTrace) as error:
        raise BadInput(f"{error}{misplaced(list(arguments))}") from error


def _alone(script: Path, arguments: Sequence[str], number: int | None, files: Files) -> Status:
    from undertorch.records.files import to_json
    from undertorch.reports.terminal import show
    from undertorch.steps.measure import measure

    step, sheet = measure(script, arguments, step=number, progress=progress())
    with files.written([(sheet, step)]):
        if files.json == STDOUT:
            write_out(to_json([step]))
        else:
            show(step, sheet, terminal())
    return Status.FINE


def _together(one: "Group", script: Path, arguments: Sequence[str], number: int | None, files: Files) -> Status:
    """One of several processes: the first on the machine shows what all measured."""
    from undertorch.records.files import to_json
    from undertorch.reports.terminal import show
    from undertorch.reports.terminal.ranks import ranks as ranks_drawn
    from undertorch.reports.terminal.traces_compared import traces_compared
    from undertorch.steps.measure import ranks
    from undertorch.steps.measure.reading import read_ranks
    from undertorch.steps.measure.spawn import run_measured
    from undertorch.steps.ranks import join_ranks
    from undertorch.steps.record.errors import RecordError

    first = one.local_rank == 0
    one.own.mkdir(parents=True, exist_ok=True)
    try:
        run_measured(script, arguments, one.own, step=number, progress=progress() if first else None)
    except RecordError as error:
        ranks.failed(one, error)
        raise
    ranks.done(one)
    if not first:
        return Status.FINE
    try:
        ranked, sheet = read_ranks(ranks.gathered(one, progress()))
    finally:
        shutil.rmtree(one.folder, ignore_errors=True)
    report = join_ranks(ranked)
    steps = [each.step for each in ranked]
    with files.written([(sheet, step) for step in steps], True, report):
        if files.json == STDOUT:
            write_out(to_json(steps, True, report))
        else:
            console = terminal()
            console.print(traces_compared(steps, console.width), "", highlight=False)
            console.print(ranks_drawn(report, console.width), "", highlight=False)
            show(steps[0], sheet, console)
    return Status.FINE
