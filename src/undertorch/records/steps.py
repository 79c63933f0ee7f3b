"""A Step: the Ops and Launches of one training step on one GPU; a Recording: what is known before a GPU is named."""

from dataclasses import dataclass, field
from enum import StrEnum

from undertorch.records.launches import Launch
from undertorch.records.ops import Op, Where
from undertorch.records.origins import Origin

UNCOMPILED = "torch.compile left the model as it is"
"""Begins the assumption that stands at the line of a script that compiles, where the step is that of eager code."""

UNCOMPILED_FUNCTION = "torch.compile left the function as it is"
"""The same of a function of the script's: it stands where that begins, under its name."""

WRITTEN_BY_INDUCTOR = "the compiled code's kernels are those that Inductor writes"
"""Begins the assumption that stands at the line of a script that compiles, where the step is that of compiled code."""

WITHOUT_GRAPHS = "without CUDA graphs"
"""Stands in either where the mode in which the script compiles launches what it compiled by CUDA graphs."""

NOT_COMPILED = "could not be compiled here"
"""Stands in the assumption that names a part of such a script which is shown as it runs without."""

UNCAPTURED = "a CUDA graph was not captured"
"""Begins the assumption that stands at the line of a script that captures one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something answered without its value being computed, so that the script goes on."""

    where: Where | None
    what: str
    """One sentence: what was asked, what was answered, and how to have another answer."""
    count: int = 1
    """How often, in the whole run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """Bytes alive on the device just after an Op."""

    op: int
    """Id of the Op."""
    live_bytes: int
    """Storages alive, each rounded up to 512 bytes as torch's caching allocator does
    (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What device memory a step needs. Without the CUDA context, library workspaces and fragmentation."""

    peak_bytes: int | None
    """Most bytes alive at once; None where it is unknown."""
    peak_op: int | None
    """Id of the Op after which it was reached."""
    start_bytes: int | None
    """Bytes alive when the step began: parameters, optimizer state, buffers."""
    samples: tuple[MemorySample, ...] = ()
    """In the order of the Ops; Ops that change nothing are left out."""
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the figures hold for."""

    gpu_name: str | None = None
    """As the driver names the GPU; None where nothing ran on one."""
    driver: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    """Of undertorch, python, torch and what else decided something."""
    script: str
    arguments: tuple[str, ...] = ()
    step: int
    """Which of the script's steps this is, counted from 1."""
    sources: dict[str, str] = field(default_factory=dict)
    """Text of each file that an Op's `where` names, by that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One training step as the script made it. It names the GPU that the script was told it runs on, and no times."""

    gpu: str
    ops: tuple[Op, ...]
    memory: Memory
    samples: int | None
    """Samples that the step trains on, over all microbatches: those that each one's first model is called with. None:
    unknown."""
    assumptions: tuple[Assumption, ...]
    environment: Environment


class IdleCause(StrEnum):
    """Why the GPU waits."""

    LAUNCH = "launch"
    """The CPU is too slow in launching."""
    SYNC = "sync"
    """The script waits for the GPU (`.item()`, a copy to the host) and the queue runs dry."""
    DATA = "data"
    """The next batch is not there."""
    COMMUNICATION = "communication"
    GAP = "gap"
    """From the end of one kernel to the start of the next with the queue full: the GPU's own."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """An interval in which no launch runs."""

    start_us: float
    time_us: float
    cause: IdleCause
    where: Where | None = None
    """The line that caused it, where one did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing worth changing in the script, with what it would save."""

    kind: str
    lines: tuple[Where, ...]
    saves_us: float | None
    saves_bytes: int | None
    what: str
    op: str | None
    """The undertorch op that does it, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """What the table leaves out, by name and count, so that nothing is silently zero."""

    launches: int
    time_with_line: float | None
    """Share of the launches' time that has a source line, 0 to 1; None where no launch has a time."""
    ops_without_cost: tuple[str, ...] = ()
    """Names of Ops for which no kernels are known, each once, sorted."""
    ops_without_cost_count: int = 0
    """How many Ops those names stand for."""
    assumed: tuple[Assumption, ...] = ()
    lost_launches: int = 0
    """Launches that a profiler lost."""
    repaired: int = 0
    """Damaged events that were mended in reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One training step on one GPU: what ran (or would run), for which line, how long."""

    gpu: str
    """Name of the spec sheet."""
    step_us: float | None
    """Wall time of the step."""
    time_origin: Origin
    """Of step_us and every launch's time."""
    samples: int | None
    ops: tuple[Op, ...]
    launches: tuple[Launch, ...]
    """In order of their start."""
    idle: tuple[Idle, ...] = ()
    memory: Memory
    advice: tuple[Advice, ...] = ()
    accounting: Accounting
    environment: Environment
