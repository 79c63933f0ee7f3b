"""An op that is to run on fake tensors, and what comes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from undertorch.records import Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One op with its arguments, as torch hands it to a dispatch mode."""

    func: torch._ops.OpOverload
    types: Sequence[type]
    args: Sequence[Any]
    named: Mapping[str, Any]
    where: Where | None
    """The user's line."""

    def arg(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its position or name."""
        return self.args[position] if position < len(self.args) else self.named.get(name, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an op returns to the script, and what was assumed for it, one sentence each."""

    result: Any
    assumed: tuple[str, ...] = ()
