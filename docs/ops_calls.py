"""Every op's call as it stands in the code: signature with defaults, shapes and layouts, what is otherwise in torch."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any


def calls() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Each of undertorch.ops that takes tensors: its name, itself, and what is told of its arguments."""
    ops = importlib.import_module("undertorch.ops")
    catalogue = importlib.import_module("undertorch.ops.catalogue")
    for name in catalogue.NAMES:
        file = importlib.import_module(f"undertorch.ops.{name}")
        yield name, getattr(ops, name), file.ARGUMENTS
        if name == "adamw":
            yield "AdamW", ops.AdamW, importlib.import_module("undertorch.ops.adamw_optimizer").OPTIMIZER


def ops_calls() -> str:
    """An op, its call, what it takes, what is otherwise in torch: an entry of a list each."""
    call_of = importlib.import_module("undertorch.ops.calls").call_of
    return "\n".join(
        f"- `{name}{call_of(function)}`\\\n  {told.layout}.\\\n  *In torch:* {told.unlike_torch}."
        for name, function, told in calls()
    )
