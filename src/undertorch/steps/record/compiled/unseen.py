"""Functions of ours that run while compiled code does."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torch._C._dynamo.eval_frame import set_eval_frame

P = ParamSpec("P")
T = TypeVar("T")


def unseen(function: Callable[P, T]) -> Callable[P, T]:
    """A function that Dynamo, which looks at every frame below a compiled call, leaves alone with all that it calls."""
    switch: Any = set_eval_frame

    @wraps(function)
    def left_alone(*arguments: P.args, **named: P.kwargs) -> T:
        before = switch(None)
        try:
            return function(*arguments, **named)
        finally:
            switch(before)

    return left_alone
