"""Records a step of a loop in this process: for a notebook, or a loop of one's own. Importing this imports torch.

The loop runs in a `with` block, on fake CUDA tensors as a script would. As soon as the wanted step is complete the
block is left; then everything that was replaced in torch is put back.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from undertorch.records import Gpu, Recording
from undertorch.steps.record import errors
from undertorch.steps.record.assume import assumed
from undertorch.steps.record.errors import RecordError
from undertorch.steps.record.exchange import Outcome, Request
from undertorch.steps.record.guard import Guard, build_guard
from undertorch.steps.record.inside import INSIDE
from undertorch.steps.record.patching import put_back, undone_by
from undertorch.steps.record.phases import mark
from undertorch.steps.record.places import Places
from undertorch.steps.record.run import Watch


class StepComplete(BaseException):
    """Leaves the block when the wanted step is complete; `Block` takes it for a good end."""


class Block:
    """The `with` block. One at a time in a process."""

    _open = False

    def __init__(
        self,
        gpu: Gpu,
        step: int,
        assume: Mapping[str, str],
        name: str,
        code: CodeType,
        cell: Callable[[str], str | None],
    ) -> None:
        """`name`: the file that the block stands in, or the cell. `code`: the function, cell or script around it.
        `cell`: what a notebook's cell is called, by the name of its code.
        """
        self._request = Request(
            script=name, arguments=(), gpu=gpu, step=step, assumed=assumed(assume), guard="", outcome=""
        )
        self._places = Places(INSIDE, mark, Path.cwd(), top=code, cell=cell)
        self._outcome: Outcome | None = None
        self._watch: Watch | None = None
        self._threads: Any = None

    def enter(self) -> None:
        """Puts everything in place. Raises RecordError where this process cannot record."""
        if Block._open:
            raise RecordError("A block of undertorch.seeing is open already: one step is seen at a time.")
        # Asked before the guard is loaded: torch then keeps the hooks that it has without undertorch.
        if torch.accelerator.is_available() or torch.cuda.is_initialized():
            raise RecordError(
                "This process has a GPU, which seeing cannot take the place of: put the loop into a script and call"
                " undertorch.see(script), or begin the session anew with CUDA_VISIBLE_DEVICES empty."
            )
        guard = Guard(build_guard())
        guard.install_late()
        undone_by(guard.uninstall)
        Block._open = True
        try:
            self._keep_optimizers()
            self._watch = Watch(self._request, guard, self._places, self._complete)
            # Without threads of its own for each device the autograd engine needs none that it did not start before.
            self._threads = torch.autograd.set_multithreading_enabled(False)
            enter: Any = self._watch.recorder.__enter__
            enter()
        except BaseException:
            self._undo()
            raise

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> Recording | None:
        """Puts everything back. The recording; None where the block raised. Raises NoStep where it trained nothing."""
        if self._watch is None:
            raise RuntimeError("The block was left without having been entered.")
        leave: Any = self._watch.recorder.__exit__
        leave(kind, error, trace)
        try:
            if error is None and self._outcome is None:
                self._outcome = self._watch.ended()
        finally:
            self._undo()
        if self._outcome is None:
            return None
        if self._outcome.recording is None:
            raise getattr(errors, self._outcome.error or "RecordError")(self._outcome.message)
        return self._outcome.recording

    def _complete(self, outcome: Outcome) -> None:
        self._outcome = outcome
        raise StepComplete

    def _undo(self) -> None:
        if self._threads is not None:
            self._threads.__exit__(None, None, None)
        put_back()
        Block._open = False

    def _keep_optimizers(self) -> None:
        """Optimizers from before the block get back the state that they had."""
        known: set[int] = set()

        def keep(optimizer: Any, arguments: Any, named: Any) -> None:
            if id(optimizer) in known:
                return
            known.add(id(optimizer))
            state = {key: dict(value) for key, value in optimizer.state.items()}

            def restore() -> None:
                optimizer.state.clear()
                optimizer.state.update(state)

            undone_by(restore)

        undone_by(register_optimizer_step_pre_hook(keep).remove)
