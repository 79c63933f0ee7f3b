"""A Triton kernel that Inductor wrote, which announces its launches instead of running."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from undertorch.records import Argument, Dim3, Value
from undertorch.steps.record.compiled.moved import Moved
from undertorch.steps.traces.names import told

WARP = 32
"""Threads, on each GPU of NVIDIA's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One launch."""

    kernel: str
    tensors: tuple[torch.Tensor, ...]
    arguments: Mapping[str, Any]
    """By the kernel's parameter names."""
    own: tuple[Argument, ...]
    """What is known of the launch itself, under names that no parameter has."""


class InductorKernel:
    """Stands for the tuner of one kernel."""

    def __init__(
        self,
        name: str,
        tuner: Any,
        moved: Moved | None,
        time_us: Callable[[tuple[Argument, ...]], float],
        launched: Callable[[Launched], None],
    ) -> None:
        """`time_us` predicts a launch by what is known of it; `launched` is told of each."""
        self._name = name
        self._tuner = tuner
        self._moved = moved
        self._time_us = time_us
        self._launched = launched
        self._chosen: Any = None

    def run(self, *values: Any, stream: int, **named: Any) -> None:
        """As Inductor's code calls it: the kernel's parameters but for its constants, then what its grid wants."""
        arguments = dict(zip(self._parameters(), values, strict=False)) | named
        if self._chosen is None:
            # On a GPU Inductor measures which is the fastest, once: the first where none is predicted to be faster.
            self._chosen = min(self._tuner.configs, key=lambda one: self._time_us(self._own(one, arguments)))
        self._launched(
            Launched(
                kernel=self._name,
                tensors=tuple(value for value in arguments.values() if isinstance(value, torch.Tensor)),
                arguments=arguments,
                own=self._own(self._chosen, arguments),
            )
        )

    def _parameters(self) -> list[str]:
        """As the tuner's launcher has them (runtime/triton_heuristics.py, _get_arg_lists)."""
        function, configuration = self._tuner.fn, self._tuner.configs[0]
        given = {*self._tuner.triton_meta["constants"], *configuration.kwargs}
        constants = {function.arg_names[index] for index in function.constexprs} & given
        names = [name for name in function.arg_names if name not in constants]
        return [*names, *self._tuner.inductor_meta.get("extra_launcher_args", ())]

    def _own(self, configuration: Any, arguments: Mapping[str, Any]) -> tuple[Argument, ...]:
        own: dict[str, Value] = {
            "<kernel>": self._name,
            "<kind>": str(told(self._name)[0]),
            "<grid>": self._grid(configuration, arguments),
            "<block>": (WARP * configuration.num_warps, 1, 1),
            "<configurations>": len(self._tuner.configs),
            "<read>": None if self._moved is None else self._moved.read,
            "<written>": None if self._moved is None else self._moved.written,
            "<flops>": None if self._moved is None else self._moved.flops,
        }
        return tuple(Argument(name=name, value=value) for name, value in own.items())

    def _grid(self, configuration: Any, arguments: Mapping[str, Any]) -> Dim3:
        from torch._inductor.runtime.triton_heuristics import GridExpr

        numbers = {name: value for name, value in arguments.items() if not isinstance(value, torch.Tensor)}
        expression = GridExpr.from_meta(self._tuner.inductor_meta, configuration)
        x, y, z = expression.eval_slow(numbers)
        return int(x), int(y), int(z)
