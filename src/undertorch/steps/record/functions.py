"""Custom autograd Functions: their forward runs with gradients off, and belongs to the training all the same."""

import threading
from typing import Any

import torch

from undertorch.steps.record.patching import put


class Functions:
    """Follows the calls of `torch.autograd.Function.apply`."""

    def __init__(self) -> None:
        self._calls = threading.local()

    def follow(self) -> None:
        """Wraps the one method through which every custom Function is called. Call once."""
        # A classmethod up to torch 2.13, from 2.14 on one of C's: both are bound by __get__.
        apply = torch.autograd.Function.__dict__["apply"]

        def followed(cls: type, *arguments: Any, **named: Any) -> Any:
            before = self.gradients()
            self._calls.gradients = before or torch.is_grad_enabled()
            try:
                return apply.__get__(None, cls)(*arguments, **named)
            finally:
                self._calls.gradients = before

        put(torch.autograd.Function, "apply", classmethod(followed))

    def gradients(self) -> bool:
        """Whether a custom Function's forward runs on this thread that was called with gradients on."""
        return bool(getattr(self._calls, "gradients", False))
