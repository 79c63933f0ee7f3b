"""Compiled code: it runs without markers, since under a mode torch.compile gives its code up for eager; and what
Inductor's kernels came from, as Inductor itself keeps it.
"""

import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from undertorch.records import Where
from undertorch.steps.measure.exchange import Compiled
from undertorch.steps.qualnames import qualname
from undertorch.steps.record.importing import after_import
from undertorch.steps.record.patching import put
from undertorch.steps.record.places import Places

PROVENANCE = "INDUCTOR_PROVENANCE"
"""Asks Inductor to keep from which lines a kernel came (torch/_inductor/config.py, provenance_tracking_level)."""

BASIC = "2"
"""The level that keeps stacks and no graphs."""

STACK_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')

UNNAMED = ""
"""In the place of a kernel's name that Inductor does not say."""

CALLERS = frozenset({"compile_wrapper", "__enter__", "__exit__"})
"""Functions of torch/_dynamo/eval_frame.py that switch compiled code on and off around a call; others in it do so
around what is not to be compiled within such a call."""


def ask_for_provenance() -> None:
    """Before torch is imported. What the user asked for stays."""
    os.environ.setdefault(PROVENANCE, BASIC)


def follow_codegen() -> None:
    """Has Inductor keep the lines of those kernels, too, that it makes without saying their names (reductions along two
    axes in one kernel). Call once, before anything is compiled.
    """
    for module in ("torch._inductor.scheduler", "torch._inductor.codegen.triton"):
        after_import(module, _keep_unnamed)


def _keep_unnamed(module: ModuleType) -> None:
    for kind in list(vars(module).values()):
        comment = vars(kind).get("codegen_comment") if isinstance(kind, type) else None
        if comment is None or kind.__module__ != module.__name__:
            continue

        def commented(
            scheduling: Any, nodes: Any, kernel_name: str | None = None, _comment: Callable[..., Any] = comment
        ) -> Any:
            result = _comment(scheduling, nodes, kernel_name)
            if kernel_name is None:
                from torch._inductor.debug import set_kernel_post_grad_provenance_tracing

                set_kernel_post_grad_provenance_tracing(nodes, UNNAMED)
            return result

        put(kind, "codegen_comment", commented)


class Regions:
    """Tells when compiled code begins and ends to run on a thread."""

    def __init__(self, entered: Callable[[Any], None], left: Callable[[], None]) -> None:
        """`entered` is given the frame that called it."""
        self._entered = entered
        self._left = left
        self._inside = False

    def follow(self) -> None:
        """Wraps the function by which torch.compile switches its frame evaluation, where it was imported."""
        eval_frame = sys.modules.get("torch._dynamo.eval_frame")
        if eval_frame is None or not hasattr(eval_frame, "_maybe_set_eval_frame"):
            return
        switch = eval_frame._maybe_set_eval_frame

        def switched(callback: Any) -> Any:
            frame = sys._getframe(1)
            if frame.f_code.co_name in CALLERS:
                if callable(callback) and not self._inside:
                    self._inside = True
                    self._entered(frame)
                elif not callable(callback) and self._inside:
                    self._inside = False
                    self._left()
            return switch(callback)

        put(eval_frame, "_maybe_set_eval_frame", switched)


def name_graphs() -> None:
    """Gives each compiled graph that Inductor does not cache, and has no key for, the name of its code: the profiler
    shows forward and backward both as `None` otherwise. Of torch 2.11 such are those that recompute what draws numbers
    (checkpointed attention). Call when all is compiled: Inductor asks for keys only while it compiles.
    """
    for graph in _graphs():
        if graph._fx_graph_cache_key is None and getattr(graph, "cache_key", None):
            graph._fx_graph_cache_key = graph.cache_key


def _graphs() -> Iterator[Any]:
    """The compiled graphs that are alive."""
    output_code = sys.modules.get("torch._inductor.output_code")
    if output_code is not None:
        yield from (one for one in gc.get_objects() if type(one) is output_code.CompiledFxGraph)


def compiled_calls(places: Places) -> dict[str, tuple[Compiled, ...]]:
    """Of each compiled graph that is alive, by the key under which the profiler shows it: its calls in order."""
    found = {}
    for graph in _graphs():
        key = getattr(graph, "_fx_graph_cache_key", None)
        text = getattr(graph, "inductor_provenance_stack_traces_str", None)
        if key and text:
            found[str(key)] = tuple(_calls(json.loads(text), places))
    return found


def _calls(stacks: dict[str, list[str]], places: Places) -> Iterable[Compiled]:
    for name, texts in stacks.items():
        bare, _, handle = name.rpartition(":")
        chains = [chain for text in texts if (chain := _chain(text, places))]
        yield Compiled(name=bare if handle.isdigit() else name, wheres=tuple(dict.fromkeys(chains)))


def _chain(text: str, places: Places) -> tuple[Where, ...]:
    """The user's frames of a stack as Python prints it, turned: innermost first."""
    frames = []
    for match in STACK_LINE.finditer(text):
        name = places.name(match["file"])
        if name is not None:
            line = int(match["line"])
            function = qualname(match["file"], line) or match["function"]
            frames.append(Where(file=name, line=line, function=function))
    return tuple(reversed(frames))
