"""What the process that runs the script hands over: a trace of the profiler beside what the trace cannot hold.

Both stand in one folder, `FOLDER/trace.json.gz` and `FOLDER/measured.json`, so that a measurement can be kept and read
again without a GPU. Of several ranks each leaves `FOLDER/gpu_only.json.gz` as well: of some later steps, in which the
profiler followed the GPU alone.
"""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from undertorch.records import Argument, Phase, TensorRef, Where

TRACE = "trace.json.gz"
GPU_ONLY = "gpu_only.json.gz"
MEASURED = "measured.json"


def capture_name(number: int) -> str:
    """Name of the trace of a captured CUDA graph, in the same folder."""
    return f"capture_{number}.json.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be measured."""

    script: str
    """As the user named it; of a module its file."""
    module: str | None = None
    """Its dotted name where it is to run as by `python -m`."""
    arguments: tuple[str, ...]
    step: int | None
    """The one step that is to be shown, counted from 1; None: the ordinary plan (plan.py)."""
    folder: str
    """Where the result is put."""
    ranks: bool = False
    """Whether it is one of several ranks, whose plan goes on."""
    without_gpu: bool = False
    """Whether the CPU alone is profiled: for tests, on machines that have no GPU."""
    reached: str = ""
    """Where the process writes which step it has come to; nowhere where nobody wants to know."""


Described = tuple[str, tuple[int, ...], tuple[int, ...]]
"""A tensor's dtype without `torch.`, its shape and its strides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCall:
    """A call of one of undertorch's own ops, of which the profiler sees the kernels alone."""

    name: str
    """Such as `undertorch::rms_norm_forward`."""
    arguments: tuple[Argument, ...]
    """Under the names of its schema."""
    outputs: tuple[TensorRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What stood around a call of torch when it was made. A range in the trace names it by its number."""

    where: Where | None
    chain: tuple[Where, ...]
    module: str | None
    phase: Phase | None
    """None: the call was made by the autograd engine, and the trace tells which node ran."""
    microbatch: int | None
    lists: tuple[tuple[Described, ...], ...] = ()
    """Of arguments that are lists of tensors, which the profiler leaves out: each list's tensors."""
    memories: tuple[tuple[int, ...], ...] = ()
    """Of each of these tensors a number: the same for those that are one memory."""
    own: OwnCall | None = None
    """Where the range is one around a call of undertorch's own op."""
    what: str
    """`call`; `own` (of undertorch's own op); `backward` (a run of the autograd engine), `compiled` (a call of compiled
    code), `apply` (of a custom Function), `wait`, `triton`, `collective`, `replay N` (of the captured CUDA graph of
    that number), `replay` (of another)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """One call in the code that Inductor wrote, and the user's calls that it came from."""

    name: str
    """Of a kernel, `extern_kernels.mm`, `torch.ops.aten.…`; empty where Inductor did not say."""
    wheres: tuple[tuple[Where, ...], ...]
    """A chain each, the innermost frame first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of it."""

    error: str | None = None
    """Name of a class of steps/record/errors.py; None: nothing is wrong."""
    message: str | None = None
    script: str = ""
    arguments: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    """Numbers of the script's steps that were profiled in full, without the one in which the profiler settled."""
    warm_up: int = 0
    """Steps before the first that was timed."""
    timed_us: tuple[float, ...] = ()
    """Of each unprofiled step between the warm-up and the profile: from the end of the one before to its own end."""
    peak_bytes: int | None = None
    """Most bytes that the allocator held for tensors in the unprofiled steps; in the profiled where there were none."""
    start_bytes: int | None = None
    """Held when the first of them began."""
    samples: tuple[int | None, ...] = ()
    """Of each profiled step; None: not known."""
    marks: tuple[Mark, ...] = ()
    compiled: dict[str, tuple[Compiled, ...]] = field(default_factory=dict)
    """By the key of a compiled graph, as the trace names it: its calls in order."""
    sources: dict[str, str] = field(default_factory=dict)
    """Text of each file that a mark names."""
    gpu_name: str | None = None
    """As the driver names it."""
    driver: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    rank: int = 0
    world_size: int | None = None
    boundary: str | None = None
    """What was taken to end a step; None: an optimizer ended it."""
    ended_early: bool = False
    """Whether the script ended before all that was planned was measured."""
    steps_made: int = 0
    """How many steps were over when it ended."""
    gpu_only: tuple[int, ...] = ()
    """Numbers of the steps, one after the other, in which the profiler followed the GPU alone; the first is the one in
    which it settled. Empty where the script ended before the last of them."""
    apart: bool = False
    """Whether it is one of several ranks, and began the profiled steps without waiting for all others to come there."""


def write(folder: Path, measured: Measured) -> None:
    """Writes it whole or not at all."""
    aside = folder / f"{MEASURED}.part"
    aside.write_bytes(msgspec.json.encode(measured))
    aside.replace(folder / MEASURED)


def read(folder: Path) -> Measured | None:
    """None where the process handed nothing over."""
    path = folder / MEASURED
    return msgspec.json.decode(path.read_bytes(), type=Measured) if path.exists() else None
