"""Several processes that train together, each started by torchrun as `undertorch see …`: each measures its own, and the
first on the machine reads them all.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from undertorch.steps.measure import exchange
from undertorch.steps.measure.exchange import Measured
from undertorch.steps.record.errors import RecordError

PATIENCE_S = 120.0
"""For which the first waits for the others, after it is done itself."""

LOOKS_EVERY_S = 0.2

DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The processes of one machine that train together."""

    rank: int
    """Of this process among all."""
    local_rank: int
    """Among those of this machine."""
    local_size: int
    folder: Path
    """Of all of this machine."""

    @property
    def own(self) -> Path:
        """Where this process leaves what it measured."""
        return self.of(self.local_rank)

    def of(self, local_rank: int) -> Path:
        """Where a process of this machine does."""
        return self.folder / f"rank_{local_rank}"


def group(environment: Mapping[str, str] = os.environ) -> Group | None:
    """By what torchrun sets; None where this process trains alone."""
    try:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        local_rank = int(environment.get("LOCAL_RANK", rank))
        local_size = int(environment.get("LOCAL_WORLD_SIZE", size))
    except (KeyError, ValueError):
        return None
    if size < 2:
        return None
    # torchrun's agent is the parent of all of them, and of no other run's.
    folder = Path(tempfile.gettempdir()) / f"undertorch-ranks-{os.getppid()}"
    return Group(rank=rank, local_rank=local_rank, local_size=local_size, folder=folder)


def failed(one: Group, error: RecordError) -> None:
    """Tells the first that nothing is to be waited for."""
    exchange.write(one.own, Measured(error=type(error).__name__, message=str(error), rank=one.rank))
    done(one)


def done(one: Group) -> None:
    """Tells the first that this process has no more use for its folder."""
    (one.own / DONE).touch()


def gathered(one: Group, progress: Callable[[str], None] | None = None) -> tuple[tuple[Path, Measured], ...]:
    """What every process of the machine measured, in the order of their ranks. Raises RecordError where one failed, or
    is not done in time.
    """
    if progress:
        progress(f"waiting for {one.local_size - 1} other ranks")
    until = time.monotonic() + PATIENCE_S
    found: list[tuple[Path, Measured]] = []
    for local_rank in range(one.local_size):
        folder = one.of(local_rank)
        while not (folder / DONE).exists():
            if time.monotonic() > until:
                raise RecordError(f"rank {local_rank} of this machine did not end within {PATIENCE_S:.0f} s of this.")
            time.sleep(LOOKS_EVERY_S)
        measured = exchange.read(folder)
        if measured is None:
            raise RecordError(f"rank {local_rank} of this machine handed nothing over.")
        if measured.error is not None:
            raise RecordError(f"rank {measured.rank}: {measured.message}")
        found.append((folder, measured))
    return tuple(found)
