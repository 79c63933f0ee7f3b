"""Values that a script asks of a fake tensor: what is answered, so that it goes on, and that it was answered.

No values are computed. One rule answers every question alike: each element of a fake tensor is taken to be 1, unless
something better is known of it (facts.py: it was filled with a number, or compared with one). So a loss is 1.0,
`loss.item() < best` and `loss < best` agree, nothing is NaN, and no division by a count fails. Where a shape hangs on
values (`nonzero`, a boolean index), every element is taken to be meant, or the share that even choices among several
would give (a mixture of experts).
"""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from undertorch.records import Where
from undertorch.steps.record.calls import Answer, Call
from undertorch.steps.record.facts import Fact, Facts, Number
from undertorch.steps.record.loops import waits
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.places import Places

UNCOMPUTED = "without a GPU no values are computed"


SHOWN = (
    "a tensor of the GPU is turned into text: its copy to the host is recorded, and none of the small kernels that a"
    " GPU runs besides to lay the text out."
)
MOST_TRUTHS = 10_000
"""Of questions whether something is true, asked at one line in a `while` between two backwards: so many make an endless
loop.
"""
MOST_VALUES = 200_000
"""Of questions for a value, which scripts ask more often (each token of a batch)."""
MOST_IN_A_FOR = 2_000_000
"""Of questions in a `for`, which ends by itself unless it goes through something endless: each row of a data set."""


class EndlessLoop(RuntimeError):
    """A script waits for a value that no computation will bring."""

    def __init__(self, file: str, line: int, count: int) -> None:
        place = f"{file}:{line}"
        super().__init__(
            f"{place} asked {count:,} times for a value without a step, and {UNCOMPUTED}: a loop there never ends."
        )
        self.remedy = f"Pass --assume {place}=VALUE with a value that ends the loop (true, false or a number)."


class Values:
    """Answers what is asked of fake tensors, and notes each answer."""

    def __init__(
        self,
        facts: Facts,
        notes: Notes,
        places: Places,
        given: Mapping[tuple[str, int], Number],
        script: str | None,
    ) -> None:
        """`given`: the user's own answers by file and line. `script`: the file whose lines need no name."""
        self._facts = facts
        self._notes = notes
        self._places = places
        self._given = given
        self._script = script
        self.unused = set(given)
        """Places of the user's answers at which nothing was asked so far."""
        self._asked: Counter[Where | None] = Counter()
        """How often a value was asked for at a line since the last backward."""
        self._ending: set[Where] = set()
        """Lines that many were asked for at, in loops that end by themselves."""

    def backward_started(self) -> None:
        """What was asked before it was no endless loop."""
        self._asked.clear()

    def fact(self, tensor: torch.Tensor) -> Fact | None:
        """What is known of a tensor."""
        return self._facts.of(tensor)

    def value(self, tensor: torch.Tensor) -> Number:
        """What each element of a tensor is taken to be."""
        return self._facts.value(tensor)

    def learn(self, tensor: torch.Tensor, value: Number) -> None:
        """Each element of a tensor is taken to be this."""
        self._facts.assume(tensor, value)

    def count(self, mask: torch.Tensor, call: Call) -> tuple[int, tuple[str, ...]]:
        """How many elements of a mask are true, and what was assumed for it."""
        if not isinstance(mask, FakeTensor):
            return int(mask.count_nonzero()), ()
        fact = self._facts.of(mask)
        if fact is not None and fact.value is not None and fact.certain:
            return (mask.numel() if fact.value else 0), ()
        share = 1.0 if fact is None or fact.share is None else fact.share
        count = self.given(call, round(mask.numel() * share))
        of = "all" if count == mask.numel() else f"{count} of"
        what = f"which elements meet a condition is asked for, and {UNCOMPUTED}; {of} {mask.numel()} were taken"
        return count, (self.assume(what, "COUNT", call),)

    def given(self, call: Call, answer: Any) -> Any:
        """The user's own answer at the line of a call, as the type that is asked for; `answer` where there is none."""
        place = ("", 0) if call.where is None else (call.where.file, call.where.line)
        if place not in self._given:
            return answer
        self.unused.discard(place)
        return type(answer)(self._given[place])

    def assume(self, what: str, value: str | None, call: Call) -> str:
        """Notes an assumption; answers its sentence. `value` stands for what the user may answer instead; None:
        nothing.
        """
        where = call.where
        how = ""
        if where is not None and value is not None:
            place = f"{where.line}" if where.file == self._script else f"{where.file}:{where.line}"
            how = f" Pass --assume {place}={value} for another answer."
        self._notes.note(f"{what}.{how}", where)
        return f"{what}."

    def scalar(self, call: Call) -> Answer:
        """`tensor.item()`, and with it `float()`, `int()`, `bool()` and `if tensor:`."""
        tensor = call.args[0]
        self._count_question(call, tensor.dtype is torch.bool)
        believed = self._facts.value(tensor)
        value = self.given(call, _as(tensor.dtype, believed))
        if self._facts.certain(tensor):
            return Answer(result=value)
        if tensor.dtype is torch.bool:
            taken, other = str(value).lower(), str(not value).lower()
            what = f"a tensor's truth is asked for, and {UNCOMPUTED}; {taken} was answered, so one arm was not taken"
            return Answer(result=value, assumed=(self.assume(what, other, call),))
        given = call.where is not None and (call.where.file, call.where.line) in self._given
        made_up = "" if given else ", which is made up"
        what = f"a tensor's value is asked for, and {UNCOMPUTED}; {value} was answered{made_up}"
        return Answer(result=value, assumed=(self.assume(what, "VALUE", call),))

    def _count_question(self, call: Call, truth: bool) -> None:
        """Ends a loop whose end hangs on a value that never changes. Raises EndlessLoop."""
        where = call.where
        self._asked[where] += 1
        most = MOST_IN_A_FOR if where in self._ending else MOST_TRUTHS if truth else MOST_VALUES
        if where is None or self._asked[where] <= most:
            return
        if where in self._ending or waits(sys._getframe(1), lambda file: self._places.name(file) is not None):
            raise EndlessLoop(where.file, where.line, self._asked[where] - 1)
        self._ending.add(where)

    def each(self, tensor: torch.Tensor, where: Where | None, how: str) -> Any:
        """The value that stands for each element of a tensor that is turned into a list or an array."""
        value = _as(tensor.dtype, self._facts.value(tensor))
        if not self._facts.certain(tensor):
            many = tensor.numel() != 1
            asked = f"{tensor.numel()} values are" if many else "a value is"
            answered = f"each was answered as {value}" if many else f"{value} was answered, which is made up"
            self._notes.note(f"{asked} asked for by {how}, and {UNCOMPUTED}; {answered}.", where)
        return value

    def shown(self, where: Where | None) -> None:
        """A tensor is turned into text: what is recorded of that is less than what a GPU runs for it."""
        self._notes.note(SHOWN, where)


def _as(dtype: torch.dtype, value: Number) -> Any:
    """A number as `item()` returns it for a dtype."""
    if dtype.is_complex:
        return complex(value)
    return bool(value) if dtype is torch.bool else float(value) if dtype.is_floating_point else int(value)
