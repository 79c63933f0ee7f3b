"""What an event of a profiler's trace is called, each field once: Kineto's Chrome trace, as torch.profiler exports it.

Names as libkineto writes them (output_json.cpp) and torch's own events (torch/csrc/profiler). Only what is read is
decoded; everything else in the file (the machine's environment among it) is skipped.
"""

from enum import Enum, auto
from math import isfinite
from typing import Any

import msgspec


class Is(Enum):
    """What an event tells of."""

    KERNEL = auto()
    MEMCPY = auto()
    MEMSET = auto()
    CALL = auto()
    """One call into ATen or into another of torch's dispatched functions."""
    LAUNCH = auto()
    """A call into the CUDA or HIP runtime or driver."""
    RANGE = auto()
    """record_function, ProfilerStep#, Optimizer.step#."""
    PYTHON = auto()
    """A Python function or an nn.Module's forward (with_stack)."""
    MEMORY = auto()
    """An allocation (profile_memory)."""


CATEGORIES = {
    "kernel": Is.KERNEL,
    "gpu_memcpy": Is.MEMCPY,
    "gpu_memset": Is.MEMSET,
    "cpu_op": Is.CALL,
    "cuda_runtime": Is.LAUNCH,
    "cuda_driver": Is.LAUNCH,
    "user_annotation": Is.RANGE,
    "python_function": Is.PYTHON,
    "cpu_instant_event": Is.MEMORY,
    # Of torch before 1.13.
    "Kernel": Is.KERNEL,
    "Memcpy": Is.MEMCPY,
    "Memset": Is.MEMSET,
    "Operator": Is.CALL,
    "Runtime": Is.LAUNCH,
}
ON_GPU = frozenset({Is.KERNEL, Is.MEMCPY, Is.MEMSET})

Count = int | float | str | None
"""A number, which some versions write as text."""


class Args(msgspec.Struct, kw_only=True, gc=False):
    """What an event says beside its name and time; each kind of event has a few of them."""

    external: Count = msgspec.field(name="External id", default=None)
    external_before: Count = msgspec.field(name="external id", default=None)
    """The same, before torch 1.13."""
    correlation: Count = None
    """Of something on the GPU and of the call that launched it."""
    device: Count = None
    stream: Count = None
    grid: list[int] | str | None = None
    block: list[int] | str | None = None
    registers: Count = msgspec.field(name="registers per thread", default=None)
    shared: Count = msgspec.field(name="shared memory", default=None)
    """Bytes of a block, static and dynamic."""
    bytes: Count = None
    """Of a memcpy or memset."""
    size: Count = None
    """The same, of AMD's call that copies."""
    sequence: Count = msgspec.field(name="Sequence number", default=None)
    """Of an autograd node: a forward call's own, a backward call's the one of its forward."""
    forward_thread: Count = msgspec.field(name="Fwd thread id", default=None)
    """0 for a forward call."""
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    types: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    strides: msgspec.Raw = msgspec.field(name="Input Strides", default=msgspec.Raw())
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())
    """These four describe a call's arguments (record_shapes), one entry each."""
    allocated: Count = msgspec.field(name="Total Allocated", default=None)
    """Bytes alive after an allocation, as torch's allocator counts them."""
    device_type: Count = msgspec.field(name="Device Type", default=None)
    """0 is the CPU."""
    collective: str | None = msgspec.field(name="Collective name", default=None)
    """This and what follows describe a collective; names as torch/csrc/profiler/util.h has them."""
    elements: Count = msgspec.field(name="In msg nelems", default=None)
    element_type: str | None = msgspec.field(name="dtype", default=None)
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    group_number: Count = msgspec.field(name="Process Group ID", default=None)
    """The same, before torch 2.2."""
    group_ranks: str | list[int] | None = msgspec.field(name="Process Group Ranks", default=None)
    group_sequence: Count = msgspec.field(name="Seq", default=None)


class Event(msgspec.Struct, kw_only=True, gc=False):
    """One line of the trace."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: float | None = None
    """Start, in microseconds, from any moment."""
    dur: float | None = None
    args: Args | None = None


class Device(msgspec.Struct, kw_only=True, gc=False):
    """A GPU of the machine."""

    id: int | None = None
    name: str | None = None


class Distributed(msgspec.Struct, kw_only=True, gc=False):
    """Which rank of how many recorded the file."""

    rank: int | None = None
    world_size: int | None = None


class Head(msgspec.Struct, kw_only=True, gc=False):
    """What a file says beside its events."""

    devices: list[Device] | None = msgspec.field(name="deviceProperties", default=None)
    schema: Any = msgspec.field(name="schema", default=None)
    """Of a Step that undertorch wrote, which is no trace."""
    cuda: int | None = msgspec.field(name="cuda_runtime_version", default=None)
    hip: int | None = msgspec.field(name="hip_runtime_version", default=None)
    driver: int | None = msgspec.field(name="cuda_driver_version", default=None)
    distributed: Distributed | None = msgspec.field(name="distributedInfo", default=None)
    base: Count = msgspec.field(name="baseTimeNanoseconds", default=None)
    """The moment that starts count from, since 1970; of older versions starts are from 1970 themselves."""


class File(Head, kw_only=True, gc=False):
    """A file, or a piece of one."""

    events: list[Event] | None = msgspec.field(name="traceEvents", default=None)


DIGITS = 20
"""Of the largest number of 64 bits."""


def printable(text: str) -> str:
    """Without what moves a terminal's cursor, sets its colours or turns the direction of writing."""
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    )


def number(value: Count) -> int | None:
    """Of a field that some versions write as text; None where it is absent or no number that 64 bits can be."""
    if isinstance(value, str):
        digits = value.strip()
        return int(digits) if digits.isdecimal() and len(digits) <= DIGITS else None
    return int(value) if isinstance(value, int | float) and isfinite(value) else None
