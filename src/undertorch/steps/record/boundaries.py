"""Where a step begins and ends.

Step N lies between the end of optimizer step N-1 and the end of optimizer step N. Where several optimizers take turns,
the first that steps twice sets the pace. A script that makes no optimizer updates by hand (`p -= lr * p.grad`): its
step ends with the last write into what received a gradient. Where nothing is updated at all, it ends with the backward.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.optim import Optimizer, optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from undertorch.steps.record.patching import put, undone_by
from undertorch.steps.record.phases import Phases
from undertorch.steps.record.places import Places
from undertorch.steps.record.storages import Storages
from undertorch.steps.record.tape import Cut, Mark, Tape

BY_HAND = "the script makes no optimizer: a step was taken to end where it last writes into what received a gradient."
BY_BACKWARD = "nothing updates what received a gradient: a step was taken to end with each backward."


Found = Callable[[Cut, str | None], bool]
"""Takes a step, and what was taken to end it where no optimizer did; answers whether the next is wanted, too."""


class Boundaries:
    """Watches what ends a step, and cuts the step that is wanted."""

    def __init__(
        self,
        wanted: int,
        tape: Tape,
        storages: Storages,
        phases: Phases,
        places: Places,
        found: Found,
        reached: Callable[[int], None],
    ) -> None:
        """`found` is told of the step of that number the moment it is complete, `reached` the number of each before."""
        self._tape = tape
        self._storages = storages
        self._phases = phases
        self._places = places
        self._optimizers = False
        self._pace: int | None = None
        self._firsts: dict[int, Mark] = {}
        self._steps = Ends(wanted, tape, found, reached, None)
        self._by_hand = Ends(wanted, tape, found, reached, BY_HAND)
        self._written: Mark | None = None
        """After the last write by hand since the last backward."""
        self._backwards: list[Mark] = []
        """Ends of the last three."""
        self._backwards_before = 0
        self.in_backward: Callable[[], bool] = lambda: False
        """Whether the autograd engine runs."""

    def follow(self) -> None:
        """Registers torch's global optimizer hooks. Call once."""
        undone_by(register_optimizer_step_pre_hook(self._begins).remove)
        undone_by(register_optimizer_step_post_hook(self._ends).remove)
        make = Optimizer.__init__

        def made(optimizer: Any, *arguments: Any, **named: Any) -> None:
            self._optimizers = True
            make(optimizer, *arguments, **named)

        put(Optimizer, "__init__", made)

    def written_by_hand(self) -> None:
        """The Op that was recorded last wrote into what received a gradient, outside of any optimizer."""
        self._written = self._now()

    def gradient_written(self) -> None:
        """The Op that was recorded last wrote into a gradient, such as `p.grad.zero_()`: right after an update by hand
        it is a part of it.
        """
        if self._written is not None and not self._phases.forward_begun:
            self._written = self._now()

    def backward_started(self) -> None:
        """What was written by hand before it ended a step."""
        if self._written is not None and not self._optimizers:
            self._by_hand.ends(self._written)
        self._written = None

    def backward_ended(self) -> None:
        """Ends a step where nothing else does."""
        self._backwards.append(self._now())
        if len(self._backwards) > 3:
            self._backwards_before += 1
            del self._backwards[0]
        if len(self._backwards) > 1 and not self._optimizers and self._by_hand.steps == 0:  # the only one is the step
            self._tape.forget(self._backwards[0].op)

    def last(self) -> tuple[int, Cut, str | None] | None:
        """The last complete step, its number, and what was taken to end it if no optimizer did: for a script that ended
        too early. None where it had no backward.

        The first step is cut at its first forward: what comes before it (building the model, moving it) is no part of
        training.
        """
        if (last := self._steps.last()) is not None:
            return last
        if self._firsts:
            return 1, self._tape.cut(self._tape.first_forward(), next(iter(self._firsts.values())).op), None
        if self._written is not None:
            self._by_hand.ends(self._written)
        if (last := self._by_hand.last()) is not None:
            return last
        return self._last_backward()

    def _last_backward(self) -> tuple[int, Cut, str] | None:
        if not self._backwards:
            return None
        number = self._backwards_before + len(self._backwards)
        start = self._backwards[-2] if len(self._backwards) > 1 else self._tape.first_forward()
        return number, self._tape.cut(start, self._backwards[-1].op), BY_BACKWARD

    def _now(self) -> Mark:
        return Mark(op=self._tape.next, live_bytes=self._storages.live_bytes)

    def _begins(self, optimizer: Any, arguments: Any, named: Any) -> None:
        frame = sys._getframe(1)
        # Those that an exception left never said that they ended.
        self._phases.updates_go_on(steps_running(frame) - 1)
        self._phases.update_begins(self._places.look(frame), self.in_backward())

    def _ends(self, optimizer: Any, arguments: Any, named: Any) -> None:
        self._phases.update_ends()
        if steps_running(sys._getframe(1)) > 1:
            return  # a class's own step() that calls that of the class below it: one step
        if self._pace is None and id(optimizer) not in self._firsts:
            self._firsts[id(optimizer)] = self._now()
            self._steps.first(self._now())
            return
        if self._pace is None:
            self._pace = id(optimizer)
            self._steps.begin(self._firsts[id(optimizer)])
        if id(optimizer) == self._pace:
            self._steps.ends(self._now())


def steps_running(frame: FrameType | None) -> int:
    """How many steps of optimizers a frame is inside of, one inside the other."""
    count = 0
    while frame is not None:
        code = frame.f_code
        count += code.co_filename == optimizer.__file__ and code.co_qualname == STEP
        frame = frame.f_back
    return count


STEP = "Optimizer.profile_hook_step.<locals>.wrapper"
"""The function that torch puts around every step()."""


class Ends:
    """Counts the ends of steps of one kind, and cuts the step that is wanted."""

    def __init__(
        self, wanted: int, tape: Tape, found: Found, reached: Callable[[int], None], taken: str | None
    ) -> None:
        """`taken`: what is taken to end a step; None: an optimizer ends it."""
        self._wanted = wanted
        self._tape = tape
        self._found = found
        self._reached = reached
        self._taken = taken
        self._start: Mark | None = None
        self._last: tuple[Mark, int] | None = None
        self.steps = 0
        """How many are complete."""

    def first(self, now: Mark) -> None:
        """The first step, which has no end before it, ends perhaps: it is cut where that is the one wanted."""
        if self._wanted == 1:
            self.steps = 1
            self._found(self._cut(self._tape.first_forward(), now.op), self._taken)

    def begin(self, start: Mark) -> None:
        """The first step ended there."""
        self._start, self.steps = start, 1

    def ends(self, now: Mark) -> None:
        """A step ends."""
        if self._start is None:
            self._last = (self._tape.first_forward(), now.op)
            self.first(now)
            self.begin(now)
            return
        self.steps += 1
        self._reached(self.steps)
        self._tape.forget(self._start.op)
        if self.steps == self._wanted and self._found(self._cut(self._start, now.op), self._taken):
            self._wanted += 1
        self._last = (self._start, now.op)
        self._start = now

    def last(self) -> tuple[int, Cut, str | None] | None:
        """The last complete step, its number, and what was taken to end it."""
        return None if self._last is None else (self.steps, self._cut(*self._last), self._taken)

    def _cut(self, start: Mark, end: int) -> Cut:
        return self._tape.cut(start, end, by_hand=self._taken is not None)
