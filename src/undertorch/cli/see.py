"""undertorch see: what each line of one training step becomes on the GPU."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertorch.cli.exits import BadInput, Status, say
from undertorch.cli.files import Files
from undertorch.cli.named_gpus import named_gpus
from undertorch.cli.outputs import STDOUT, write_out
from undertorch.cli.progress import progress
from undertorch.cli.see_checked import see_checked
from undertorch.cli.see_measured import see_measured
from undertorch.cli.see_traces import is_folder_of_traces, refuse_places, see_traces
from undertorch.cli.several import see_several
from undertorch.cli.terminal import terminal

if TYPE_CHECKING:
    from undertorch.records import Gpu

REFERENCE = "H200"
"""The GPU that is predicted for where none is named: the one that the predictions are measured against."""


def see(
    script: Annotated[
        Path, typer.Argument(metavar="SCRIPT|TRACE…", help="A training script, as it is; or package.module; or traces.")
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
    step: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Which training step to look at, counted from 1; without it 2 (or 3, where 2 "
            "does more), measured one of 10 to 12. Of a trace: "
            "the profiler's number.",
        ),
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(metavar="LINE=VALUE", help="What a line's value is, where the script asks for one. Repeatable."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Run the script once more up to that step, for real on the CPU, and check its own Triton and CUDA "
            "kernels: for small data.",
        ),
    ] = False,
    host_speed: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=0.01,
            max=100,
            help="How many times as fast as the server that predictions know your CPU launches (docs/see.md).",
        ),
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

    Its kernels, forward, backward and update, with grid, block, bytes, FLOPs, time, and what bounds them. With --gpu
    the script runs without a GPU, on made-up values, and the times are predicted. Without it the script runs for real
    on this machine's CUDA GPU, where there is one, until a step after the warm-up is measured. Of a trace that
    torch.profiler wrote (trace.json, trace.json.gz) in place of the script, its step of median length is shown, as it
    was measured; of several traces (of ranks, or before and after an edit) a table stands before the first.
    """
    from undertorch.records.files import to_json
    from undertorch.reports.terminal import show
    from undertorch.steps import see as steps
    from undertorch.steps.asked import ended_before
    from undertorch.steps.measure import has_cuda
    from undertorch.steps.record.errors import RecordError
    from undertorch.steps.record.ordinary import SECOND
    from undertorch.steps.traces import is_trace

    if arguments and arguments[0] == "--":  # it parts the script's arguments from ours
        arguments = arguments[1:]
    _only_utf8(str(script), *(arguments or []))
    refuse_places(script)
    assumed = assumptions(assume or [])
    files = Files(json=json, page=page, perfetto=perfetto)
    files.check(_read_by(script, arguments or [], gpu))
    if is_trace(script) or is_folder_of_traces(script):
        _only_for_scripts(script, assumed, check, host_speed)
        return see_traces([script, *map(Path, arguments or [])], gpu, step, files)
    if step == 0:
        raise BadInput(f"--step {step}: a script's steps are counted from 1.")
    if gpu is None and has_cuda():
        _only_predicted(assumed, check, host_speed)
        return see_measured(script, arguments or [], step, files)
    if gpu is None:
        late = _late_gpu(arguments or [])
        say(f"no --gpu given and no CUDA GPU found here, so the times are predicted for the {REFERENCE}.{late}")
    sheet, *others = _beside(host_speed, named_gpus(REFERENCE if gpu is None else gpu))
    try:
        if others and check:
            raise BadInput("--check is for one GPU: kernels are compiled for sm_80 whichever is named.")
        if others:
            return see_several(script, arguments or [], (sheet, *others), step, assumed, files)
        seen = steps.see(script, arguments or [], sheet, step=step, assume=assumed, progress=progress())
    except RecordError as error:
        raise BadInput(f"{error}{misplaced(arguments or [])}") from error
    earlier = ended_before(step, seen.environment.step)
    if earlier is not None:
        say(earlier)
    with files.written([(sheet, seen)]):
        if json == STDOUT:
            write_out(to_json([seen]))
        else:
            show(seen, sheet, terminal())
    return see_checked(script, arguments or [], sheet, step or SECOND, aside=json == STDOUT) if check else Status.FINE


def _beside(host_speed: float | None, sheets: Sequence["Gpu"]) -> list["Gpu"]:
    """The GPUs beside a CPU of that speed; None: as their sheets say."""
    return [sheet if host_speed is None else replace(sheet, host_speed=host_speed) for sheet in sheets]


def _only_for_scripts(trace: Path, assumed: dict[str, str], check: bool, host_speed: float | None) -> None:
    """Raises BadInput for options that say nothing of a trace."""
    if assumed:
        raise BadInput(f"--assume is for scripts: nothing is assumed of {trace}, which is a trace.")
    if check:
        raise BadInput(f"--check is for scripts: the kernels of {trace}, which is a trace, cannot be run.")
    if host_speed is not None:
        raise BadInput(f"--host-speed is for scripts: the times of {trace}, which is a trace, were measured.")


def _only_predicted(assumed: dict[str, str], check: bool, host_speed: float | None) -> None:
    """Raises BadInput for options that say nothing of a step that is measured."""
    if assumed:
        raise BadInput("--assume is for a predicted step, which --gpu NAME asks for: here the script runs for real.")
    for given, option in ((check, "--check"), (host_speed is not None, "--host-speed")):
        if given:
            raise BadInput(f"{option} is for a predicted step, which --gpu NAME asks for.")


def _only_utf8(*given: str) -> None:
    """Raises BadInput for a name or an argument that no report, page or JSON could hold."""
    for text in given:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            encoding = sys.getfilesystemencoding()
            raise BadInput(
                f"{text!r} has bytes that are no {encoding}, which the locale says names are; give it another name, or "
                "set a locale of UTF-8."
            ) from error


def _read_by(script: Path, arguments: list[str], gpu: str | None) -> list[Path]:
    """Files that are read, or that may be: a script's arguments."""
    from undertorch.steps.record.spawn import module_file

    module = module_file(str(script))
    sheets = [] if gpu is None else [Path(name.strip()) for name in gpu.split(",")]
    return [script, *([] if module is None else [module]), *map(Path, arguments), *sheets]


OWN_OPTIONS = ("--assume", "--check", "--gpu", "--host-speed", "--json", "--page", "--perfetto", "--step")


def misplaced(arguments: list[str]) -> str:
    """A remark on options of ours that stand among the script's arguments: it was they that the script got."""
    found = [argument for argument in arguments if argument.partition("=")[0] in OWN_OPTIONS]
    if not found:
        return ""
    return f" What follows the script is its own, and it got {found[0]}: put undertorch's options before the script."


def _late_gpu(arguments: list[str]) -> str:
    """A remark where --gpu stands behind the script, which may have such an option itself."""
    return misplaced([argument for argument in arguments if argument.partition("=")[0] == "--gpu"])


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
