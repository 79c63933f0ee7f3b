"""The program: names the commands, and turns what they raise into exit statuses."""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from undertorch import __version__
from undertorch.cli.check import CheckCommand, check
from undertorch.cli.compare import compare
from undertorch.cli.doctor import doctor
from undertorch.cli.exits import BadInput, Status, internal_error, say
from undertorch.cli.gpus import gpus
from undertorch.cli.ops import ops
from undertorch.cli.see import see
from undertorch.cli.terminal import accept_every_character
from undertorch.cli.train import train

UsageError: Any = typer.BadParameter.__mro__[1]
"""The class of every wrong use of a command. Where it lives depends on typer's version; BadParameter, which typer
exports, stands right below it in all of them."""

PASSED_ON = {"allow_interspersed_args": False}
"""From the script on, arguments are the script's own, whatever they look like."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

app = typer.Typer(
    name="undertorch",
    help="What training looks like under PyTorch: each line's GPU kernels and their times, with no GPU.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(context_settings=PASSED_ON)(see)
app.command(cls=CheckCommand)(check)
app.command()(compare)
app.command()(gpus)
app.command()(ops)
app.command()(train)
app.command()(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"undertorch {__version__}")
        raise typer.Exit


@app.callback()
def undertorch(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What training looks like under PyTorch: each line's GPU kernels and their times, with no GPU."""


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and answers its exit status."""
    try:
        status = app(list(arguments) or ["--help"], prog_name="undertorch", standalone_mode=False)
    except BadInput as error:
        say(str(error))
        return Status.BAD_INPUT
    except UsageError as error:
        say(_wrong_use(error))
        return Status.BAD_INPUT
    except OSError as error:
        return _full(error) or internal_error(error)
    except (KeyboardInterrupt, typer.Abort):
        status = Status.INTERRUPTED
    except SystemExit:
        # So typer and rich end where the reader of our output has gone (`| head`): it has all that it wanted.
        return Status.FINE
    except Exception as error:  # The outermost frame: what nobody expected is a fault of undertorch, and is said to be.
        return internal_error(error)
    if status == Status.INTERRUPTED:
        say("interrupted.")
    return status if isinstance(status, int) else Status.FINE


def _full(error: OSError) -> Status | None:
    """Says that there is no room to write; None for other errors. One without a name is standard output's."""
    if error.errno not in NO_ROOM:
        return None
    what = "standard output" if error.filename is None else error.filename
    say(f"{what} cannot be written: {error.strerror}.")
    return Status.BAD_INPUT


def _wrong_use(error: Any) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "undertorch"
    return f"{message[:1].lower()}{message[1:]}; see `{command} --help`."


def main() -> None:
    """The console script."""
    accept_every_character()
    status = run(sys.argv[1:])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        status = status or _full(error) or Status.FINE  # FINE: the reader has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
    sys.exit(status)
