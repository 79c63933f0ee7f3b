"""What a GPU answered, kept small, and the machine held against it.

For each result a hash of its bits, and one with every NaN made the same: the PTX ISA leaves a float64's payload open,
so a difference in it alone is told apart. Results of approximations keep their bits: they are compared in units of
the last place.
"""

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass

import numpy as np

from exact_floats import WIDTH
from simt.conformance import cases, programs
from simt.conformance.atomics import atomic_cases
from simt.conformance.forms import PLAIN
from simt.conformance.inputs import UNSIGNED
from simt.conformance.meaning import is_bounded
from simt.conformance.memory import load_cases, sent_cases, store_cases
from simt.conformance.numbers import KINDS
from simt.conformance.tensor import tensor_cases
from simt.conformance.warps import warp_cases
from simt.conformance.whole import whole_cases
from undertorch.simt.ptx.opcodes import NARROW, TENSOR, match

GOLDENS = {name: programs.GOLDEN / f"h200_{name}.json.gz" for name in ("ptx", "tensor")}
"""A file for each group of kernels."""
GOLDEN = GOLDENS["ptx"]
DIGITS = 12


@dataclass(frozen=True)
class Result:
    """The bits that one form, or one argument of a case, came out with."""

    name: str
    kind: str
    """A float type where NaN are to be told apart, else empty."""
    bits: np.ndarray
    bounded: bool


def plain_forms():
    """Opcodes whose results follow from registers alone, with their targets."""
    return {o: t for o, t in programs.real_forms().items() if match(o).form in PLAIN}


def tensor_forms():
    """Opcodes of tensor cores and of their moves, with their targets."""
    return {o: t for o, t in programs.real_forms().items() if match(o).form in (*TENSOR, *NARROW)}


def everything(group="ptx"):
    """(name, what is launched) of a group: cheap and safe ones first."""
    if group == "tensor":
        for case in tensor_cases(tensor_forms()):
            yield case.name, case
        return
    forms = programs.real_forms()
    for program in programs.plain_programs(plain_forms()):
        yield f"forms {program.name}", program
    made = (
        load_cases(forms),
        store_cases(forms),
        sent_cases(forms),
        atomic_cases(forms),
        warp_cases(forms),
        whole_cases(),
    )
    for cases_of_kind in made:
        for case in cases_of_kind:
            yield case.name, case


def results(item, launch):
    """Runs one and reads its results. `launch(ptx, kernel, grid, block, arguments, shared)` changes arrays in place."""
    if isinstance(item, programs.Program):
        output = np.zeros(item.output_bytes, np.uint8)
        launch(item.ptx, "kernel", item.grid, item.block, (*(i.copy() for i in item.inputs), output), 0)
        for number, part in enumerate(item.results):
            twice = item.results[number - 1].form == part.form if number else False
            kind = part.kind if part.kind.removesuffix("x2") in WIDTH else ""
            yield Result(f"{part.form}{' second' if twice else ''}", kind, part.of(output), is_bounded(part.opcode))
        return
    arguments = cases.copied(item.arguments)
    launch(item.ptx, item.kernel, item.grid, item.block, arguments, item.dynamic_shared)
    for number, argument in enumerate(arguments):
        if not isinstance(argument, np.ndarray) or number in item.scratch:
            continue
        flat = argument.ravel()
        bits = flat.view(UNSIGNED.get(8 * flat.itemsize, np.uint8)).copy()
        for at in item.unread.get(number, ()):
            bits[at] = 0
        for at in item.free.get(number, ()):
            bits[at] = 0 if cases.is_nan(int(bits[at]), 8 * bits.itemsize) else bits[at]
        kind = item.kind or {"float16": "f16", "float32": "f32", "float64": "f64"}.get(str(flat.dtype), "")
        yield Result(f"{item.name} [{number}]", kind, bits, item.bounded)


def digest(item):
    """Of a kernel and what it is given: a recording of another one says nothing about it."""
    arguments = item.inputs if isinstance(item, programs.Program) else item.arguments
    whole = hashlib.sha256(f"{item.ptx}{item.grid}{item.block}".encode())
    for argument in arguments:
        whole.update(argument.tobytes() if isinstance(argument, np.ndarray) else repr(argument).encode())
    return whole.hexdigest()[:DIGITS]


def one_nan(bits, kind):
    """Every NaN of a float type as the canonical one."""
    if not kind:
        return bits
    if kind.endswith("x2"):
        return one_nan(bits.view(np.uint16), kind.removesuffix("x2"))
    infinity = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}[kind]
    top = 1 << (WIDTH[kind] - 1)
    size = bits & bits.dtype.type(top - 1)
    return np.where(size > infinity, bits.dtype.type(top - 1), bits)


def summary(result):
    """As it is kept: two hashes, or the bits."""
    if result.bounded:
        return {"kind": result.kind, "bits": base64.b64encode(result.bits.tobytes()).decode()}
    whole, same = (
        hashlib.sha256(b.tobytes()).hexdigest()[:DIGITS] for b in (result.bits, one_nan(result.bits, result.kind))
    )
    return [whole] if whole == same else [whole, same]


def ulps(kind, a, b):
    """How many numbers lie between two results, at most; NaN of any payload are the same, and ±0."""
    if kind.endswith("x2"):
        return ulps(kind.removesuffix("x2"), a.view(np.uint16), b.view(np.uint16))
    a, b = one_nan(a, kind), one_nan(b, kind)
    top = 1 << (WIDTH[kind] - 1)

    def place(bits):
        return [-(v & top - 1) if v & top else v for v in bits.tolist()]

    return max((abs(x - y) for x, y in zip(place(a), place(b), strict=True)), default=0)


@dataclass(frozen=True)
class Verdict:
    """How one result compares with the golden one."""

    name: str
    held: str
    """`exact`, `payload` (only NaN payloads differ), `bounded`, or `differs`."""
    ulps: int = 0


def compared(result, golden):
    """One result beside what a GPU answered."""
    if result.bounded:
        bits = np.frombuffer(base64.b64decode(golden["bits"]), result.bits.dtype)
        return Verdict(result.name, "bounded", ulps(result.kind or "f32", result.bits, bits))
    mine = summary(result)
    if mine[0] == golden[0]:
        return Verdict(result.name, "exact")
    return Verdict(result.name, "payload" if mine[-1] == golden[-1] else "differs")


def told_apart(result, golden):
    """Results whose bits are kept, beside what a GPU answered: where they differ; NaN are all one."""
    bits = np.frombuffer(base64.b64decode(golden["bits"]), result.bits.dtype)
    mine, theirs = (one_nan(b, result.kind) for b in (result.bits, bits))
    return mine != theirs


def by_tile(differs):
    """How many results differ on each kind of tiles."""
    parts = differs.reshape(len(KINDS), -1).sum(axis=1).tolist()
    return {kind: count for kind, count in zip(KINDS, parts, strict=True) if count}


def read(path=GOLDEN):
    return json.loads(gzip.decompress(path.read_bytes()))


def write(path, content):
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps(content, indent=0, sort_keys=True).encode())


def machine(gpu):
    """A launcher for `results`."""

    def launch(ptx, kernel, grid, block, arguments, shared):
        from undertorch.simt import launch as on_machine

        on_machine(ptx, kernel, grid, block, arguments, gpu=gpu, dynamic_shared=shared, mma="exact")

    return launch
