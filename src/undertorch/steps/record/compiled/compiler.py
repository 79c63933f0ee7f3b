"""torch.compile for the GPU that is named: put in place when the script first asks for it."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from undertorch.records import Argument, Gpu
from undertorch.records.steps import NOT_COMPILED
from undertorch.steps.measure.compiled import follow_codegen
from undertorch.steps.record.compiled import dynamo, inductor, moved
from undertorch.steps.record.compiled.benchmarks import Benchmarks
from undertorch.steps.record.compiled.kernels import InductorKernel, Launched
from undertorch.steps.record.compiled.sources import lines
from undertorch.steps.record.facts import Facts
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.places import Places
from undertorch.steps.record.recorder import Recorder
from undertorch.steps.record.refs import Refs
from undertorch.steps.traces.names import fused

TRIED = ((2, 11), (2, 13))
"""Versions of torch, the first and the last, whose parts it knows."""

FAILED = f"{{what}} {NOT_COMPILED} ({{why}}), and is recorded as it runs without compilation."


MOST_SAID = 200
"""Characters of an error's first sentence."""


class Compiler:
    """Compiles what the script wants compiled."""

    def __init__(
        self,
        gpu: Gpu,
        folder: Path,
        fakes: Fakes,
        facts: Facts,
        refs: Refs,
        notes: Notes,
        places: Places,
        recorder: Recorder,
        choose_attention: Callable[..., int],
    ) -> None:
        """`folder`: where Inductor may put its files."""
        self._gpu = gpu
        self._folder = folder
        self._fakes = fakes
        self._facts = facts
        self._refs = refs
        self._notes = notes
        self._places = places
        self._recorder = recorder
        self._choose_attention = choose_attention
        self._ready = False
        self._compile: Any = torch.compile
        self._benchmarks = Benchmarks(gpu, fakes, refs)

    def unserved(self) -> str | None:
        """Why nothing is compiled here; None where it is."""
        if os.environ.get("TORCHDYNAMO_DISABLE") == "1":
            return "TORCHDYNAMO_DISABLE is set"
        if self._gpu.vendor != "NVIDIA":
            return f"what Inductor writes for {self._gpu.name} is not known"
        version = tuple(int(part) for part in torch.__version__.split(".")[:2])
        if not TRIED[0] <= version <= TRIED[1]:
            first, last = (".".join(map(str, one)) for one in TRIED)
            return f"torch {first} to {last} is served, and this is {torch.__version__}"
        try:
            import triton  # noqa: F401
        except ImportError:
            return "Triton is not installed"
        return None

    def compile(self, model: Any, **settings: Any) -> Any:
        """What torch.compile answers."""
        if not self._ready:
            self._ready = True
            follow_codegen()
            inductor.put_in_place(self._folder, self._fakes, self._kernel)
            inductor.follow_graphs(self._written, lambda error: self._failed("a graph", error))
            self._benchmarks.put_in_place()
            dynamo.put_in_place(self._recorder, self._choose_attention, lambda error: self._failed("a function", error))
        return self._compile(model, **settings)

    def _kernel(self, name: str, tuner: Any, source: str) -> InductorKernel:
        predict = partial(self._benchmarks.op_us, fused(name))
        return InductorKernel(name, tuner, moved.kept(source), predict, self._launched)

    def _launched(self, launch: Launched) -> None:
        given = (Argument(name=name, value=self._refs.value(value)) for name, value in launch.arguments.items())
        self._recorder.launched(fused(launch.kernel), launch.tensors, (*launch.own, *given))
        for tensor in launch.tensors:
            self._facts.forget(tensor)

    def _written(self, graph: Any) -> None:
        """Keeps which lines the code of a graph came from."""
        from torch._inductor.codecache import get_path

        if (key := getattr(graph, "cache_key", None)) is None:
            return
        found = lines(graph.source_code, graph.inductor_provenance_stack_traces_str, self._places.name)
        self._places.written(get_path(key, "py")[2], found)

    def _failed(self, what: str, error: BaseException) -> None:
        found = getattr(error, "inner_exception", None) or error
        said = str(found).strip().partition("\n")[0].partition(". ")[0]
        why = f"{type(found).__name__}: {said[:MOST_SAID]}" if said else type(found).__name__
        self._notes.note(FAILED.format(what=what, why=why))
