"""Which step the script has come to, told by its process to the one that waits for it: a number in a file."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

WRITTEN_EVERY_S = 1.0
SAID_EVERY_S = 5.0
"""Each is a row on a terminal that the script prints to as well."""


def writer(path: str) -> Callable[[int], None]:
    """Takes the number of each step that is complete, and writes it there now and then; nowhere without a path."""
    last = -WRITTEN_EVERY_S

    def reached(step: int) -> None:
        nonlocal last
        now = time.monotonic()
        if not path or now - last < WRITTEN_EVERY_S:
            return
        last = now
        aside = f"{path}.part"
        try:
            Path(aside).write_text(str(step))
            Path(aside).replace(path)
        except OSError:
            return  # a script that may write no more files is recorded all the same

    return reached


@contextmanager
def said(path: str, script: str, wanted: int, progress: Callable[[str], None] | None) -> Iterator[None]:
    """Says which step was reached, for as long as the script runs."""
    if progress is None:
        yield
        return
    over = threading.Event()

    def look() -> None:
        before = 0
        while not over.wait(SAID_EVERY_S):
            step = _read(path)
            if step > before:
                before = step
                progress(f"{script}: step {step:,} of {wanted:,} is done")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _read(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0  # nothing yet
