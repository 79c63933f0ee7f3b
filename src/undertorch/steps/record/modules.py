"""Which nn.Module is running, and under which path: as `named_modules()` of the outermost one names it."""

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from undertorch.steps.record.compiled.unseen import unseen
from undertorch.steps.record.patching import put

Arguments = tuple[object, ...]
Named = dict[str, object]


class Modules:
    """Follows the calls of nn.Modules; each thread has its own stack of calls."""

    def __init__(
        self, called: Callable[[nn.Module, Arguments, Named], None], root_called: Callable[[Arguments, Named], None]
    ) -> None:
        """`called` is told of each call; `root_called` before it of each that is no part of another's."""
        self._called = called
        self._root_called = root_called
        self._paths: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._parameters: dict[int, str] = {}
        self._calls = threading.local()

    def follow(self) -> None:
        """Wraps the one function through which torch runs every module's forward. Call once."""
        call: Any = nn.Module._call_impl

        def followed(module: nn.Module, /, *arguments: object, **named: object) -> object:
            self._enter(module, arguments, named)
            try:
                return call(module, *arguments, **named)
            finally:
                self._stack.pop()

        put(nn.Module, "_call_impl", followed)

    @property
    def _stack(self) -> list[nn.Module]:
        """The modules whose forward runs on this thread, the innermost last."""
        if not hasattr(self._calls, "stack"):
            self._calls.stack = []
        stack: list[nn.Module] = self._calls.stack
        return stack

    def innermost(self) -> nn.Module | None:
        """The module whose forward runs on this thread; None outside of any."""
        stack = self._stack
        return stack[-1] if stack else None

    def path(self) -> str | None:
        """Path of the innermost one; of an outermost module, which has none, the name of its class."""
        module = self.innermost()
        return None if module is None else self._paths.get(module) or type(module).__name__

    def trains(self) -> bool:
        """Whether a module runs whose outermost call began with gradients on; a part under `no_grad` counts too."""
        return bool(self._stack) and self._calls.trains

    def parameter(self, parameter: torch.Tensor) -> str | None:
        """Path of a parameter; None where no module that was called holds it."""
        return self._parameters.get(id(parameter))

    @unseen
    def _enter(self, module: nn.Module, arguments: Arguments, named: Named) -> None:
        stack = self._stack
        if module not in self._paths:
            self._name(stack[0] if stack else module)
            self._paths.setdefault(module, "")  # not registered as a child of anyone
        if not stack:
            for path, parameter in module.named_parameters():
                self._parameters.setdefault(id(parameter), _plain(path))
            self._calls.trains = torch.is_grad_enabled()
            self._root_called(arguments, named)
        self._called(module, arguments, named)
        stack.append(module)

    def _name(self, root: nn.Module) -> None:
        for path, module in root.named_modules():
            self._paths[module] = _plain(path)
        self._parameters.update((id(parameter), _plain(path)) for path, parameter in root.named_parameters())


def _plain(path: str) -> str:
    """Without the wrapper that torch.compile puts around a model."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")
