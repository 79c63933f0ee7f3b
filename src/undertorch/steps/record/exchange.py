"""What the parent process and the process that runs the script tell each other, through two files in a temporary
folder.
"""

from dataclasses import dataclass

from undertorch.records import Gpu, Recording
from undertorch.steps.record.assume import Assumed

INTERNAL = 70
"""Exit status of a child that failed by itself, not by the script (EX_SOFTWARE of sysexits.h)."""
LOST = 74
"""Exit status of a child that could not hand over what came of it (EX_IOERR of sysexits.h)."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells count it: 128 and the signal's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be recorded."""

    script: str
    """As the user named it; of a module its file."""
    module: str | None = None
    """Its dotted name where it is to run as by `python -m`."""
    arguments: tuple[str, ...]
    gpu: Gpu
    step: int
    """Counted from 1."""
    ordinary: bool = False
    """Whether the step after it is taken where that is without what the script does now and then (ordinary.py)."""
    assumed: tuple[Assumed, ...]
    """The user's own answers."""
    guard: str
    """Path of the compiled guard."""
    outcome: str
    """Where the child writes its Outcome."""
    path: str = ""
    """Where this stands; nowhere for a loop that is seen in its own process."""
    scratch: str = ""
    """The run's folder (overlay/scratch.py)."""
    reached: str = ""
    """Where the child writes which step it has come to; nowhere where nobody wants to know. Beside `outcome`, and named
    after it: such files alone reach the disk (overlay/shim/layer.c).
    """
    room: int = 0
    """Bytes that the script may write there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it: a recording, or the name of an error's class (of errors.py) and its sentence. None of them:
    undertorch failed.
    """

    recording: Recording | None = None
    error: str | None = None
    message: str | None = None
