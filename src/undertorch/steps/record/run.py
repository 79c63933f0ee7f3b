"""Puts the parts together in the process that runs the script."""

import platform
from collections.abc import Callable
from pathlib import Path

import torch

import undertorch
from undertorch.records import Environment, Op, Recording
from undertorch.steps.record.attention import AttentionChoice
from undertorch.steps.record.backward import Backward
from undertorch.steps.record.boundaries import Boundaries
from undertorch.steps.record.errors import NoStep
from undertorch.steps.record.exchange import Outcome, Request
from undertorch.steps.record.execution import Execution
from undertorch.steps.record.facts import Facts
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.functions import Functions
from undertorch.steps.record.guard import Guard
from undertorch.steps.record.modules import Modules
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.phases import Phases, mark
from undertorch.steps.record.places import Places
from undertorch.steps.record.recorder import Recorder
from undertorch.steps.record.script import run_script
from undertorch.steps.record.storages import Storages
from undertorch.steps.record.substitutes import substitute
from undertorch.steps.record.tape import Cut, Tape
from undertorch.steps.record.values import Values

INSIDE = (Path(torch.__file__).parent, Path(undertorch.__file__).parent)
"""Folders whose frames are not the user's."""


class RecorderFailed(BaseException):
    """undertorch failed inside the script, which must not take it for an error of its own."""


def run(request: Request, guard: Guard, found: Callable[[Outcome], None]) -> Outcome:
    """Runs the script. `found` is called with the outcome inside the script, the moment the wanted step is complete.

    Returns the outcome of a script that ended before it. Raises ScriptFailed, NoStep or RecorderFailed.
    """
    guard.install()
    places = Places(INSIDE, mark, Path.cwd())
    notes = Notes(places)
    storages = Storages()
    facts = Facts(storages)
    tape = Tape()
    fakes = Fakes()
    given = {(places.name(one.file or request.script) or "", one.line): one.value for one in request.assumed}
    values = Values(facts, notes, given, places.name(request.script))
    phases = Phases()
    backward = Backward(guard, phases.backward_started, phases.backward_ended)

    def model_called(arguments: tuple[object, ...], named: dict[str, object]) -> None:
        if torch.is_grad_enabled() and not backward.runs:
            tape.called(phases.next_microbatch, leading_dimension(arguments, named))

    def complete(cut: Cut) -> None:
        try:
            found(outcome(request, request.step, cut, values, notes, places))
        except Exception as error:
            raise RecorderFailed from error

    modules = Modules(phases.module_called, model_called)
    functions = Functions()
    boundaries = Boundaries(request.step, tape, storages, phases, places, complete)
    for followed in (modules, functions, backward, boundaries):
        followed.follow()
    substitute(request.gpu, fakes, values, storages, notes, places)
    execution = Execution(fakes, facts, values, AttentionChoice(request.gpu))
    with Recorder(fakes, execution, places, modules, functions, backward, phases, storages, tape):
        run_script(request.script, request.arguments)
    return ended(request, boundaries, values, notes, places)


def ended(request: Request, boundaries: Boundaries, values: Values, notes: Notes, places: Places) -> Outcome:
    """The outcome of a script that ended before the wanted step: its last one. Raises NoStep where it made none."""
    last = boundaries.last()
    if last is None:
        raise NoStep(
            f"{request.script} ended without calling the step() of an optimizer, so there is no training step to show;"
            " give it the arguments with which it trains."
        )
    step, cut = last
    steps = "its only optimizer step" if step == 1 else f"{step} optimizer steps"
    begin = ", from its first forward on" if step == 1 else ""
    notes.note(f"the script ended after {steps}; step {step} is shown{begin}.")
    return outcome(request, step, cut, values, notes, places)


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


def leading_dimension(arguments: tuple[object, ...], named: dict[str, object]) -> int | None:
    """Of the first tensor among a model's arguments that has one."""
    for value in (*arguments, *named.values()):
        if isinstance(value, torch.Tensor) and value.dim():
            return value.shape[0]
    return None


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
