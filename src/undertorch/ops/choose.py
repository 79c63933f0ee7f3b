"""Which way to run a pass of an op: torch's kernel, or ours and how it is cut. Measured once, and kept.

A choice holds for an op's pass, dtype, width and number of rows (up to the next power of two), on one GPU with one
driver and one version of torch, Triton and undertorch. The first call of such a class measures the ways: CUDA graphs of
calls on inputs that together exceed three times the L2 cache, replayed in turn. It is kept in the user's cache
(UNDERTORCH_CACHE, else XDG_CACHE_HOME or ~/.cache, then undertorch/ops.json), and `save` and `load` carry it elsewhere.

Nothing is measured while a CUDA graph is captured, under torch.compile, in the code that it made or under fake tensors,
in a process group (ranks would choose apart; `measuring` is for one that tells the others), or twice. Then what is
stored is taken, and without that the usual way: the first of ours, as measured on an H200. With
torch.use_deterministic_algorithms(True) the usual way is taken whatever is stored or was measured (another choice is
another rounding).

UNDERTORCH_OPS: `auto` (so), `own` (ours, nothing measured), `library` (torch's).
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from typing import Any

import torch
import triton
from torch import Tensor

from undertorch import __version__
from undertorch.compilers.driver import DriverError
from undertorch.compilers.nvrtc import CudaError
from undertorch.gpus.calibrating.on_cuda import driver_version
from undertorch.ops.calls import BadCall, in_compiled_code, on_machine

MODES = ("auto", "own", "library")

LIBRARY = "library"
"""The way that is torch's own kernel."""

MEASURED_AT_MOST = 5
"""Ways that are compiled and measured in a running program, about a second for all; a benchmark measures every one."""

AHEAD_BY = 0.02
"""By how much, of its time, ours has to beat torch's. Below that is noise, and the library stays."""

ROUNDS, LEAST_CALLS = 9, 2

DOES_NOT_RUN = (RuntimeError, triton.runtime.errors.OutOfResources, CudaError, DriverError)
"""What a way raises that does not fit this GPU, or this installation."""

Call = Callable[[Any, Sequence[Any]], Any]
"""Runs a way on tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen for a class of calls, and why."""

    key: str
    """Such as `rms_norm_forward bfloat16 16384x4096`."""
    way: str
    microseconds: dict[str, float]
    """Of each way that was measured; empty: none was."""
    why: str


_CHOSEN: dict[tuple[Any, ...], Any] = {}
"""The way of each class of calls of this process."""

_USUAL: dict[tuple[Any, ...], Any] = {}
"""The usual way of classes for which nothing could be measured so far."""

_EXPLAINED: dict[str, Choice] = {}
_STORED: dict[str, dict[str, Choice]] = {}
"""By environment and key, what was stored or loaded. All four are a memory of the process, as torch's tuning of
convolutions is; what they change is speed and the last bit.
"""


def mode() -> str:
    """UNDERTORCH_OPS; empty is as if it were not there. Raises BadCall for what it cannot be."""
    asked = os.environ.get("UNDERTORCH_OPS") or "auto"
    if asked not in MODES:
        raise BadCall(f"UNDERTORCH_OPS is {asked!r}; it is one of {', '.join(MODES)}.")
    return asked


def prefers_library() -> bool:
    """Whether torch is to do it all: then an op is its reference."""
    return not torch.compiler.is_compiling() and mode() == "library"


def chosen(
    name: str,
    like: Tensor,
    rows: int,
    width: int,
    ways: Sequence[Any] | Callable[[], Sequence[Any]],
    call: Call,
    tensors: Sequence[Tensor | None],
    *,
    library: bool = False,
    detail: str = "",
) -> Any:
    """The way for a call; None where there is only the one for what `ways` does not serve.

    `ways`: what there is, the usual first, or a function that lists it, which is asked only for a class of calls that
    is new. `library`: whether `call` knows LIBRARY, torch's own kernel, on these tensors. `detail` tells apart what
    else a class differs by.
    """
    deterministic = torch.are_deterministic_algorithms_enabled()
    key = (name, like.device, like.dtype, width, rows.bit_length(), library, detail, deterministic)
    found = _CHOSEN.get(key)
    if found is None:
        found = _USUAL.get(key)
        if found is None or (not deterministic and may_measure()):
            listed = ways() if callable(ways) else ways
            found = _choose(name, like, rows, width, listed, call, tensors, library, detail)
            if found is UNSETTLED:
                found = _USUAL[key] = listed[0] if listed else NOTHING
            elif like.is_cuda:  # on the host another GPU's compiler may be at work next time
                _CHOSEN[key] = found
    return None if found is NOTHING else found


NOTHING, UNSETTLED = object(), object()


def _choose(
    name: str,
    like: Tensor,
    rows: int,
    width: int,
    ways: Sequence[Any],
    call: Call,
    tensors: Sequence[Tensor | None],
    library: bool,
    detail: str,
) -> Any:
    """UNSETTLED: the usual way for now, since nothing may be measured here."""
    dtype = str(like.dtype).removeprefix("torch.")
    text = f"{name} {dtype} {2 ** max(rows - 1, 0).bit_length()}x{width}{' ' + detail if detail else ''}"
    candidates = [*ways[:MEASURED_AT_MOST], *([LIBRARY] if library else [])]
    if len(candidates) < 2 or not like.is_cuda:
        return candidates[0] if candidates else NOTHING
    if mode() == "own":
        return ways[0] if ways else NOTHING
    by_text = {str(way): way for way in (*ways, *([LIBRARY] if library else []))}
    if torch.are_deterministic_algorithms_enabled() or on_machine():
        return UNSETTLED
    stored = stored_choices(environment(like.device)).get(text)
    if stored is not None and stored.way in by_text:
        _EXPLAINED[text] = stored
        return by_text[stored.way]
    if not may_measure():
        return UNSETTLED
    times = measure(candidates, call, tensors)
    if not times:
        return UNSETTLED
    best = min(times, key=lambda way: times[way])
    why = f"fastest of {len(times)}"
    if library and LIBRARY in times and times[LIBRARY] <= times[best] * (1 + AHEAD_BY):
        best, why = LIBRARY, "ours is not ahead of torch's kernel"
    choice = Choice(key=text, way=best, microseconds=times, why=why)
    _EXPLAINED[text] = choice
    _keep(environment(like.device), choice)
    return by_text[best]


_MEASURING: list[bool] = []
"""Not empty: inside `measuring`. Of the process and not of a thread: a backward has threads of its own."""


@contextmanager
def measuring() -> Iterator[None]:
    """Inside, a process of a group measures as one alone does; it is to tell the others what it chose (`load`)."""
    _MEASURING.append(True)
    try:
        yield
    finally:
        _MEASURING.pop()


def may_measure() -> bool:
    """Whether this is a moment to measure."""
    return not (
        torch.compiler.is_compiling()
        or in_compiled_code()
        or on_machine()
        or torch.cuda.is_current_stream_capturing()
        or (torch.distributed.is_available() and torch.distributed.is_initialized() and not _MEASURING)
    )


def measure(ways: Sequence[Any], call: Call, tensors: Sequence[Tensor | None]) -> dict[str, float]:
    """Microseconds of a call in each way; a way that fails to compile or run is left out."""
    given = [tensor for tensor in tensors if tensor is not None]
    device = given[0].device
    with torch.cuda.device(device), torch.no_grad():
        sets = list(_rotating(tensors, given, torch.cuda.get_device_properties(device).L2_cache_size))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        graphs = {}
        with torch.cuda.stream(stream):
            for way in ways:
                with suppress(*DOES_NOT_RUN):
                    graphs[str(way)] = _captured(way, call, sets, stream)
            times: dict[str, list[float]] = {name: [] for name in graphs}
            for turn in range(ROUNDS + 1):
                for name, graph in graphs.items():
                    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    begin.record()
                    graph.replay()
                    end.record()
                    end.synchronize()
                    if turn:
                        times[name].append(begin.elapsed_time(end) * 1e3 / len(sets))
        torch.cuda.current_stream().wait_stream(stream)
    return {name: round(median(taken), 3) for name, taken in times.items()}


def _captured(way: Any, call: Call, sets: Sequence[Sequence[Tensor | None]], stream: Any) -> torch.cuda.CUDAGraph:
    """A graph of one call a set. Not torch.cuda.graph, which gives the allocator's free memory back first."""
    call(way, sets[0])
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other threads (a data loader's) go on calling CUDA meanwhile.
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        kept = [call(way, tensors) for tensors in sets]
    finally:
        graph.capture_end()
    del kept
    return graph


def _rotating(
    tensors: Sequence[Tensor | None], given: Sequence[Tensor], l2_bytes: int
) -> Iterator[Sequence[Tensor | None]]:
    """The tensors, and copies of them until all together exceed three times the L2 cache."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in given)
    copies = max(min(-(-3 * l2_bytes // max(size, 1)), 32), LEAST_CALLS if size < 3 * l2_bytes else 1)
    yield tensors
    for _ in range(copies - 1):
        yield [None if tensor is None else tensor.clone() for tensor in tensors]


# What is kept


@cache
def environment(device: torch.device) -> str:
    """What a choice holds for."""
    gpu = torch.cuda.get_device_name(device)
    driver = torch.version.hip or driver_version() or "unknown"
    return f"{gpu}, driver {driver}, torch {torch.__version__}, triton {triton.__version__}, undertorch {__version__}"


def cache_file() -> Path:
    """Where choices are kept."""
    folder = os.environ.get("UNDERTORCH_CACHE")
    if folder is not None:
        return Path(folder) / "ops.json"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undertorch" / "ops.json"


def stored_choices(where: str) -> dict[str, Choice]:
    """Of one environment, by key: what was loaded, and what the cache has."""
    if where not in _STORED:
        _STORED[where] = _read(cache_file()).get(where, {})
    return _STORED[where]


def explained() -> dict[str, Choice]:
    """The choices of this process."""
    return dict(_EXPLAINED)


def everything_stored() -> dict[str, dict[str, Choice]]:
    """All of the cache, by environment."""
    return _read(cache_file())


def save(path: str | os.PathLike[str]) -> None:
    """Writes all choices of the cache to a file, which `load` reads on another machine of the kind."""
    _write(Path(path), _read(cache_file()))


def load(path: str | os.PathLike[str]) -> None:
    """Takes the choices of a file for this process; those of other environments are of no consequence."""
    for where, choices in _read(Path(path), strict=True).items():
        _STORED[where] = {**stored_choices(where), **choices}
    forget()


def forget() -> None:
    """Lets every class of calls be chosen anew: from what is stored, or measured."""
    _CHOSEN.clear()
    _USUAL.clear()


def _keep(where: str, choice: Choice) -> None:
    stored_choices(where)[choice.key] = choice
    path = cache_file()
    with suppress(OSError):  # a cache that cannot be written is none
        everything = _read(path)
        everything.setdefault(where, {})[choice.key] = choice
        _write(path, everything)


def _read(path: Path, *, strict: bool = False) -> dict[str, dict[str, Choice]]:
    """Raises ValueError where the file is none of ours and `strict`; otherwise such a file has no choices."""
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["schema"] != 1:
            raise ValueError(f"schema {content['schema']}")
        return {
            where: {key: Choice(**choice) for key, choice in choices.items()}
            for where, choices in content["choices"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if strict:
            raise ValueError(f"{path} holds no choices of ops ({error}); write such a file with save().") from error
        return {}


def as_file(everything: Mapping[str, Mapping[str, Choice]]) -> dict[str, Any]:
    """Choices by environment and key, as a file of them has them."""
    choices = {where: {key: asdict(choice) for key, choice in some.items()} for where, some in everything.items()}
    return {"schema": 1, "choices": choices}


def _write(path: Path, everything: dict[str, dict[str, Choice]]) -> None:
    """As a whole or not at all: other processes read it meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        json.dump(as_file(everything), file, indent=1)
    Path(file.name).replace(path)
