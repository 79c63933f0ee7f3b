"""undertorch see: what each line of one training step becomes on the GPU."""

from pathlib import Path
from typing import Annotated

import typer

from undertorch.cli.exits import BadInput, Status, say
from undertorch.cli.files import Files
from undertorch.cli.outputs import STDOUT, write_out
from undertorch.cli.progress import progress
from undertorch.cli.see_trace import see_trace
from undertorch.cli.several import see_several

REFERENCE = "H200"
"""The GPU that is predicted for where none is named: the one that the predictions are measured against."""


def see(
    script: Annotated[
        Path, typer.Argument(metavar="SCRIPT", help="A training script, as it is; or package.module; or a trace.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="The script's own arguments, passed on untouched.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME…]",
            help="A GPU (see undertorch gpus), or a spec sheet of your own: my_gpu.toml. Several: a run for each.",
        ),
    ] = None,
    step: Annotated[int, typer.Option(metavar="N", min=1, help="Which training step to look at, counted from 1.")] = 2,
    assume: Annotated[
        list[str] | None,
        typer.Option(metavar="LINE=VALUE", help="What a line's value is, where the script asks for one. Repeatable."),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the step as JSON; - for standard output, and no report."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page: source, timeline, roofline, memory.")
    ] = None,
    perfetto: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev, of the first GPU.")
    ] = None,
) -> Status:
    """What each line of one training step becomes on the GPU.

    Its kernels, forward, backward and update, with grid, block, bytes, FLOPs, time, and what bounds them. The script
    runs without a GPU, on made-up values; the times are predicted. Of a trace that torch.profiler wrote (trace.json,
    trace.json.gz) in place of the script, its step of median length is shown, as it was measured.
    """
    from undertorch import gpus
    from undertorch.records.files import to_json
    from undertorch.reports.terminal import show
    from undertorch.steps import see as steps
    from undertorch.steps.record.errors import RecordError
    from undertorch.steps.traces import is_trace

    assumed = assumptions(assume or [])
    files = Files(json=json, page=page, perfetto=perfetto)
    files.check()
    if is_trace(script):
        return see_trace(script, arguments or [], gpu, files)
    if gpu is None:
        say(f"no --gpu given, so the times are predicted for the {REFERENCE}; this version does not measure.")
    try:
        sheets = [gpus.find(name.strip()) for name in (gpu or REFERENCE).split(",")]
        sheet, *others = {sheet.name: sheet for sheet in sheets}.values()
        if others:
            return see_several(script, arguments or [], (sheet, *others), step, assumed, files)
        seen = steps.see(script, arguments or [], sheet, step=step, assume=assumed, progress=progress())
    except (gpus.UnknownGpu, gpus.BadSheet, RecordError) as error:
        raise BadInput(f"{error}{misplaced(arguments or [])}") from error
    if seen.environment.step not in (None, step):
        say(f"there is no step {step}: the script ended after step {seen.environment.step}, which is shown.")
    if json == STDOUT:
        write_out(to_json([seen]))
    else:
        show(seen, sheet)
    files.write([(sheet, seen)])
    return Status.FINE


OWN_OPTIONS = ("--assume", "--gpu", "--json", "--page", "--perfetto", "--step")


def misplaced(arguments: list[str]) -> str:
    """A remark on options of ours that stand among the script's arguments: it was they that the script got."""
    found = [argument for argument in arguments if argument.partition("=")[0] in OWN_OPTIONS]
    if not found:
        return ""
    return f" What follows the script is its own, and it got {found[0]}: put undertorch's options before the script."


def assumptions(given: list[str]) -> dict[str, str]:
    """`LINE=VALUE` each, by LINE (or FILE:LINE); what they may be is the recorder's to say. Raises BadInput."""
    found: dict[str, str] = {}
    for text in given:
        line, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"--assume {text}: give LINE=VALUE or FILE:LINE=VALUE, such as --assume 31=true.")
        if line in found:
            raise BadInput(f"--assume {text}: line {line} has a value already, {found[line]}.")
        found[line] = value
    return found
