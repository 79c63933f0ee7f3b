"""Puts the parts together in the process that runs the script."""

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import undertorch
from undertorch.records import Environment, Op, Recording
from undertorch.steps.record import kernels, processes, threads, triton
from undertorch.steps.record.attention import AttentionChoice
from undertorch.steps.record.backward import Backward
from undertorch.steps.record.boundaries import Boundaries
from undertorch.steps.record.compiled.compiler import Compiler
from undertorch.steps.record.errors import NoStep, RecorderFailed, ScriptFailed, UnexplainedFailure
from undertorch.steps.record.exchange import Outcome, Request
from undertorch.steps.record.execution import Execution
from undertorch.steps.record.facts import Facts
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.functions import Functions
from undertorch.steps.record.guard import Guard
from undertorch.steps.record.inside import INSIDE
from undertorch.steps.record.modules import Modules
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.ordinary import PATIENCE, asides, now_and_then, shown_instead
from undertorch.steps.record.overlay import saving
from undertorch.steps.record.overlay.begin import begin
from undertorch.steps.record.phases import Phases, mark
from undertorch.steps.record.places import Places
from undertorch.steps.record.reached import writer
from undertorch.steps.record.recorder import Recorder
from undertorch.steps.record.refs import Refs
from undertorch.steps.record.samples import Samples
from undertorch.steps.record.script import run_script
from undertorch.steps.record.storages import Storages
from undertorch.steps.record.substitutes import substitute
from undertorch.steps.record.tape import Cut, Tape
from undertorch.steps.record.to_host import ToHost
from undertorch.steps.record.values import UNCOMPUTED, Values

ON_CUDA = 'put its model and its batches on the GPU (.to("cuda")), or give it the arguments with which it does so.'

WITHOUT_TRAINING = (
    "it computes on the GPU and trains nothing. Of inference alone a trace of torch.profiler can be shown; for a"
    " prediction, have it call backward() on a sum of its outputs: the forward is shown with it."
)

MOST_PLACES = 3
"""Of values that were made up, named when a script fails."""

CPU_BACKWARDS = 100
"""After so many without an op on the GPU the script is taken to train on the CPU."""


def run(
    request: Request, guard: Guard, found: Callable[[Outcome], None], kept: Callable[[Outcome], None] | None = None
) -> Outcome:
    """Runs the script. `found` is called with the outcome inside the script, the moment the wanted step is complete;
    `kept` with one that the script goes on after, to be taken where it does not come to another.

    Returns the outcome of a script that ended before it. Raises ScriptFailed, NoStep or RecorderFailed.
    """
    guard.install()
    places = Places(INSIDE, mark, Path.cwd())
    changes = begin(request.scratch, request.room, places)
    watch = Watch(request, guard, places, found, kept)
    watch.notes.also(changes.assumptions)
    saving.install(watch.notes, watch.to_host)
    try:
        with watch.recorder:
            run_script(request.script, request.arguments, request.module)
            threads.wait()
    except ScriptFailed as failed:
        if watch.kept is not None:
            return watch.kept
        made_up = watch.made_up() if isinstance(failed, UnexplainedFailure) else ""
        raise ScriptFailed(f"{failed}{made_up}{changes.refused()}") from None
    return watch.ended()


def stand_in(request: Request, guard: Guard) -> None:
    """Puts all in place that stands in for the GPU, for as long as the process lives. Its steps are nobody's."""
    guard.install()
    watch = Watch(request, guard, Places(INSIDE, mark, Path.cwd()), lambda outcome: None)
    saving.install(watch.notes, watch.to_host)
    enter: Any = watch.recorder.__enter__
    enter()


class Watch:
    """All that follows a run, put together and in place."""

    def __init__(
        self,
        request: Request,
        guard: Guard,
        places: Places,
        found: Callable[[Outcome], None],
        keep: Callable[[Outcome], None] | None = None,
    ) -> None:
        """The guard is installed already. `found` is told the outcome when the wanted step is complete; `keep` one that
        is looked at beside the next."""
        self._request = request
        self._keep = keep
        self.kept: Outcome | None = None
        """Of the second step, while the third is waited for (ordinary.py)."""
        self._places = places
        self.notes = notes = Notes(places)
        self._found = found
        storages = Storages(request.gpu.memory_bytes)
        facts = Facts(storages)
        tape = Tape()
        fakes = Fakes()
        given = {(places.name(one.file or request.script) or "", one.line): one.value for one in request.assumed}
        self._values = values = Values(facts, notes, places, given, places.name(request.script))
        phases = Phases()
        self._boundaries = boundaries = Boundaries(
            request.step, tape, storages, phases, places, self._complete, writer(request.reached)
        )
        backward = Backward(
            guard,
            started=(boundaries.backward_started, phases.backward_started, values.backward_started),
            ended=(phases.backward_ended, boundaries.backward_ended, self._look_for_the_gpu),
        )
        self._tape = tape
        self._backwards = 0
        boundaries.in_backward = lambda: backward.runs

        samples = Samples()

        def model_called(arguments: tuple[object, ...], named: dict[str, object]) -> None:
            batch = samples.called(arguments, named)
            if torch.is_grad_enabled() and not backward.runs:
                tape.called(phases.next_microbatch, batch)

        def module_called(module: nn.Module, arguments: tuple[object, ...], named: dict[str, object]) -> None:
            phases.module_called(module)
            batch = samples.layer_called(module, arguments, named)
            if batch is not None and torch.is_grad_enabled() and not backward.runs:
                tape.called_with(batch)

        modules = Modules(module_called, model_called)
        functions = Functions(backward, tape, places)
        for followed in (modules, functions, backward, boundaries):
            followed.follow()
        processes.install(notes, request.path)
        attention = AttentionChoice(request.gpu)
        execution = Execution(fakes, facts, values, attention)
        self.recorder = Recorder(
            fakes, execution, places, modules, functions, backward, phases, storages, tape, boundaries
        )
        """The mode under which the run goes on."""
        self.to_host = ToHost(self.recorder, storages)
        # In the process of a loop that goes on without undertorch, code compiled for no GPU must not stay.
        compiler = None
        if request.scratch:
            folder = Path(f"{request.outcome}.inductor")
            compiler = Compiler(
                request.gpu, folder, fakes, facts, Refs(storages), notes, places, self.recorder, attention.choose
            )
        substitute(request.gpu, fakes, values, storages, notes, places, samples, self.to_host, compiler)
        threads.follow(self.recorder, places, (backward.thread_begins, fakes.begin_thread))
        for own in (triton, kernels):
            own.install(request.gpu, self.recorder, facts, Refs(storages), notes)

    def _look_for_the_gpu(self) -> None:
        """A script that trains on the CPU, perhaps until its loss is small, is not waited for."""
        self._backwards += 1
        if self._backwards == CPU_BACKWARDS and self._tape.next == 0:
            self._found(self._on_the_cpu())

    def _on_the_cpu(self) -> Outcome:
        message = f"{self._request.script} trains on the CPU: up to its step no op ran on the GPU; {ON_CUDA}"
        return Outcome(error=NoStep.__name__, message=message)

    def _complete(self, cut: Cut, taken: str | None) -> bool:
        if not cut.ops:
            self._found(self._on_the_cpu())
        before = self.kept
        try:
            if taken is not None and before is None:
                self.notes.note(taken)
            number = self._request.step + (before is not None)
            done = outcome(self._request, number, cut, self._values, self.notes, self._places)
            if before is None and self._request.ordinary and asides(cut.ops):
                self._wait_for_the_next(done, len(cut.ops))
                return True
            if before is not None:
                done = _ordinary(before, done)
        except Exception as error:
            raise RecorderFailed from error
        self._found(done)
        return False

    def _wait_for_the_next(self, done: Outcome, ops: int) -> None:
        self.kept = done
        if self._keep is not None:
            self._keep(done)
        self._tape.until(self._tape.next + PATIENCE * ops, lambda: self._found(done))

    def made_up(self) -> str:
        """For a script that failed: where values were asked for that were not computed; empty without any."""
        places = [one.where for one in self.notes.all() if UNCOMPUTED in one.what and one.where is not None]
        if not places:
            return ""
        last = ", ".join(f"{where.file}:{where.line}" for where in places[-MOST_PLACES:])
        return (
            f" Values that it asked for were made up, lastly at {last} ({UNCOMPUTED}): if that is why,"
            f" --assume {places[-1].file}:{places[-1].line}=VALUE gives another answer."
        )

    def ended(self) -> Outcome:
        """The outcome of a run that ended before the wanted step: its last one. Raises NoStep where it made none."""
        if self.kept is not None:
            return self.kept
        last = self._boundaries.last()
        if last is None:
            what_to_do = ON_CUDA if self._tape.next == 0 else WITHOUT_TRAINING
            raise NoStep(
                f"{self._request.script} ended without a backward and without calling the step() of an optimizer, so"
                f" there is no training step to show; {what_to_do}"
            )
        step, cut, taken = last
        if not cut.ops:
            return self._on_the_cpu()
        if taken is not None:
            self.notes.note(taken)
        kind = "optimizer step" if taken is None else "step"
        steps = f"its only {kind}" if step == 1 else f"{step} {kind}s"
        begin = ", from its first forward on" if step == 1 else ""
        takes = "--step takes 1" if step == 1 else f"--step takes 1 to {step}"
        asked = f"there is no step {self._request.step} ({takes}) and"
        self.notes.note(f"the script ended after {steps}: {asked} step {step} is shown{begin}.")
        return outcome(self._request, step, cut, self._values, self.notes, self._places)


def _ordinary(second: Outcome, third: Outcome) -> Outcome:
    """The third step, where it is without what the script does now and then in the second; else the second."""
    if second.recording is None or third.recording is None:
        return second
    places = now_and_then(second.recording.ops, third.recording.ops)
    if not places:
        return second
    assumptions = (*third.recording.assumptions, shown_instead(places))
    return replace(third, recording=replace(third.recording, assumptions=assumptions))


def outcome(request: Request, step: int, cut: Cut, values: Values, notes: Notes, places: Places) -> Outcome:
    """A recording of a step."""
    for file, line in sorted(values.unused):
        notes.note(f"an answer was given for {file}:{line}, and no value is asked for there up to step {step}.")
    return Outcome(
        recording=Recording(
            gpu=request.gpu.name,
            ops=cut.ops,
            memory=cut.memory,
            samples=cut.samples,
            assumptions=notes.all(),
            environment=environment(request, step, cut.ops, places),
        )
    )


def environment(request: Request, step: int, ops: tuple[Op, ...], places: Places) -> Environment:
    """What the recording holds for, with the text of each file that an Op's `where` names."""
    names = sorted({op.where.file for op in ops if op.where is not None})
    return Environment(
        versions={
            "undertorch": undertorch.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
        script=request.script,
        arguments=request.arguments,
        step=step,
        sources={name: text for name in names if (text := places.source(name)) is not None},
    )
