"""All that follows a run, in the process of the script: counts steps, times some, profiles some, and ends it."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from undertorch.steps.measure import compiled, exchange
from undertorch.steps.measure.boundaries import BY_BACKWARD, Boundaries
from undertorch.steps.measure.captures import Captures
from undertorch.steps.measure.clock import Clock
from undertorch.steps.measure.exchange import Measured, Request
from undertorch.steps.measure.machine import driver, gpu_name, rank, versions, world_size
from undertorch.steps.measure.markers import Markers
from undertorch.steps.measure.marks import Marks, range_of
from undertorch.steps.measure.meeting import meeting
from undertorch.steps.measure.plan import Plan
from undertorch.steps.record.boundaries import steps_running
from undertorch.steps.record.errors import RecorderFailed, RecordError
from undertorch.steps.record.modules import Modules
from undertorch.steps.record.phases import Phases
from undertorch.steps.record.places import Places
from undertorch.steps.record.samples import Samples

STEP = "ProfilerStep#"
"""Begins the name of the range around a step, as torch.profiler's own do."""

ENGINE = "_engine_run_backward"
"""The one function through which torch runs the autograd engine, in torch.autograd and torch.autograd.graph."""

MORE_STOPS = 3
"""Steps that a script may go on for after it was told to stop; then its process ends."""


class Stop(SystemExit):
    """Ends the script where it stands, as `sys.exit()` would: its `finally:` blocks and `with` blocks run."""


class Watch:
    """Follows a run; one in a process."""

    def __init__(self, request: Request, plan: Plan, places: Places, reached: Callable[[int], None]) -> None:
        self._request = request
        self._plan = plan
        self._meeting = meeting(Path(request.folder))
        self._places = places
        self._reached = reached
        self._on_gpu = not request.without_gpu
        self._clock = Clock(self._on_gpu)
        self._memory = Clock(self._on_gpu)
        """Of the profiled steps."""
        self._timed: tuple[float, ...] = ()
        self._phases = Phases()
        self._samples = Samples()
        self._counted: dict[int, int | None] = {}
        """Samples of each microbatch of the running step."""
        self._samples_of_steps: list[int | None] = []
        self._profiled: list[int] = []
        self._profiler: Any = None
        self._gpu_only: Any = None
        """The profiler that follows the GPU alone."""
        self._followed: tuple[int, ...] = ()
        """Steps that it followed."""
        self._range: Any = None
        self._depth = 0
        """Runs of the autograd engine, one inside the other."""
        self._stops = 0
        self._done = False
        modules = Modules(self._module_called, self._model_called)
        self._marks = Marks(places, modules, self._phases)
        self._captures = Captures(Path(request.folder))
        self._markers = Markers(self._marks, modules, self._on_gpu, self._captures.number)
        self._boundaries = Boundaries(self._ended, self._update_begins, self._update_ends)

    def follow(self) -> None:
        """Puts in place what counts steps: nothing else, until a step is profiled."""
        self._boundaries.follow()
        self._follow_engine()
        if self._on_gpu:
            self._captures.follow(self._markers)

    def stopped(self) -> bool:
        """Whether everything was measured and handed over."""
        return self._done

    def ended(self) -> None:
        """The script is over by itself: what was profiled until then is handed over, if it is a step."""
        if self._done:
            return
        if self._gpu_only is not None:
            self._gpu_only.stop()  # less than was planned, so it goes unread
        elif self._profiler is not None:
            self._stop_profiler()
        self._hand_over(ended_early=True)

    # Steps.

    def _ended(self, number: int) -> None:
        """A step is over. Called inside the script, in a hook of its optimizer's."""
        if self._done:
            self._stops += 1
            if self._stops > MORE_STOPS:
                leave()
            raise Stop(0)
        try:
            self._step_over(number)
        except Exception as error:
            raise RecorderFailed from error
        if self._done:
            raise Stop(0)

    def _step_over(self, number: int) -> None:
        self._reached(number)
        if self._gpu_only is not None:
            if number == self._plan.end:
                self._stop_gpu_only()
                self._hand_over(ended_early=False)
            return
        if self._profiler is not None:
            self._step_profiled(number)
        elif number > self._plan.clock:
            self._clock.tick()
        if number == self._plan.clock:
            self._clock.start()
        if number == self._plan.profiler:
            self._timed = self._clock.stop()
            self._start_profiler(number)
        if number == self._plan.last and not self._done:
            self._stop_profiler()
            if self._plan.end > number:
                self._start_gpu_only(number)
            else:
                self._hand_over(ended_early=False)

    def _step_profiled(self, number: int) -> None:
        self._range.__exit__(None, None, None)
        counted = list(self._counted.values())
        self._counted = {}
        if number >= self._plan.shown:
            self._profiled.append(number)
            known = [count for count in counted if count is not None]
            self._samples_of_steps.append(sum(known) if known and len(known) == len(counted) else None)
        if number < self._plan.last:
            self._begin_range(number + 1)

    def _refuse(self, message: str) -> None:
        self._done = True
        exchange.write(Path(self._request.folder), Measured(error=RecordError.__name__, message=message))

    def _begin_range(self, number: int) -> None:
        self._meeting.before(number)
        self._range = record_function(f"{STEP}{number}")
        self._range.__enter__()

    def _start_profiler(self, number: int) -> None:
        if torch.autograd.profiler._is_profiler_enabled:
            self._refuse(
                f"{self._request.script} runs torch's profiler itself in step {number + 1}, and there can be one at a"
                " time: switch its own off, or pass --step with a step that it does not profile."
            )
            return
        compiled.name_graphs()
        self._memory.watch_memory()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        self._profiler = profile(activities=activities, record_shapes=True, acc_events=True)
        self._profiler.start()
        self._markers.put()
        self._begin_range(number + 1)

    def _stop_profiler(self) -> None:
        self._markers.take()
        if self._on_gpu:
            torch.cuda.synchronize()
        self._memory.read_memory()
        self._profiler.stop()
        self._profiler.export_chrome_trace(str(Path(self._request.folder) / exchange.TRACE))

    def _start_gpu_only(self, number: int) -> None:
        """Without a call for each op and without markers. What runs in these steps are the launches of those before."""
        self._gpu_only = profile(activities=[ProfilerActivity.CUDA if self._on_gpu else ProfilerActivity.CPU])
        self._gpu_only.start()
        self._meeting.before(number + 1)

    def _stop_gpu_only(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()
        self._gpu_only.stop()
        self._gpu_only.export_chrome_trace(str(Path(self._request.folder) / exchange.GPU_ONLY))
        self._followed = tuple(range(self._plan.last + 1, self._plan.end + 1))

    def _hand_over(self, *, ended_early: bool) -> None:
        self._done = True
        compiled_calls = compiled.compiled_calls(self._places) if self._profiler is not None else {}
        marks = self._marks.all()
        wheres = [where for mark in marks for where in (mark.where, *mark.chain) if where is not None]
        wheres += [
            where for calls in compiled_calls.values() for call in calls for chain in call.wheres for where in chain
        ]
        files = sorted({where.file for where in wheres})
        timed = self._timed
        memory = self._clock if timed else self._memory
        exchange.write(
            Path(self._request.folder),
            Measured(
                script=self._request.script,
                arguments=self._request.arguments,
                steps=tuple(self._profiled),
                warm_up=self._plan.clock,
                timed_us=timed,
                peak_bytes=memory.peak_bytes,
                start_bytes=memory.start_bytes,
                samples=tuple(self._samples_of_steps),
                marks=marks,
                compiled=compiled_calls,
                sources={name: text for name in files if (text := self._places.source(name)) is not None},
                gpu_name=gpu_name() if self._on_gpu else None,
                driver=driver() if self._on_gpu else None,
                versions=versions(),
                rank=rank(),
                world_size=world_size(),
                boundary=None if self._boundaries.optimizers else BY_BACKWARD,
                ended_early=ended_early,
                steps_made=self._boundaries.ends,
                gpu_only=self._followed,
                apart=self._meeting.missed,
            ),
        )

    # What the rules of phases ask for.

    def _follow_engine(self) -> None:
        run = torch.autograd.graph._engine_run_backward

        def followed(*arguments: Any, **named: Any) -> Any:
            self._depth += 1
            if self._depth == 1:
                self._phases.backward_started()
            try:
                if not self._markers.there:
                    return run(*arguments, **named)
                # The threads of the engine take over the modes of the thread that calls it, and inside the call of a
                # torch function (`Tensor.backward` is one) that thread has not got ours.
                with range_of(self._marks, sys._getframe(1), "backward"), self._markers.marking.on():
                    return run(*arguments, **named)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._phases.backward_ended()
                    self._boundaries.backward_ended()

        setattr(torch.autograd.graph, ENGINE, followed)
        setattr(torch.autograd, ENGINE, followed)

    def _update_begins(self, frame: FrameType) -> None:
        if not self._markers.there:
            return  # the walk up the script's frames would be a cost of the steps that are timed
        self._phases.updates_go_on(steps_running(frame) - 1)
        self._phases.update_begins(self._places.look(frame), self._depth > 0)

    def _update_ends(self, frame: FrameType) -> None:
        if self._phases.updates:  # one that began before the markers were there is not among them
            self._phases.update_ends()

    def _module_called(self, module: nn.Module, arguments: tuple[object, ...], named: dict[str, object]) -> None:
        self._phases.module_called(module)
        batch = self._samples.layer_called(module, arguments, named)
        if batch is not None and torch.is_grad_enabled() and not self._depth:
            self._counted[self._phases.next_microbatch] = batch.samples

    def _model_called(self, arguments: tuple[object, ...], named: dict[str, object]) -> None:
        batch = self._samples.called(arguments, named)
        if batch is not None and torch.is_grad_enabled() and not self._depth:
            self._counted.setdefault(self._phases.next_microbatch, batch.samples)


def leave() -> None:
    """Ends the process here, of a script that would not stop."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
