"""Kernels that try forms: one loads its operands once and applies up to 40 forms that take the same ones."""

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simt.conformance.forms import Written, width, written
from simt.conformance.inputs import COUNT, UNSIGNED, operand

GOLDEN = Path(__file__).parents[2] / "golden"
BLOCK = 128
MOST = 40
VERSION = "8.8"
REGISTER = {1: "%q", 16: "%h", 32: "%r", 64: "%l"}
SMALL = {8: ("u8", "b8"), 16: ("b16", "b16"), 32: ("b32", "b32"), 64: ("b64", "b64")}


@dataclass(frozen=True)
class Slice:
    """Where one result of one form lies in a program's output."""

    form: str
    opcode: str
    kind: str
    start: int
    size: int
    """Bytes of one element."""

    def of(self, output):
        return output[self.start : self.start + self.size * COUNT].view(UNSIGNED[8 * self.size])


@dataclass(frozen=True)
class Program:
    """One launch: a kernel named `kernel` whose arguments are the inputs' addresses and the output's."""

    name: str
    ptx: str
    inputs: tuple[np.ndarray, ...]
    output_bytes: int
    results: tuple[Slice, ...]
    trials: tuple[Written, ...] = ()
    grid: tuple[int, int, int] = (COUNT // BLOCK, 1, 1)
    block: tuple[int, int, int] = (BLOCK, 1, 1)


def real_forms():
    """Opcodes that ptxas takes, with the least target of each."""
    golden = json.loads(gzip.decompress((GOLDEN / "ptx_forms.json.gz").read_bytes()))
    return {**dict.fromkeys(golden["sm_90"], "sm_90"), **dict.fromkeys(golden["sm_80"], "sm_80")}


def trials_by_kind(opcodes):
    """Ways of trying opcodes, with those that take the same operands on the same target together."""
    groups = defaultdict(list)
    for opcode, target in opcodes.items():
        for trial in written(opcode):
            groups[target, trial.sources].append(trial)
    return groups


def plain_programs(opcodes):
    """Programs for opcodes (with their targets) whose results follow from registers alone."""
    for (target, sources), trials in sorted(trials_by_kind(opcodes).items()):
        for first in range(0, len(trials), MOST):
            yield _program(target, sources, tuple(trials[first : first + MOST]), first)


def _program(target, sources, trials, first):
    inputs = tuple(operand(kind, place) for place, kind in enumerate(sources))
    lines, at, slices = [], 0, []
    for place, (kind, values) in enumerate(zip(sources, inputs, strict=True)):
        size = values.itemsize
        lines += [f"ld.param.u64 %p, [given_{place}];", f"mad.wide.u32 %p, %t, {size}, %p;"]
        if kind == "pred":
            lines += ["ld.global.b32 %r9, [%p];", f"setp.ne.u32 %q{place}, %r9, 0;"]
        else:
            lines.append(f"ld.global.b{8 * size} {REGISTER[8 * size]}{place}, [%p];")
    lines.append("ld.param.u64 %out, [given_out];")
    for trial in trials:
        names = {x: f"{REGISTER[width(k)]}{n}" for n, (x, k) in enumerate(zip("abce", trial.sources, strict=False))}
        for number, (letter, kind) in enumerate(zip("df", trial.results, strict=False), 5):
            names[letter] = f"{REGISTER[width(kind)]}{number}"
        lines += trial.text.format(**names).split("\n")
        for letter, kind in zip("df", trial.results, strict=False):
            register, size = names[letter], max(16, width(kind)) // 8
            if kind == "pred":
                size = 4
                lines.append(f"selp.b32 %r9, 1, 0, {register};")
                register = "%r9"
            lines += [f"mad.wide.u32 %p, %t, {size}, %out;", f"st.global.b{8 * size} [%p+{at}], {register};"]
            slices.append(Slice(trial.name, trial.opcode, kind, at, size))
            at += size * COUNT
    parameters = ", ".join(f".param .u64 given_{n}" for n in [*range(len(sources)), "out"])
    body = "\n".join(lines)
    ptx = f""".version {VERSION}
.target {target}
.address_size 64
.visible .entry kernel({parameters})
{{
.reg .pred %q<10>; .reg .b16 %h<10>; .reg .b32 %r<10>, %t, %n; .reg .b64 %l<10>, %p, %out; .reg .b128 %w<2>;
mov.u32 %t, %ctaid.x; mov.u32 %n, %ntid.x; mul.lo.u32 %t, %t, %n; mov.u32 %n, %tid.x; add.u32 %t, %t, %n;
{body}
ret;
}}
"""
    name = f"{'.'.join(sources)} {first} {target}"
    return Program(name, ptx, inputs, at, tuple(slices), trials)


def on_machine(program, gpu, **options):
    """The output's bytes after a launch on the machine."""
    from undertorch.simt import launch

    output = np.zeros(program.output_bytes, np.uint8)
    launch(program.ptx, "kernel", program.grid, program.block, (*program.inputs, output), gpu=gpu, **options)
    return output
