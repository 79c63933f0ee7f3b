"""Arguments of a launch, and the memory that they give it."""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undertorch.simt.errors import BadLaunch
from undertorch.simt.ptx.instructions import Variable
from undertorch.simt.runtime.layout import BUFFER, READ_ONLY
from undertorch.simt.runtime.scalars import POINTER, is_memory, refuse_unreadable, takes_address, value

ALIGNMENT = 512
"""Of what cudaMalloc returns. Sectors are counted as if every buffer were aligned so."""
LEAST_ALIGNMENT = 16
"""Of a variable, whatever it asks for: as NumPy gives."""
FIRST_VIRTUAL = 0x7F0000000000


@dataclass(slots=True)
class Buffers:
    """Memory that a launch may touch, by host address. What lies elsewhere is a fault."""

    spans: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Start, bytes, flags, and how far behind an aligned address it starts."""
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of spans, by start and bytes."""
    keep: list[object] = field(default_factory=list)
    """What owns the memory."""

    def add(self, start: int, size: int, *, read_only: bool = False, owner: object = None, behind: int = 0) -> None:
        """One more, unless it is there already; of two that are the same the writable one counts.

        `behind`: bytes between the start of the allocation that it is a part of, and itself.
        """
        flags = READ_ONLY if read_only else 0
        self.keep.append(owner)
        number = self.numbers.setdefault((start, size), len(self.spans))
        if number == len(self.spans):
            self.spans.append((start, size, flags, behind % ALIGNMENT))
        else:
            base, length, held, phase = self.spans[number]
            self.spans[number] = (base, length, held & flags, phase)

    def table(self) -> "np.ndarray[Any, Any]":
        """As native code reads it."""
        rows = np.zeros(len(self.spans) + 1, BUFFER)
        if self.spans:
            starts, sizes, flags, phases = (np.array(column, np.uint64) for column in zip(*self.spans, strict=True))
            room = (phases + np.maximum(sizes, 1) + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT + ALIGNMENT
            before = np.concatenate(([0], np.cumsum(room)[:-1])).astype(np.uint64)
            own = rows[:-1]
            own["base"], own["bytes"], own["flags"] = starts, sizes, flags
            own["virtual"] = FIRST_VIRTUAL + before + phases
        return rows


Place = Callable[[object], int | None]
"""The address that stands for an argument, where it is memory; None where it is a value. Raises TypeError."""


def values(
    parameters: Sequence[Variable], arguments: Sequence[object], place: Place, names: Sequence[str] = ()
) -> list[bytes]:
    """Each parameter's bytes; `names`: in their source, where known. Raises BadLaunch for what does not fit."""
    if len(parameters) != len(arguments):
        takes = f"{len(parameters)} argument" + ("" if len(parameters) == 1 else "s")
        raise BadLaunch(f"The kernel takes {takes}, and {len(arguments)} were given.")
    out = []
    for number, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
        try:
            out.append(_bytes(parameter, argument, place))
        except (struct.error, OverflowError, RuntimeError, TypeError, ValueError) as error:  # RuntimeError: torch's
            raise BadLaunch(f"Argument {number}{_called(parameter, number, names)}: {error}") from None
    return out


def _called(parameter: Variable, number: int, names: Sequence[str]) -> str:
    """The name in the source; else that in the PTX, which is none where a compiler made it: `_Z5scalePfi_param_1`."""
    name = names[number] if number < len(names) else parameter.name
    return "" if name.endswith(f"_param_{number}") else f" ({name})"


def add_reachable(owners: Sequence[object], buffers: Buffers) -> None:
    """Adds arrays and tensors that a kernel may touch though no parameter is one of them."""
    for owner in owners:
        if isinstance(owner, np.ndarray):
            _array(owner, buffers)
        else:
            _tensor(owner, buffers)


def pack(
    parameters: Sequence[Variable], arguments: Sequence[object], buffers: Buffers, names: Sequence[str] = ()
) -> bytearray:
    """The parameters' bytes as the kernel reads them; what is memory is added to the launch's buffers."""

    def place(argument: object) -> int | None:
        if isinstance(argument, np.ndarray):
            return _array(argument, buffers)
        return _tensor(argument, buffers) if hasattr(argument, "untyped_storage") else None

    out = bytearray()
    for parameter, given in zip(parameters, values(parameters, arguments, place, names), strict=True):
        out += bytes(-len(out) % parameter.align) + given
    return out


def _bytes(parameter: Variable, argument: object, place: Place) -> bytes:
    """By the rules of runtime/scalars.py."""
    if not takes_address(parameter):
        return value(parameter, argument)
    if is_memory(argument):
        refuse_unreadable(argument)
        address = place(argument)
        return value(parameter, argument) if address is None else struct.pack("<Q", address)
    return bytes(POINTER) if argument is None else value(parameter, argument)


def _array(array: "np.ndarray[Any, Any]", buffers: Buffers) -> int:
    """Registers the memory that an array covers; the address of its first element."""
    low, high = np.lib.array_utils.byte_bounds(array)
    size, behind = high - low if array.size else 0, low - _allocation(array)
    buffers.add(low, size, read_only=not array.flags.writeable, owner=array, behind=behind)
    return int(array.__array_interface__["data"][0])


def _allocation(array: "np.ndarray[Any, Any]") -> int:
    """Where the memory starts that a view is a part of."""
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if hasattr(owner.base, "untyped_storage"):
        return int(owner.base.untyped_storage().data_ptr())
    return int(np.lib.array_utils.byte_bounds(owner)[0])


def _tensor(tensor: Any, buffers: Buffers) -> int:
    """As for an array: a torch tensor's whole storage."""
    if tensor.device.type != "cpu":
        raise TypeError(f"a tensor on {tensor.device} is not in this machine's memory; move it with .cpu()")
    storage = tensor.untyped_storage()
    buffers.add(storage.data_ptr(), storage.nbytes(), owner=tensor)
    return int(tensor.data_ptr())


def place_variables(
    variables: Sequence[Variable], known: "Mapping[str, np.ndarray[Any, Any]]"
) -> dict[str, "np.ndarray[Any, Any]"]:
    """Memory of global and const variables, with their initial values; `known` has those that were placed before.

    Raises BadLaunch where there is not enough.
    """
    try:
        memory = dict(known) | {v.name: aligned(max(v.size, 1), max(v.align, LEAST_ALIGNMENT)) for v in variables}
    except (MemoryError, ValueError):
        total = sum(v.size for v in variables)
        raise BadLaunch(f"The file's variables take {total} bytes, for which there is no memory.") from None
    for variable in variables:
        room = memory[variable.name]
        room[: len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
        for offset, name, plus in variable.pointers:
            address = (memory[name].ctypes.data + plus) % (1 << 64)
            room[offset : offset + 8] = np.frombuffer(struct.pack("<Q", address), np.uint8)
        for offset, name, plus, shift in variable.address_bytes:
            room[offset] = (memory[name].ctypes.data + plus) >> shift & 0xFF
    return memory


def aligned(size: int, alignment: int = 64) -> "np.ndarray[Any, Any]":
    """Zeroed bytes at an aligned address."""
    raw = np.zeros(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]
