"""undertorch gpus: which GPUs there are sheets of, every figure of one, and what the one that is here reaches."""

from pathlib import Path
from typing import Annotated

import typer

from undertorch.cli.exits import BadInput, say
from undertorch.cli.outputs import STDOUT, check_writable, write_out, writing
from undertorch.cli.progress import progress
from undertorch.cli.terminal import terminal


def gpus(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|my_gpu.toml|FILE",
            help="The GPU to show, or a sheet of your own. With --calibrate --json: the file to write.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the figures as JSON, and no table.")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure what the GPU of this machine reaches: two minutes, no setting.")
    ] = False,
) -> None:
    """The GPUs that times can be predicted for; with a name, every figure of it and where that comes from."""
    if calibrate:
        _calibrate(name, json)
        return
    from undertorch.gpus import BadSheet, UnknownGpu, all_gpus, find
    from undertorch.gpus.calibrating.kept import newest
    from undertorch.gpus.exporting import to_json
    from undertorch.reports.terminal.gpus import overview, sheet

    try:
        chosen = all_gpus() if name is None else (find(name),)
    except (UnknownGpu, BadSheet) as error:
        raise BadInput(str(error)) from error
    if json:
        write_out(to_json(chosen, {gpu.name: newest(gpu.name) for gpu in chosen}, as_list=name is None))
    elif name is None:
        terminal().print(overview(chosen), highlight=False)
    else:
        terminal().print(sheet(chosen[0], newest(chosen[0].name)), highlight=False)


def _calibrate(file: str | None, json: bool) -> None:
    """Measures, keeps what was measured, and shows it. Raises BadInput where there is nothing to measure."""
    from undertorch.gpus import find
    from undertorch.gpus.calibrating import NoGpu, calibrate, kept
    from undertorch.gpus.calibrating.on_cuda import OnCuda
    from undertorch.reports.terminal.calibration import calibration as shown

    path = STDOUT if file is None else Path(file)
    if file is not None and not json:
        raise BadInput(f"--calibrate measures the GPU that is here and takes no name; {file} is a file with --json.")
    check_writable(path)
    try:
        found = calibrate(OnCuda(), progress())
    except NoGpu as error:
        raise BadInput(str(error)) from error
    if not found.ceilings:
        why = next(iter(found.failed.values()))
        raise BadInput(f"Nothing of the {found.gpu_name} could be measured, and nothing was kept: {why}.")
    try:
        place: Path | None = kept.keep(found)
        sheet = kept.keep_sheet(found)
    except OSError as error:
        place = sheet = None
        say(f"the calibration is not kept: {kept.folder()} cannot be written ({error.strerror or error}).")
    if not json:
        console = terminal()
        console.print(shown(found, None if found.gpu is None else find(found.gpu)), highlight=False)
        for said, kept_in in (("Kept in", place), ("To predict with it: --gpu", sheet)):
            if kept_in is not None:  # in one row, so that it can be copied out of the terminal
                console.print(f"{said} {kept_in}", style="dim", soft_wrap=True, highlight=False, markup=False)
    elif path == STDOUT:
        write_out(kept.to_json(found))
    else:
        from undertorch.records.files import write_whole

        with writing(path):
            write_whole(path, kept.to_json(found))
