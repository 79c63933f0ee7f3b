"""A kernel with its arguments, the opcodes that it tries, and what it has to leave in memory."""

from dataclasses import dataclass, field

import numpy as np

from simt.conformance.inputs import random_bits

HEAD = ".version 8.8\n.target sm_90\n.address_size 64"


@dataclass(frozen=True)
class Case:
    name: str
    forms: tuple[str, ...]
    ptx: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple
    """Arrays (memory, changed in place), numbers, bytes (structs by value)."""
    expected: dict[int, np.ndarray]
    """What an argument's memory holds afterwards."""
    kernel: str = "kernel"
    scratch: tuple[int, ...] = ()
    """Arguments whose memory nobody looks at."""
    free: dict[int, list[int]] = field(default_factory=dict)
    """Elements of an argument where any NaN will do."""
    unread: dict[int, list[int]] = field(default_factory=dict)
    """Elements of an argument that the ISA leaves open: what a lane reads that is not in the mask."""
    dynamic_shared: int = 0
    bounded: bool = False
    """The kernel uses approximations, so that another GPU's bits may differ."""
    kind: str = ""
    """Float type of results that are kept as words."""


def patterned(count, seed):
    """Bytes without any pattern."""
    return random_bits(seed, -(-count // 8)).view(np.uint8)[:count].copy()


def copied(arguments):
    """Fresh memory for a launch."""
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)


def on_machine(case, gpu, **options):
    """The arguments after a launch on the machine."""
    from undertorch.simt import launch

    arguments = copied(case.arguments)
    launch(
        case.ptx, case.kernel, case.grid, case.block, arguments, gpu=gpu, dynamic_shared=case.dynamic_shared, **options
    )
    return arguments


def differences(case, arguments):
    """Where memory differs from what it has to be: (argument, element, got, wanted)."""
    for number, expected in case.expected.items():
        got, wanted = arguments[number].ravel(), expected.ravel()
        wrong = np.flatnonzero(got != wanted)
        for at in wrong.tolist():
            if at in case.unread.get(number, ()):
                continue
            if at in case.free.get(number, ()) and is_nan(int(got[at]), 8 * got.itemsize):
                continue
            yield number, at, got[at], wanted[at]


def is_nan(raw, bits):
    """In any format of that width (of two halves: in either)."""
    if bits == 64:
        return raw & (1 << 63) - 1 > 0x7FF << 52
    if bits == 32:
        return raw & 0x7FFFFFFF > 0x7F800000 or any((raw >> s & 0x7FFF) > 0x7C00 for s in (0, 16))
    return (raw & 0x7FFF) > 0x7C00
