"""Where a step begins and ends: at the end of the optimizer's `step`.

Step N lies between the end of optimizer step N-1 and the end of optimizer step N. Where several optimizers take turns,
the first that steps twice sets the pace.
"""

import sys
from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from undertorch.steps.record.phases import Phases
from undertorch.steps.record.places import Places
from undertorch.steps.record.storages import Storages
from undertorch.steps.record.tape import Cut, Mark, Tape


class Boundaries:
    """Watches every optimizer, and cuts the step that is wanted."""

    def __init__(
        self, wanted: int, tape: Tape, storages: Storages, phases: Phases, places: Places, found: Callable[[Cut], None]
    ) -> None:
        """`found` is told of the step of that number the moment it is complete."""
        self._wanted = wanted
        self._tape = tape
        self._storages = storages
        self._phases = phases
        self._places = places
        self._found = found
        self._pace: int | None = None
        self._firsts: dict[int, Mark] = {}
        self._start: Mark | None = None
        self._last: tuple[Mark, int] | None = None
        self.steps = 0
        """How many are complete."""

    def follow(self) -> None:
        """Registers torch's global optimizer hooks. Call once."""
        register_optimizer_step_pre_hook(self._begins)
        register_optimizer_step_post_hook(self._ends)

    def last(self) -> tuple[int, Cut] | None:
        """The last complete step and its number, for a script that ended too early; None where no optimizer stepped.

        The first step is cut at its first forward: what comes before it (building the model, moving it) is no part of
        training.
        """
        if self._last is not None:
            return self.steps, self._tape.cut(*self._last)
        if not self._firsts:
            return None
        end = next(iter(self._firsts.values())).op
        return 1, self._tape.cut(self._tape.first_forward(), end)

    def _begins(self, optimizer: Any, arguments: Any, named: Any) -> None:
        self._phases.updates.append(self._places.look(sys._getframe(1)))

    def _ends(self, optimizer: Any, arguments: Any, named: Any) -> None:
        self._phases.updates.pop()
        now = Mark(op=self._tape.next, live_bytes=self._storages.live_bytes)
        if self._pace is None and id(optimizer) not in self._firsts:
            self._firsts[id(optimizer)] = now
            if self._wanted == 1:
                self.steps = 1
                self._found(self._tape.cut(self._tape.first_forward(), now.op))
            return
        if self._pace is None:
            self._pace, self._start, self.steps = id(optimizer), self._firsts[id(optimizer)], 1
        if id(optimizer) == self._pace and self._start is not None:
            self._complete(self._start, now)

    def _complete(self, start: Mark, now: Mark) -> None:
        self.steps += 1
        self._tape.forget(start.op)
        if self.steps == self._wanted:
            self._found(self._tape.cut(start, now.op))
        self._last = (start, now.op)
        self._start = now
