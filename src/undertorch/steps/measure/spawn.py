"""Measures a script's step in a process of its own. This process imports torch only to read the trace."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from undertorch.records import Gpu, Step
from undertorch.steps.measure import exchange
from undertorch.steps.measure.exchange import Measured, Request
from undertorch.steps.measure.plan import plan
from undertorch.steps.measure.ranks import group
from undertorch.steps.record import errors
from undertorch.steps.record.reached import said
from undertorch.steps.record.spawn import module_file

INTERRUPTED = 130


def measure(
    script: Path,
    arguments: Sequence[str],
    step: int | None = None,
    gpu: Gpu | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[Step, Gpu]:
    """Runs a script for real in a fresh process, on its GPU, and answers one training step as it was measured, with the
    sheet of that GPU.

    `script` may be the dotted name of a module below the current folder. What it prints goes to standard error, what it
    writes is written. After the last measured step it is ended as by `sys.exit()`. `step`: the one to show (2 or
    later), counted from 1; None: plan.py. `gpu`: the sheet, where none is found by the name that the driver gives.

    Raises RecordError (steps/record/errors.py), BadTrace, and RuntimeError where undertorch itself failed.
    """
    from undertorch.steps.measure.reading import read_measured

    with tempfile.TemporaryDirectory(prefix="undertorch-") as made:
        folder = Path(made)
        measured = run_measured(script, arguments, folder, step=step, progress=progress)
        if progress:
            progress("reading the trace")
        return read_measured(folder, measured, gpu)


def run_measured(
    script: Path,
    arguments: Sequence[str],
    folder: Path,
    step: int | None = None,
    progress: Callable[[str], None] | None = None,
    without_gpu: bool = False,
) -> Measured:
    """Runs the script as `measure` does, and leaves in the folder what `read_measured` makes a Step of.

    `without_gpu`: only the CPU is profiled, for tests. Raises as `measure` does.
    """
    module = None if script.is_file() else str(script)
    file = script if module is None else module_file(module)
    if file is None:
        what = "it is a folder" if script.is_dir() else "there is no such file"
        raise errors.MissingScript(f"{script}: {what}; name the training script to run.")
    if step is not None and step < 2:
        raise errors.RecordError(
            f"--step {step}: the first step loads libraries and compiles, and is not measured; name a later one."
        )
    ranks = group() is not None
    planned = plan(step, ranks)
    if progress:
        progress(f"running {file.name} up to step {planned.end}, of which the last are profiled")
    request = Request(
        script=str(file),
        module=module,
        arguments=tuple(arguments),
        step=step,
        folder=str(folder.absolute()),
        ranks=ranks,
        without_gpu=without_gpu,
        reached=str(folder.absolute() / "reached") if progress else "",
    )
    with said(request.reached, file.name, planned.end, progress):
        status = _run(request, folder / "request.json")
    return _measured(request, folder, status)


def _run(request: Request, path: Path) -> int:
    """Runs the child; answers its exit status, negative for the signal that killed it."""
    path.write_bytes(msgspec.json.encode(request))
    command = [sys.executable, "-P", "-m", "undertorch.steps.measure.child", str(path)]
    child = subprocess.Popen(command, stdout=2, env=os.environ)
    try:
        return child.wait()
    finally:
        if child.poll() is None:  # interrupted
            child.kill()
            child.wait()


def _measured(request: Request, folder: Path, status: int) -> Measured:
    """What the process handed over. Raises RecordError where it failed, or where it holds no step."""
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    measured = exchange.read(folder)
    if measured is None:
        if status == 70:
            raise RuntimeError(f"undertorch itself failed while it measured {request.script}; its traceback is above.")
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise errors.ScriptFailed(f"{request.script} {how} before its training step was measured.")
    if measured.error is not None:
        raise getattr(errors, measured.error)(measured.message)
    if not measured.steps:
        raise errors.NoStep(too_short(request, measured))
    return measured


def too_short(request: Request, measured: Measured) -> str:
    """Why there is no measured step in a run that ended well."""
    made = measured.steps_made
    if not made:
        return (
            f"{request.script} ended without a backward and without calling the step() of an optimizer, so there is no"
            " training step to show."
        )
    steps = "its first step" if made == 1 else f"{made} steps"
    planned = plan(request.step)
    if made == 1:
        return f"{request.script} ended after {steps}, which loads libraries and compiles: let it make two or more."
    asked = (
        f"measuring takes {planned.last} (the first {planned.clock} warm up, then {planned.profiler - planned.clock}"
        f" are timed, and {planned.last - planned.profiler} profiled)"
        if request.step is None
        else f"step {request.step} was asked for"
    )
    return f"{request.script} ended after {steps}, and {asked}: let it run longer, or pass --step {made}."
