"""undertorch compare: what an edit changed, from two steps that `undertorch see --json` wrote."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertorch.cli.exits import BadInput, Status, say
from undertorch.cli.outputs import STDOUT, check_writable, reader_may_leave, refuse_inputs, write_out, writing
from undertorch.cli.terminal import terminal

if TYPE_CHECKING:
    from undertorch.records import Step


def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE.json", help="A step, as see --json wrote it.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER.json", help="The same script's step after an edit.")],
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGETS",
            help="How much may be added before the exit status is 1: step+5%,bytes+200MB,memory+5%,launches+10.",
        ),
    ] = None,
    mixed: Annotated[bool, typer.Option("--mixed", help="Compare predicted with measured times all the same.")] = False,
    json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the differences as JSON; - for standard output, and no report."),
    ] = None,
) -> Status:
    """What got faster, slower, bigger from one step to another: the whole, each line, each phase.

    Lines are found again by their text, wherever an edit moved them.
    """
    from undertorch.records.comparison_files import to_json
    from undertorch.records.comparisons import Verdict
    from undertorch.records.files import write_whole
    from undertorch.reports.terminal.comparison import budget_sentence, show_comparison
    from undertorch.steps import compare as steps
    from undertorch.steps.budgets import judge, not_paired, parse_budgets

    refuse_inputs(json, (before, after))
    check_writable(json)
    try:
        budgets = () if fail_on is None else parse_budgets(fail_on)
        pairing = steps.pair(_read(before), _read(after))
        compared = [steps.compare(*pair, mixed=mixed) for pair in pairing.pairs]
    except steps.CannotCompare as error:
        raise BadInput(str(error)) from error
    judged = [[judge(budget, comparison) for budget in budgets] for comparison in compared]
    alone = [(gpu, "after") for gpu in pairing.only_before] + [(gpu, "before") for gpu in pairing.only_after]
    unpaired = [not_paired(budget, gpu, lacks) for gpu, lacks in alone for budget in budgets]
    everything = [*(one for some in judged for one in some), *unpaired]
    data = to_json(compared, pairing.only_before, pairing.only_after, everything)
    if json is not None and json != STDOUT:
        with writing(json):  # before the report, whose reader may leave before its end
            write_whole(json, data)
    with reader_may_leave():  # the budgets are judged all the same
        if json == STDOUT:
            write_out(data)
        else:
            for comparison, some in zip(compared, judged, strict=True):
                show_comparison(comparison, some, terminal())
    for gpu, lacks in alone:
        say(f"{gpu}: the file {lacks} has no step of it, so it is not compared.")
    broken = [one for one in everything if one.verdict is not Verdict.HOLDS]
    for one in broken:
        say(budget_sentence(one))
    return Status.FOUND if broken else Status.FINE


def _read(path: Path) -> "tuple[Step, ...]":
    """Raises BadInput."""
    from undertorch.records.files import BadFile, read_steps

    try:
        return read_steps(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}; give a file that see --json wrote.") from error
    except BadFile as error:
        raise BadInput(str(error)) from error
