"""What compiles a model: torch.compile does, where undertorch can follow it (compiled/). What else there is leaves the
model as it is: its eager Ops are recorded, and that is said as an assumption.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad

from undertorch.records.steps import UNCAPTURED, UNCOMPILED, UNCOMPILED_FUNCTION, WITHOUT_GRAPHS, WRITTEN_BY_INDUCTOR
from undertorch.steps.record.compiled.compiler import Compiler
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put, undone_by

EAGER = "the step is recorded as it runs without compilation"
INDUCTOR = (
    f"{WRITTEN_BY_INDUCTOR} for this GPU, each in that of its configurations which is predicted to be the fastest: none"
    " was run."
)
UNTUNED = "max-autotune measures on a GPU which kernels of products are the fastest: the libraries' were taken."
COMPILED_OF_TORCH = f"torch.compile left a function of torch's as it is: {EAGER}."
SCRIPTED = "torch.jit.script left its code as it is: the step is recorded as it runs without TorchScript."
GRAPHED = f"{UNCAPTURED}: what it holds is recorded as it runs without the graph."

MODES_OF_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes of torch.compile with `triton.cudagraphs` (torch/_inductor/__init__.py, list_mode_options)."""


def install(notes: Notes, compiler: Compiler | None) -> None:
    """Puts a compiler in the place of torch.compile, or what leaves code alone; that, too, in the place of torch's
    other compilers. Call once.
    """
    if compiler is not None:
        put(torch, "compile", _compile_with(compiler, notes))
        put(nn.Module, "compile", _compile_module_with(compiler, notes))
    else:
        put(torch, "compile", _compile(notes))
        put(nn.Module, "compile", lambda module, *settings, **named: notes.note(f"{UNCOMPILED}: {_eager(named)}"))
    # Imports parts of torch that a CPU build lacks, and begins nothing where no graph was captured.
    put(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
    _let_reset()
    put(torch.cuda, "make_graphed_callables", _graphed(notes))
    _leave_scripts_alone(notes)


def _let_reset() -> None:
    """`torch.compiler.reset`, as what compiles the whole backward, lets CUDA graphs go by parts of torch that a CPU
    build lacks (torch/_inductor/cudagraph_trees.py imports them). No graph is there.
    """
    for name, nothing in (("_cuda_CUDAAllocator_AllocatorState", object), ("_set_cached_tensors_enabled", _ignored)):
        if not hasattr(torch._C, name):
            put(torch._C, name, nothing)


def _ignored(*settings: object) -> None:
    """Sets what concerns a GPU's memory alone."""


def _compile_with(compiler: Compiler, notes: Notes) -> Any:
    """`torch.compile` with Inductor; any other backend leaves code alone."""

    def compiled(model: Any = None, **settings: Any) -> Any:
        if model is None:
            return lambda given: compiled(given, **settings)
        if settings.get("disable"):
            return model
        if (why := _why_not(compiler, settings)) is not None:
            return _compile(notes, why)(model, **settings)
        notes.note(INDUCTOR)
        if _has_graphs(settings):
            notes.note(GRAPHED)
        if (settings.get("mode") or "").startswith("max-autotune"):
            notes.note(UNTUNED)
        return compiler.compile(model, **settings)

    return compiled


def _compile_module_with(compiler: Compiler, notes: Notes) -> Any:
    """`nn.Module.compile`."""

    def compiled(module: nn.Module, **settings: Any) -> None:
        if (why := _why_not(compiler, settings)) is not None:
            notes.note(f"{UNCOMPILED} ({why}): {_eager(settings)}")
            return
        # As torch has it: the module's own call is compiled, as which the recorder's stands.
        call: Any = nn.Module._call_impl
        module._compiled_call_impl = torch.compile(call.__get__(module), **settings)

    return compiled


def _why_not(compiler: Compiler, settings: Mapping[str, Any]) -> str | None:
    """Why code is left alone; None where it is compiled."""
    if settings.get("backend") not in (None, "inductor"):
        return "its backend is not Inductor"
    return compiler.unserved()


def _compile(notes: Notes, why: str | None = None) -> Any:
    """`torch.compile`: of a model, of a function, and as a decorator with or without settings."""
    because = "" if why is None else f" ({why})"

    def compiled(model: Any = None, *settings: Any, **named: Any) -> Any:
        if model is None:
            return lambda model: compiled(model, **named)
        if named.get("disable"):
            return model
        if isinstance(model, nn.Module | type):
            notes.note(f"{UNCOMPILED}{because}: {_eager(named)}")
        elif not notes.note_at(inspect.unwrap(model), f"{UNCOMPILED_FUNCTION}{because}: {_eager(named)}"):
            notes.note(COMPILED_OF_TORCH)
        return left_alone(model)

    return compiled


def _eager(settings: Mapping[str, Any]) -> str:
    """How the step is recorded of what is compiled with such settings."""
    return f"{EAGER} and {WITHOUT_GRAPHS}." if _has_graphs(settings) else f"{EAGER}."


def _has_graphs(settings: Mapping[str, Any]) -> bool:
    """Whether CUDA graphs launch what is compiled with such settings."""
    return (
        settings.get("mode") in MODES_OF_GRAPHS
        or settings.get("backend") == "cudagraphs"
        or bool((settings.get("options") or {}).get("triton.cudagraphs", False))
    )


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
