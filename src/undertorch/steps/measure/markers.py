"""Puts the markers in place for as long as the profiler runs, and takes them out again."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch._C._profiler import _RecordFunctionFast

from undertorch.steps.measure.compiled import Regions
from undertorch.steps.measure.marks import Marking, Marks, marked, own_op, range_of
from undertorch.steps.measure.own_ops import follow_own_ops
from undertorch.steps.record.modules import Modules
from undertorch.steps.record.patching import changes, put, put_back

PAST_ATEN: tuple[tuple[Any, str], ...] = (
    (torch.cuda, "synchronize"),
    (torch.cuda.Stream, "synchronize"),
    (torch.cuda.Event, "synchronize"),
)
"""What waits without a function that a mode sees."""

COLLECTIVES = (
    *("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single"),
    *("barrier", "batch_isend_irecv", "broadcast", "gather", "irecv", "isend", "recv", "reduce", "reduce_scatter"),
    *("reduce_scatter_tensor", "scatter", "send"),
)
"""Functions of torch.distributed that launch something."""

CALL = "_call_impl"
"""The function through which torch runs a module's forward."""


class Markers:
    """In place or not. While compiled code runs they step aside."""

    def __init__(self, marks: Marks, modules: Modules, on_gpu: bool, replayed: Callable[[Any], int | None]) -> None:
        """`replayed` tells which of the captured graphs one is; None: it was not seen when it was captured."""
        self._marks = marks
        self._modules = modules
        self._on_gpu = on_gpu
        self._replayed = replayed
        self.marking = Marking(marks)
        self._regions = Regions(self._compiled_begins, self._compiled_ends)
        self._region = ExitStack()
        self._before: int | None = None
        self._call_impl: Any = None

    @property
    def there(self) -> bool:
        """Whether they are in place."""
        return self._before is not None

    def put(self) -> None:
        """From here on each call of torch has its range."""
        self._before = changes()
        marks = self._marks
        if self._on_gpu:
            for home, name in PAST_ATEN:
                put(home, name, marked(marks, getattr(home, name), "wait"))
            self._follow_replays()
        self._follow_functions()
        self._follow_collectives()
        follow_own_ops(partial(own_op, marks))
        jit = sys.modules.get("triton.runtime.jit")
        if jit is not None:
            put(jit.JITFunction, "run", marked(marks, jit.JITFunction.run, "triton"))
        self._call_impl = vars(nn.Module)[CALL]
        self._modules.follow()
        self._regions.follow()
        self.marking.enter()

    def take(self) -> None:
        """All is as it was before."""
        if self._before is None:
            return
        self.marking.leave()
        put_back(self._before)
        self._before = None

    def _follow_functions(self) -> None:
        """What a custom Function's backward runs stands at the line that called it."""
        apply: Any = vars(torch.autograd.Function)["apply"].__func__
        marks = self._marks

        def applied(cls: type, *arguments: Any, **named: Any) -> Any:
            place = marks.look(sys._getframe(1))
            if place.where is None or not torch.is_grad_enabled():
                return apply(cls, *arguments, **named)
            with _RecordFunctionFast(marks.other(place, "apply")):
                return apply(cls, *arguments, **named)

        put(torch.autograd.Function, "apply", classmethod(applied))

    def _follow_collectives(self) -> None:
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return
        from torch.distributed import distributed_c10d

        for name in COLLECTIVES:
            ranged = marked(self._marks, getattr(distributed_c10d, name), "collective")
            for home in (torch.distributed, distributed_c10d):
                put(home, name, ranged)

    def _follow_replays(self) -> None:
        replay = torch.cuda.CUDAGraph.replay
        marks, replayed = self._marks, self._replayed

        def ranged(graph: Any) -> None:
            number = replayed(graph)
            what = "replay" if number is None else f"replay {number}"
            with range_of(marks, sys._getframe(1), what):
                replay(graph)

        put(torch.cuda.CUDAGraph, "replay", ranged)

    def _compiled_begins(self, frame: FrameType) -> None:
        """Compiled code is about to run on this thread: it sees torch as it was when it was compiled."""
        if self.marking.active:
            self.marking.leave()
            self._region.callback(self.marking.enter)
        followed = vars(nn.Module)[CALL]
        setattr(nn.Module, CALL, self._call_impl)
        self._region.callback(setattr, nn.Module, CALL, followed)
        self._region.enter_context(range_of(self._marks, frame, "compiled"))

    def _compiled_ends(self) -> None:
        self._region.close()
