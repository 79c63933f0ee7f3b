"""undertorch gpus: which GPUs there are sheets of, and every figure of one."""

from typing import Annotated

import typer

from undertorch.cli.exits import BadInput
from undertorch.cli.outputs import write_out
from undertorch.cli.terminal import terminal


def gpus(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|my_gpu.toml", help="The GPU to show, or a sheet of your own.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the figures as JSON, and no table.")] = False,
) -> None:
    """The GPUs that times can be predicted for; with a name, every figure of it and where that comes from."""
    from undertorch.gpus import BadSheet, UnknownGpu, all_gpus, find
    from undertorch.gpus.exporting import to_json
    from undertorch.reports.terminal.gpus import overview, sheet

    try:
        chosen = all_gpus() if name is None else (find(name),)
    except (UnknownGpu, BadSheet) as error:
        raise BadInput(str(error)) from error
    if json:
        write_out(to_json(chosen, as_list=name is None))
    else:
        terminal().print(overview(chosen) if name is None else sheet(chosen[0]), highlight=False)
