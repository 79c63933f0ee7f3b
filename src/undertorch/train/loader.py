"""Which tokens a step trains on: a function of seed and place alone, whatever happened before.

The training text is cut into windows of one row each. An epoch is a shuffle of them that seed and number of the epoch
decide; each begins its windows at another token, so that cuts fall elsewhere. A place is the number of windows that all
processes together have taken since the beginning. It is all that a checkpoint has to keep, and it means the same on
another number of GPUs.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from undertorch.train.errors import BadText
from undertorch.train.tokens import Array, Text, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Of a microbatch of one process."""

    tokens: Array
    """int64, (batch, context + 1): a row and its last target."""
    places: tuple[int, ...]
    """Of each row, the place of its first token in the text."""
    epoch: int
    """Of the first row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Rows of the training text, for one of `world` processes."""

    tokens: Tokens
    context: int
    batch: int
    seed: int
    rank: int = 0
    world: int = 1

    @property
    def windows(self) -> int:
        """Of an epoch."""
        return max((len(self.tokens) - 1) // self.context - 1, 1)

    def rows(self, place: int) -> Rows:
        """The rows of this process's microbatch, where all processes' microbatches begin at `place`."""
        first = place + self.rank * self.batch
        places = tuple(self.begin(window) for window in range(first, first + self.batch))
        rows = [self.tokens.window(begin, self.context + 1) for begin in places]
        return Rows(tokens=np.stack(rows), places=places, epoch=first // self.windows)

    def begin(self, window: int) -> int:
        """The place in the text of a window's first token."""
        epoch, number = divmod(window, self.windows)
        offset, order = shuffled(self.seed, epoch, self.windows, len(self.tokens) - 1 - self.windows * self.context)
        return offset + int(order[number]) * self.context


@lru_cache(maxsize=4)
def shuffled(seed: int, epoch: int, windows: int, spare: int) -> tuple[int, Array]:
    """Where an epoch's first window begins, and the order of its windows."""
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    return int(random.integers(0, spare + 1)), random.permutation(windows)


def validation_rows(tokens: Tokens, context: int, first: int, count: int) -> Array:
    """Rows `first` to `first + count` of all held-out text in its order; every token but the first is once a target.

    The last row is filled up with -1, which is no token: its targets are left out of the loss.
    """
    made = np.full((count, context + 1), -1, dtype=np.int64)
    for row in range(count):
        begin = (first + row) * context
        length = min(context + 1, len(tokens) - begin)
        if length > 1:
            made[row, :length] = tokens.window(begin, length)
    return made


def validation_count(tokens: Tokens, context: int) -> int:
    """Rows of all held-out text."""
    return -(-(len(tokens) - 1) // context)


def check_length(text: Text, context: int, source: str) -> None:
    """Raises BadText where there is not one row for training and one for validation."""
    training, validation = len(text.training), len(text.validation)
    if training < 2 * context + 1 or validation < 2:
        raise BadText(
            f"{source} is too short: it has {training:,} tokens for training and {validation:,} for validation, and "
            f"rows of {context} tokens need {2 * context + 1:,} and 2; give more text, or a smaller --context."
        )
