"""What compiles a model: torch.compile does, where undertorch can follow it (compiled/). What else there is leaves the
model as it is: its eager Ops are recorded, and that is said as an assumption.
"""

import inspect
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad

from undertorch.records.steps import UNCAPTURED, UNCOMPILED, UNCOMPILED_FUNCTION, WRITTEN_BY_INDUCTOR
from undertorch.steps.record.compiled.compiler import Compiler
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put, undone_by

EAGER = "the step is recorded as it runs without compilation."
COMPILED = f"{UNCOMPILED}: {EAGER}"
INDUCTOR = (
    f"{WRITTEN_BY_INDUCTOR} for this GPU, each in that of its configurations which is predicted to be the fastest: none"
    " was run."
)
UNTUNED = "max-autotune measures on a GPU which kernels of products are the fastest: the libraries' were taken."
CAPTURING = ("reduce-overhead", "max-autotune")
"""Modes of torch.compile that replay what they compiled as CUDA graphs."""
COMPILED_OF_TORCH = f"torch.compile left a function of torch's as it is: {EAGER}"
SCRIPTED = "torch.jit.script left its code as it is: the step is recorded as it runs without TorchScript."
GRAPHED = f"{UNCAPTURED}: what it holds is recorded as it runs without the graph."


def install(notes: Notes, compiler: Compiler | None) -> None:
    """Puts a compiler in the place of torch.compile, or what leaves code alone; that, too, in the place of torch's
    other compilers. Call once.
    """
    if compiler is not None:
        put(torch, "compile", _compile_with(compiler, notes))
        put(nn.Module, "compile", _compile_module)
    else:
        put(torch, "compile", _compile(notes))
        put(nn.Module, "compile", lambda module, *settings, **named: notes.note(COMPILED))
    # Imports parts of torch that a CPU build lacks, and begins nothing where no graph was captured.
    put(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
    put(torch.cuda, "make_graphed_callables", _graphed(notes))
    _leave_scripts_alone(notes)


def _compile_with(compiler: Compiler, notes: Notes) -> Any:
    """`torch.compile` with Inductor; any other backend leaves code alone."""
    why_not = compiler.unserved()

    def compiled(model: Any = None, **settings: Any) -> Any:
        if model is None:
            return lambda given: compiled(given, **settings)
        other = settings.get("backend") not in (None, "inductor")
        if other or why_not is not None:
            return _compile(notes, "its backend is not Inductor" if other else why_not)(model)
        notes.note(INDUCTOR)
        mode, options = settings.get("mode") or "", settings.get("options") or {}
        if mode in CAPTURING or options.get("triton.cudagraphs"):
            notes.note(GRAPHED)
        if mode.startswith("max-autotune") or options.get("max_autotune"):
            notes.note(UNTUNED)
        return compiler.compile(model, **settings)

    return compiled


def _compile_module(module: nn.Module, **settings: Any) -> None:
    """As torch has it: the module's own call is compiled. The recorder's part in it is no part of a graph."""
    call: Any = nn.Module._call_impl
    module._compiled_call_impl = torch.compile(call.__get__(module), **settings)


def _compile(notes: Notes, why: str | None = None) -> Any:
    """`torch.compile`: of a model, of a function, and as a decorator with or without settings."""
    because = "" if why is None else f" ({why})"

    def compiled(model: Any = None, *settings: Any, **named: Any) -> Any:
        if model is None:
            return compiled
        if isinstance(model, nn.Module | type):
            notes.note(f"{UNCOMPILED}{because}: {EAGER}")
        elif not notes.note_at(inspect.unwrap(model), f"{UNCOMPILED_FUNCTION}{because}: {EAGER}"):
            notes.note(COMPILED_OF_TORCH)
        return left_alone(model)

    return compiled


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
