"""undertorch doctor: what this installation can do, and what is missing for the rest."""

from typing import Annotated

import typer

from undertorch.cli.exits import Status
from undertorch.cli.outputs import write_out
from undertorch.cli.progress import progress
from undertorch.cli.terminal import terminal


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Write it as JSON, and no table.")] = False,
) -> int:
    """What this installation can do, and what is missing for the rest.

    Exit status 0; 1 where something is missing that `see` cannot do without.
    """
    import msgspec

    from undertorch import __version__
    from undertorch.cli.installation import look_around

    looks = look_around(progress())
    able = all(look.ok for look in looks if look.essential)
    status = Status.FINE if able else Status.FOUND
    report = {"schema": 1, "undertorch": __version__, "see": able, "looks": looks}
    if json:
        write_out(msgspec.json.encode(report))
        return status
    console = terminal()
    console.print(f"undertorch {__version__}", highlight=False)
    for look in looks:
        mark = "[green]✓[/]" if look.ok else "[red]✗[/]" if look.essential else "[yellow]✗[/]"
        console.print(f"  {mark} {look.what:<13} ", end="", highlight=False)
        console.print(look.found, highlight=False, markup=False, soft_wrap=True)
        if look.remedy is not None:
            console.print(f"{'':18}{look.remedy}.", style="dim", highlight=False, markup=False, soft_wrap=True)
    console.print(f"undertorch see: {'works here' if able else 'does not work here yet'}", highlight=False)
    return status
