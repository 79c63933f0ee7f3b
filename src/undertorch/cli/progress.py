"""What long work is at, on a terminal; silence elsewhere."""

import sys
from collections.abc import Callable

from undertorch.cli.terminal import terminal


def progress() -> Callable[[str], None] | None:
    """A function that is told each stage and says it on standard error; None where that is no terminal.

    A row a stage, and no moving line: the script that is seen prints to the same terminal meanwhile.
    """
    if not sys.stderr.isatty():
        return None
    console = terminal(stderr=True)
    return lambda stage: console.print(f"… {stage}", style="dim", highlight=False, markup=False)
