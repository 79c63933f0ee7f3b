"""A kernel as an operator of torch: what a custom CUDA extension is, without a build."""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any

SHAPES: ContextVar[bool] = ContextVar("shapes", default=False)
"""Whether an operator is run for the shapes of what it answers."""


def torch_op(name: str, mutates: Iterable[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Registers a function that launches kernels as the operator `name` (`library::operator`) with torch.library.

    The function allocates its outputs with torch and launches on them; its annotations are the operator's schema
    (torch.library.custom_op), `mutates` names arguments that it writes to. It is its own rule for fake tensors: on
    these a launch does nothing. What it answers has torch's register_autograd and the rest.
    """

    def registered(function: Callable[..., Any]) -> Any:
        import torch

        @wraps(function)
        def shapes(*arguments: Any, **named: Any) -> Any:
            token = SHAPES.set(True)
            try:
                return function(*arguments, **named)
            finally:
                SHAPES.reset(token)

        op = torch.library.custom_op(name, function, mutates_args=tuple(mutates))
        op.register_fake(shapes)
        return op

    return registered


def without_values(arguments: Sequence[object]) -> bool:
    """Whether a tensor among them is fake, or an operator is asked for shapes alone (on meta): there are no values."""
    if SHAPES.get():
        return True
    tensors = [a for a in arguments if hasattr(a, "untyped_storage")]
    if not tensors:
        return False
    from torch._subclasses.fake_tensor import FakeTensor

    return any(isinstance(tensor, FakeTensor) for tensor in tensors)
