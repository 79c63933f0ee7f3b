"""Exit statuses, and the one sentence that goes with each that is not 0."""

import os
import sys
import tempfile
import traceback
from enum import IntEnum
from pathlib import Path


class Status(IntEnum):
    """What the shell is told."""

    FINE = 0
    FOUND = 1
    """Something was found, or is missing."""
    BAD_INPUT = 2
    INTERNAL = 3
    INTERRUPTED = 130
    """128 + SIGINT, as shells count."""


class BadInput(Exception):
    """What the user gave cannot be used. The message is one sentence: what is wrong, where, what to do."""


def say(sentence: str) -> None:
    """A sentence for the user, on standard error."""
    print(f"undertorch: {sentence}", file=sys.stderr)


def internal_error(error: BaseException) -> Status:
    """Says how to report it. The traceback goes to a file, or with UNDERTORCH_DEBUG set to standard error."""
    trace = "".join(traceback.format_exception(error))
    if os.environ.get("UNDERTORCH_DEBUG"):
        print(trace, file=sys.stderr, end="")
        where = "the traceback above"
    else:
        handle, name = tempfile.mkstemp(prefix="undertorch-error-", suffix=".txt")
        os.close(handle)
        Path(name).write_text(f"undertorch {' '.join(sys.argv[1:])}\n\n{trace}", "utf-8", "backslashreplace")
        where = f"the traceback in {name}"
    what = " ".join(str(error).split())
    say(
        f"this is a fault of undertorch and not yours ({type(error).__name__}{f': {what}' if what else ''}); "
        f"please report it with {where} and what `undertorch doctor` prints."
    )
    return Status.INTERNAL
