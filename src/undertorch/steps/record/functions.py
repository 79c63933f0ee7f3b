"""Custom autograd Functions: their forward runs with gradients off, and belongs to the training all the same. What
their backward runs stands at the line that called them.
"""

import sys
import threading
from typing import Any

import torch

from undertorch.steps.record.backward import Backward
from undertorch.steps.record.patching import put
from undertorch.steps.record.places import Places
from undertorch.steps.record.tape import Tape


class Functions:
    """Follows the calls of `torch.autograd.Function.apply`."""

    def __init__(self, backward: Backward, tape: Tape, places: Places) -> None:
        self._backward = backward
        self._tape = tape
        self._places = places
        self._calls = threading.local()

    def follow(self) -> None:
        """Wraps the one method through which every custom Function is called. Call once."""
        # A classmethod up to torch 2.13, from 2.14 on one of C's: both are bound by __get__.
        apply = torch.autograd.Function.__dict__["apply"]

        def followed(cls: type, *arguments: Any, **named: Any) -> Any:
            before, first = self.gradients(), self._tape.next
            self._calls.gradients = before or torch.is_grad_enabled()
            # Under torch.func's transforms it is called a second time, by another name, once they are peeled off.
            node = None
            if not torch._C._are_functorch_transforms_active():
                place = self._places.look(sys._getframe(1)) if torch.is_grad_enabled() else None
                node = self._backward.function_called(place)
            try:
                return apply.__get__(None, cls)(*arguments, **named)
            finally:
                self._calls.gradients = before
                if node is not None and self._tape.next > first:
                    self._backward.function_ran(node, first)

        followed.__name__ = "apply"  # by which Dynamo knows it
        put(torch.autograd.Function, "apply", classmethod(followed))

    def gradients(self) -> bool:
        """Whether a custom Function's forward runs on this thread that was called with gradients on."""
        return bool(getattr(self._calls, "gradients", False))
