"""What the machine says when it cannot go on. Each message is one sentence: what, where, what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from undertorch.simt.ptx.instructions import Instruction


class SimtError(Exception):
    """Anything that ends a launch, or keeps it from starting."""


class PtxError(SimtError):
    """The text is not PTX, or not consistent."""


class Unsupported(SimtError):
    """PTX that the machine cannot run yet. Raised before anything runs."""


class BadLaunch(SimtError):
    """The grid, block, shared memory or arguments do not fit the kernel or the GPU."""


@contextmanager
def on_line(line: int) -> Iterator[None]:
    """What is wrong in the text names its line."""
    try:
        yield
    except PtxError as error:
        if str(error).startswith("PTX line"):
            raise
        raise PtxError(f"PTX line {line}: {error}") from None


@contextmanager
def located(instruction: "Instruction") -> Iterator[None]:
    """What is wrong with an instruction names its line."""
    try:
        yield
    except (PtxError, Unsupported) as error:
        if str(error).startswith("PTX line"):
            raise
        raise error.__class__(f"PTX line {instruction.text_line}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One thread of a launch."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    def __str__(self) -> str:
        return f"thread ({_comma(self.thread)}) of block ({_comma(self.block)})"


class Fault(SimtError):
    """A thread did what ends a launch on a GPU: an access outside its buffers, a misaligned one, a trap, an assert."""

    def __init__(self, message: str, *, kind: str, thread: Thread, file: str | None, line: int | None) -> None:
        super().__init__(message)
        self.printed: tuple[str, ...] = ()
        """What threads had printed until then, a printf each."""
        self.kind = kind
        """`out-of-bounds`, `misaligned`, `trap`, `assert`, `invalid-free`, `barrier-number` or `barrier-count`."""
        self.thread = thread
        self.file = file
        self.line = line


class Deadlock(SimtError):
    """No thread can move on: `waiting` says who waits where."""

    def __init__(self, message: str, waiting: tuple[str, ...]) -> None:
        super().__init__(message)
        self.printed: tuple[str, ...] = ()
        """What threads had printed until then, a printf each."""
        self.waiting = waiting


def _comma(of: tuple[int, int, int]) -> str:
    return ", ".join(str(n) for n in of)
