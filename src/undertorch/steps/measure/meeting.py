"""Ranks of one machine that begin each profiled step together.

The profiler takes longer to start on one than on another, and slows the CPUs so much that none catches up: a rank that
is some milliseconds ahead stands in every collective of the step, waiting for what it would not wait for otherwise.
They meet by files: a collective for it would be one more of the script's.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from undertorch.steps.measure.ranks import group

PATIENCE_S = 10.0
"""For which one waits for the others: far longer than a profiler takes to start."""

LOOKS_EVERY_S = 0.0002
"""Little beside a step."""


class Meeting:
    """One rank's part in it. Alone, it waits for nobody."""

    def __init__(self, own: Path, others: Sequence[Path] = (), patience_s: float = PATIENCE_S) -> None:
        """Each rank has a folder."""
        self._own = own
        self._others = others
        self._patience_s = patience_s
        self.missed = False
        """Whether another one did not come in time. From then on nobody is waited for."""

    def before(self, step: int) -> None:
        """Comes back when all have called it for this step."""
        if self.missed or not self._others:
            return
        name = f"before_{step}"
        (self._own / name).touch()
        until = time.monotonic() + self._patience_s
        while not all((other / name).exists() for other in self._others):
            if time.monotonic() > until:
                self.missed = True
                return
            time.sleep(LOOKS_EVERY_S)


def meeting(own: Path, environment: Mapping[str, str] = os.environ) -> Meeting:
    """Of the ranks whose folders stand beside a rank's own one, by what torchrun sets."""
    together = group(environment)
    if together is None or own.name != together.own.name:
        return Meeting(own)
    return Meeting(
        own, [own.parent / together.of(rank).name for rank in range(together.local_size) if rank != together.local_rank]
    )
