"""Launches of kernels that a front end compiled, kept so that anybody can run them again: PTX, sizes, arguments.

Whole kernels of Triton are held against a GPU so (tests/simt/triton/whole_kernels.py): one file has the PTX and what
each launch is given, another one what a GPU made of it. Neither Triton nor torch is needed to run them on the machine.
"""

import base64
import hashlib
import json
from dataclasses import asdict, dataclass
from math import prod

import numpy as np

from simt.conformance import programs
from simt.conformance.replay import DIGITS, read

KERNELS = programs.GOLDEN / "triton_kernels.json.gz"
GOLDEN = programs.GOLDEN / "h200_triton.json.gz"


# -- how a tensor is filled


@dataclass(frozen=True)
class Drawn:
    """Multiples of 2^-23 in [-scale, scale), from a generator whose bits no version of NumPy changes."""

    seed: int
    shape: tuple
    dtype: str
    scale: float


@dataclass(frozen=True)
class Integers:
    seed: int
    shape: tuple
    dtype: str
    low: int
    high: int
    """Not reached."""


@dataclass(frozen=True)
class Filled:
    shape: tuple
    dtype: str
    value: float = 0


@dataclass(frozen=True)
class Addresses:
    """Of other buffers of the case, as int64."""

    buffers: tuple


@dataclass(frozen=True)
class Exactly:
    """Bytes, of what a case fills by hand."""

    shape: tuple
    dtype: str
    bytes: str


FILLS = {kind.__name__: kind for kind in (Drawn, Integers, Filled, Addresses, Exactly)}


def raw(seed, count):
    """Words of 64 random bits."""
    return np.random.PCG64(seed).random_raw(count)


def bits_of_bfloat16(values):
    """Rounded to nearest, ties to even; values are finite."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)


def stored(values, dtype):
    """As they lie in memory; bfloat16, which NumPy has not, as uint16."""
    return bits_of_bfloat16(values) if dtype == "bfloat16" else np.ascontiguousarray(values).astype(dtype)


def filled(fill, addresses):
    """The array that a buffer starts as. `addresses`: of buffers by name."""
    if isinstance(fill, Addresses):
        return np.array([addresses[name] for name in fill.buffers], np.int64)
    if isinstance(fill, Exactly):
        kind = np.uint16 if fill.dtype == "bfloat16" else np.dtype(fill.dtype)
        return np.frombuffer(base64.b64decode(fill.bytes), kind).reshape(fill.shape).copy()
    count = prod(fill.shape)
    if isinstance(fill, Drawn):
        values = (raw(fill.seed, count) >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1
        return stored(values * fill.scale, fill.dtype).reshape(fill.shape)
    if isinstance(fill, Integers):
        words = raw(fill.seed, count) >> np.uint64(16)
        return stored((words % np.uint64(fill.high - fill.low)).astype(np.int64) + fill.low, fill.dtype).reshape(
            fill.shape
        )
    return stored(np.full(fill.shape, fill.value), fill.dtype)


def widened(array, dtype):
    """The numbers, as float64; integers as they are."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


# -- launches


@dataclass(frozen=True)
class Launched:
    ptx: str
    """Its digest; the text is kept once."""
    kernel: str
    grid: tuple
    threads: int
    shared: int
    arguments: tuple
    """["buffer", name, offset in bytes], ["int", n], ["float", hexadecimal], ["float32", hexadecimal], ["bytes",
    hexadecimal] or ["none"]."""


@dataclass(frozen=True)
class Sequence:
    """One case: its buffers in order, and its launches."""

    name: str
    buffers: dict
    """How each is filled, by name."""
    launches: tuple

    @property
    def dtypes(self):
        return {name: getattr(fill, "dtype", "int64") for name, fill in self.buffers.items()}

    def digest(self, texts):
        """Of all that a GPU is given: a recording of another one says nothing about it."""
        whole = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode())
        for launched in self.launches:
            whole.update(texts[launched.ptx].encode())
        return whole.hexdigest()[:DIGITS]


def described(value):
    """A number as an argument of JSON."""
    if value is None:
        return ["none"]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, np.float32):
        return ["float32", float(value).hex()]
    return ["float", value.hex()] if isinstance(value, float) else ["int", int(value)]


def number(kind, *rest):
    made = {
        "none": lambda: None,
        "bytes": lambda: bytes.fromhex(rest[0]),
        "float32": lambda: np.float32(float.fromhex(rest[0])),
        "float": lambda: float.fromhex(rest[0]),
        "int": lambda: rest[0],
    }
    return made[kind]()


def sequences(path=KERNELS):
    """(cases, PTX by digest, what the file says of itself)."""
    content = read(path)
    cases = []
    for name, one in content["cases"].items():
        fills = {}
        for buffer, (kind, given) in one["buffers"].items():
            fills[buffer] = FILLS[kind](**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
        launches = tuple(
            Launched(**{k: tuple(v) if isinstance(v, list) else v for k, v in launch.items()})
            for launch in one["launches"]
        )
        cases.append(Sequence(name, fills, launches))
    return cases, content["ptx"], content


def content_of(cases, texts):
    """As it is kept."""
    return {
        "ptx": texts,
        "cases": {
            one.name: {
                "buffers": {name: [type(fill).__name__, asdict(fill)] for name, fill in one.buffers.items()},
                "launches": [asdict(launched) for launched in one.launches],
            }
            for one in cases
        },
    }


def ran(sequence, texts, launch):
    """All buffers after the last launch, by name. `launch(ptx, kernel, grid, block, arguments, shared, arrays)` changes
    the memory that it holds; `launch.memory(array)` puts an array where it can reach it, `.address` and `.read` say
    where, and what is there."""
    held = {}
    for name, fill in sequence.buffers.items():
        addresses = {other: launch.address(memory) for other, memory in held.items()}
        held[name] = launch.memory(filled(fill, addresses))
    for launched in sequence.launches:
        arguments = [
            launch.part(held[given[1]], given[2]) if given[0] == "buffer" else number(*given)
            for given in launched.arguments
        ]
        launch(
            texts[launched.ptx], launched.kernel, tuple(launched.grid), (launched.threads, 1, 1), arguments,
            launched.shared, list(held.values()),
        )  # fmt: skip
    return {
        name: launch.read(memory) for name, memory in held.items() if not isinstance(sequence.buffers[name], Addresses)
    }


class OnMachine:
    """Runs launches on the machine, as one GPU."""

    def __init__(self, gpu, mma):
        self.gpu, self.mma = gpu, mma

    memory = staticmethod(lambda array: array)
    read = staticmethod(lambda array: array)
    address = staticmethod(lambda array: array.ctypes.data)

    @staticmethod
    def part(array, offset):
        """From a byte on."""
        return array if offset == 0 else array.reshape(-1).view(np.uint8)[offset:]

    def __call__(self, ptx, kernel, grid, block, arguments, shared, arrays):
        from undertorch.simt import launch

        launch(
            ptx, kernel, grid, block, arguments, gpu=self.gpu, dynamic_shared=shared, mma=self.mma, reachable=arrays
        )  # fmt: skip
