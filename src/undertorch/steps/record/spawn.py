"""Records a script's step in a process of its own, which ends with it. This process never imports torch."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from undertorch.records import Gpu, Recording
from undertorch.steps.record import errors
from undertorch.steps.record.assume import assumed
from undertorch.steps.record.exchange import INTERRUPTED, LOST, Outcome, Request
from undertorch.steps.record.guard import build_guard
from undertorch.steps.record.ordinary import SECOND
from undertorch.steps.record.overlay.scratch import Scratch
from undertorch.steps.record.reached import said


def record(
    script: Path,
    arguments: Sequence[str],
    gpu: Gpu,
    step: int | None = None,
    assume: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Recording:
    """Runs a script in a fresh process on fake CUDA tensors and answers the Ops of its training step number `step`,
    counted from 1. None: an ordinary one, the second or the third (ordinary.py).

    `script` may be the dotted name of a module below the current folder, which then runs as by `python -m`.

    The script sees the GPU that is named, its own arguments, folder and `__main__`; what it prints goes to standard
    error. The process ends as soon as the step is complete. `assume` gives values that the script asks of a tensor, by
    `LINE` (of the script) or `FILE:LINE`: `true`, `false` or a number. `progress` is told each stage.

    Raises RecordError (errors.py), whose message is one sentence, and RuntimeError where undertorch itself failed. A
    KeyboardInterrupt ends the script's process too.
    """
    module = None if script.is_file() else str(script)
    file = script if module is None else module_file(module)
    if file is None:
        there = "it is a folder" if script.is_dir() else "it is no file"
        what = there if script.exists() else "there is no such file"
        raise errors.MissingScript(f"{script}: {what}; name the training script to run.")
    number = SECOND if step is None else step
    if number < 1:
        raise errors.RecordError(f"Steps are counted from 1, so there is no step {step}.")
    answers = assumed(assume or {})
    guard = build_guard(progress)
    made = Scratch(progress)
    if progress:
        progress(f"running {file.name} on fake tensors up to step {number}")
    with made as scratch:
        request = Request(
            script=str(file),
            module=module,
            arguments=tuple(arguments),
            gpu=gpu,
            step=number,
            ordinary=step is None,
            assumed=answers,
            guard=str(guard),
            outcome=str(scratch.folder / "outcome"),
            path=str(scratch.folder / "request"),
            scratch=str(scratch.folder),
            reached=str(scratch.folder / "outcome.step") if progress else "",
            room=scratch.room,
        )
        with said(request.reached, file.name, number, progress):
            status = _run(request, scratch)
        return _result(request, status)


def module_file(name: str) -> Path | None:
    """Where the source of a module below the current folder stands; None where there is no such module."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    folder = Path(*parts)
    return next((file for file in (folder.with_suffix(".py"), folder / "__main__.py") if file.is_file()), None)


def _run(request: Request, scratch: Scratch) -> int:
    """Runs the child; answers its exit status, negative for the signal that killed it."""
    path = Path(request.path)
    path.write_bytes(msgspec.json.encode(request))
    # -P: the folder that the user stands in is no place to import from; the script's own folder is, and the child puts
    # it there.
    command = [sys.executable, "-P", "-m", "undertorch.steps.record.child", str(path)]
    child = subprocess.Popen(command, stdout=2, env=scratch.environment(os.environ, request.gpu))
    try:
        return scratch.wait(child, request.script)
    finally:
        if child.poll() is None:  # interrupted
            child.kill()
            child.wait()


def _result(request: Request, status: int) -> Recording:
    written = Path(request.outcome)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if not written.parent.is_dir() or (status == LOST and not written.exists()):
        raise errors.NotHandedOver(
            f"The folder {written.parent}, in which {request.script} was recorded, was removed or cannot be written:"
            " run it again, and set TMPDIR to a folder that nobody clears meanwhile."
        )
    if not written.exists():
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise errors.ScriptFailed(f"{request.script} {how} before step {request.step} was recorded.")
    outcome = msgspec.msgpack.decode(written.read_bytes(), type=Outcome)
    if outcome.error is not None:
        raise getattr(errors, outcome.error)(outcome.message)
    if outcome.recording is None:
        raise RuntimeError(f"undertorch itself failed while it recorded {request.script}; its traceback is above.")
    return outcome.recording
