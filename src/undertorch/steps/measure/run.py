"""Puts the parts together in the process that runs the script."""

import os
import tempfile
from pathlib import Path

import torch

from undertorch.steps.measure.compiled import follow_codegen
from undertorch.steps.measure.exchange import Request
from undertorch.steps.measure.plan import plan
from undertorch.steps.measure.watch import Watch
from undertorch.steps.record.errors import NoStep, ScriptFailed
from undertorch.steps.record.inside import INSIDE
from undertorch.steps.record.phases import mark
from undertorch.steps.record.places import Places
from undertorch.steps.record.reached import writer
from undertorch.steps.record.script import run_script


def run(request: Request) -> None:
    """Runs the script, which ends when all is measured; what came of it stands in the request's folder then.

    Raises ScriptFailed where the script failed before that, and NoStep where it made no step.
    """
    if not request.without_gpu and not torch.cuda.is_available():
        raise NoStep(
            f"torch {torch.__version__} finds no CUDA GPU on this machine; pass --gpu NAME to predict for one."
        )
    places = Places((*INSIDE, generated()), mark, Path.cwd())
    watch = Watch(request, plan(request.step, request.ranks), places, writer(request.reached))
    follow_codegen()
    watch.follow()
    try:
        run_script(request.script, request.arguments, request.module)
    except ScriptFailed:
        if watch.stopped():
            return  # what it does on its way out is its own affair
        raise
    watch.ended()


def generated() -> Path:
    """The folder of the code that Inductor writes (torch/_inductor/runtime/cache_dir_utils.py)."""
    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if given:
        return Path(given).absolute()
    return Path(tempfile.gettempdir()) / f"torchinductor_{_user()}"


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        return f"uid_{os.getuid()}"
