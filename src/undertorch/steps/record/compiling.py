"""What compiles a model leaves it as it is: its eager Ops are recorded, and that is said as an assumption."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad

from undertorch.records.steps import UNCAPTURED, UNCOMPILED, UNCOMPILED_FUNCTION, WITHOUT_GRAPHS
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put, undone_by

EAGER = "the step is recorded as it runs without compilation"
COMPILED_OF_TORCH = f"torch.compile left a function of torch's as it is: {EAGER}."
SCRIPTED = "torch.jit.script left its code as it is: the step is recorded as it runs without TorchScript."
GRAPHED = f"{UNCAPTURED}: what it holds is recorded as it runs without the graph."

MODES_OF_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes of torch.compile with `triton.cudagraphs` (torch/_inductor/__init__.py, list_mode_options)."""


def install(notes: Notes) -> None:
    """Puts what leaves code alone in the place of torch's compilers. Call once."""
    put(torch, "compile", _compile(notes))
    put(nn.Module, "compile", lambda module, *settings, **named: notes.note(f"{UNCOMPILED}: {_eager(named)}"))
    # Imports parts of torch that a CPU build lacks, and begins nothing where no graph was captured.
    put(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
    put(torch.cuda, "make_graphed_callables", _graphed(notes))
    _leave_scripts_alone(notes)


def _compile(notes: Notes) -> Any:
    """`torch.compile`: of a model, of a function, and as a decorator with or without settings."""

    def compiled(model: Any = None, *settings: Any, **named: Any) -> Any:
        if model is None:
            return lambda model: compiled(model, **named)
        if named.get("disable"):
            return model
        if isinstance(model, nn.Module | type):
            notes.note(f"{UNCOMPILED}: {_eager(named)}")
        elif not notes.note_at(inspect.unwrap(model), f"{UNCOMPILED_FUNCTION}: {_eager(named)}"):
            notes.note(COMPILED_OF_TORCH)
        return left_alone(model)

    return compiled


def _eager(settings: Mapping[str, Any]) -> str:
    """How the step is recorded of what is compiled with such settings."""
    graphs = (
        settings.get("mode") in MODES_OF_GRAPHS
        or settings.get("backend") == "cudagraphs"
        or (settings.get("options") or {}).get("triton.cudagraphs", False)
    )
    return f"{EAGER} and {WITHOUT_GRAPHS}." if graphs else f"{EAGER}."


def left_alone(model: Any) -> Any:
    """A model inside the wrapper that torch.compile answers with, which scripts look into (`_orig_mod`)."""
    if not isinstance(model, nn.Module):
        return model
    # Importing it takes a second, which scripts that compile nothing do not pay.
    from torch._dynamo.eval_frame import OptimizedModule

    class Uncompiled(OptimizedModule):
        def _initialize(self) -> None:
            self.forward = self._orig_mod.__call__

    Uncompiled.__name__ = Uncompiled.__qualname__ = OptimizedModule.__name__
    wrap: Any = Uncompiled
    return wrap(model, None)


def _graphed(notes: Notes) -> Any:
    def made(callables: Any, *settings: Any, **named: Any) -> Any:
        notes.note(GRAPHED)
        return callables

    return made


def _leave_scripts_alone(notes: Notes) -> None:
    """torch has a switch for this (PYTORCH_JIT=0); with it off, `script` answers what it is given."""
    if torch.jit._state._enabled:
        torch.jit._state.disable()
        undone_by(torch.jit._state.enable)
    script = torch.jit.script
    put(forward_ad, "_maybe_load_decompositions", _with_scripts(forward_ad._maybe_load_decompositions, script))

    def scripted(found: Any, *settings: Any, **named: Any) -> Any:
        notes.note(SCRIPTED)
        return script(found, *settings, **named)

    put(torch.jit, "script", scripted)


def _with_scripts(load: Any, script: Any) -> Any:
    """Forward-mode derivatives are TorchScript: torch's own, loaded when the first is wanted."""

    def loaded() -> None:
        ours = torch.jit.script
        torch.jit._state.enable()
        torch.jit.script = script
        try:
            load()
        finally:
            torch.jit.script = ours
            torch.jit._state.disable()

    return loaded
