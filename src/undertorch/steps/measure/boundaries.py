"""Where a step ends: as the recorder cuts it (steps/record/boundaries.py), told by torch's own hooks alone.

Step N ends with the N-th step() of the optimizer that steps in every turn. A script that makes no optimizer is cut at
the end of each backward: what it updates by hand then stands at the head of the step that follows.
"""

import sys
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from undertorch.steps.record.boundaries import steps_running
from undertorch.steps.record.patching import put

BY_BACKWARD = "the script makes no optimizer: a step was taken to end with each backward."


class Boundaries:
    """Counts steps."""

    def __init__(
        self, ended: Callable[[int], None], updates: Callable[[Any], None], updated: Callable[[Any], None]
    ) -> None:
        """`ended` is told the number of each step that is over; `updates` and `updated` the frame in which an optimizer
        begins and ends to step."""
        self._ended = ended
        self._updates = updates
        self._updated = updated
        self._counts: dict[int, int] = {}
        self._pace: int | None = None
        self._backwards = 0
        self._running = 0
        """Steps of optimizers that have begun and not ended, one inside the other, and those that an exception left."""
        self.optimizers = False
        """Whether the script has made one."""
        self.ends = 0
        """How many steps are over."""

    def follow(self) -> None:
        """Registers torch's global optimizer hooks. Call once."""
        register_optimizer_step_pre_hook(self._begins)
        register_optimizer_step_post_hook(self._done)
        make = Optimizer.__init__

        def made(optimizer: Any, *arguments: Any, **named: Any) -> None:
            self.optimizers = True
            make(optimizer, *arguments, **named)

        put(Optimizer, "__init__", made)

    def backward_ended(self) -> None:
        """An outermost run of the autograd engine is over."""
        self._backwards += 1
        if not self.optimizers:
            self._tell(self._backwards)

    def _begins(self, optimizer: Any, arguments: Any, named: Any) -> None:
        self._running += 1
        self._updates(sys._getframe(1))

    def _done(self, optimizer: Any, arguments: Any, named: Any) -> None:
        frame = sys._getframe(1)
        self._updated(frame)
        self._running -= 1
        if self._running > 0:  # only then the walk up the frames, a cost of the steps that are timed
            self._running = steps_running(frame) - 1
            if self._running > 0:
                return  # a class's own step() that calls that of the class below it: one step
        count = self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        # The first to step is taken for the pace until another is ahead of it.
        if self._pace is None or count > self._counts[self._pace]:
            self._pace = id(optimizer)
        if id(optimizer) == self._pace:
            self._tell(count)

    def _tell(self, number: int) -> None:
        if number > self.ends:
            self.ends = number
            self._ended(number)
