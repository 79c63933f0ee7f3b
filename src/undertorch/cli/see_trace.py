"""`undertorch see` for a trace that torch.profiler wrote."""

from collections.abc import Sequence
from pathlib import Path

from undertorch.cli.exits import BadInput, Status
from undertorch.cli.files import Files
from undertorch.cli.outputs import STDOUT, write_out


def see_trace(path: Path, more: Sequence[str], gpu: str | None, files: Files) -> Status:
    """Shows the step of median length. `gpu` names its sheet, where the trace does not. Raises BadInput."""
    from undertorch import gpus
    from undertorch.records.files import to_json
    from undertorch.reports.terminal import show
    from undertorch.steps import traces

    if more:
        raise BadInput(f"{path} is a trace, of which one is shown at a time; {more[0]} is one argument too many.")
    try:
        step, sheet = traces.see_trace(path, None if gpu is None else gpus.find(gpu))
    except (gpus.UnknownGpu, gpus.BadSheet, traces.BadTrace) as error:
        raise BadInput(str(error)) from error
    if files.json == STDOUT:
        write_out(to_json([step]))
    else:
        show(step, sheet)
    files.write([(sheet, step)])
    return Status.FINE
