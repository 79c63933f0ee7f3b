"""Each barrier, fence, wait and atomic of working kernels taken out, one at a time: what check says of it.

A mutant is caught where check finds anything: of the whole kernel it finds nothing. The others are listed, with the
reason.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from undertorch.checks.arguments import arguments
from undertorch.checks.barriers import check_barriers
from undertorch.checks.check import Watch, merged
from undertorch.checks.memory import check_memory
from undertorch.checks.races import check_races
from undertorch.compilers.nvrtc import compile_cuda, nvrtc_version
from undertorch.gpus import find
from undertorch.simt import Deadlock, Fault, launch

pytestmark = pytest.mark.slow
KERNELS = Path(__file__).parents[1] / "simt/kernels"
TEXTS = [(KERNELS / name).read_text() for name in ("classics.ptx", "features.ptx", "cooperative.ptx")]


def integers(*shape):
    return np.random.default_rng(1).integers(-50, 50, shape, np.int32)


def floats(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def zeros(*shape):
    return np.zeros(shape, np.int32)


LAUNCHES = {
    "tiled_matmul": lambda: ((2, 2), (32, 32), (floats(64, 64), floats(64, 64), floats(64, 64), 64), 0),
    "register_tiled_matmul": lambda: (1, 256, (floats(128, 128), floats(128, 128), floats(128, 128), 128), 0),
    "conflicting_transpose": lambda: ((2, 2), (32, 32), (floats(64, 64), floats(64, 64), 64), 0),
    "padded_transpose": lambda: ((2, 2), (32, 32), (floats(64, 64), floats(64, 64), 64), 0),
    "reduce_interleaved": lambda: (2, 128, (integers(256), zeros(2), 256), 512),
    "reduce_strided": lambda: (2, 128, (integers(256), zeros(2), 256), 512),
    "reduce_sequential": lambda: (2, 128, (integers(256), zeros(2), 256), 512),
    "reduce_last_warp": lambda: (2, 128, (integers(512), zeros(2), 512), 512),
    "reduce_shuffle": lambda: (3, 128, (integers(1000), zeros(1), 1000), 0),
    "histogram": lambda: (3, 96, (integers(2000).astype(np.uint8), zeros(256), 2000), 0),
    "look_back_scan": lambda: (4, 256, (integers(1024), zeros(1024), zeros(4), zeros(4), 1024), 0),
    "spin_lock": lambda: (2, 2, (zeros(1), zeros(1)), 0),
    "grid_barrier": lambda: (4, 64, (zeros(1), integers(256), zeros(512), 256), 0),
    "double_buffer": lambda: (1, 128, (floats(7, 128, 4), floats(7, 128, 4), 7), 0),
    "named_barriers": lambda: (1, 128, (zeros(64),), 0),
    "generic_pointers": lambda: (1, 32, (integers(32), zeros(32)), 0),
    "copies": lambda: (1, 64, (floats(200), floats(200), 200), 256),
}
FAULTS = Path(__file__).parents[1] / "faults"
TWINS = (
    "buffer_used_again", "lock_let_go_early", "missing_fence", "missing_wait", "one_stage_too_few", "other_layout",
)  # fmt: skip
"""Planted faults whose mended twins are taken as well: locks, flags, and copies that are waited for."""
REMOVED = re.compile(
    r"\t(bar\.sync|bar\.arrive|barrier\.sync|bar\.warp\.sync|membar|fence|cp\.async\.wait|atom|red)\S*"
)
SPLIT = re.compile(r"\t(atom|red)\S*\.add\.(u32|s32)\s+(?:(%r\d+), )?\[(\S+)\], (\S+);")


def body(text, kernel):
    """Where a kernel's body starts and ends."""
    start = text.index(f".entry {kernel}(")
    return text.index("{", start), text.index("\n}", start)


def twin(name):
    """The mended twin of a fault: its PTX, its kernel's name, and how the file says that it is launched."""
    source = (FAULTS / f"{name}.cu").read_text(encoding="utf-8")
    words = source.split("\n")[1].removeprefix("// launch: ").split()
    given = list(zip(words[::2], words[1::2], strict=True))
    grid, block = (tuple(int(n) for n in dict(given)[option].split(",")) for option in ("--grid", "--block"))
    text = compile_cuda(source, ("-DMENDED",), name=f"{name}.cu")
    (kernel,) = re.findall(r"\.entry (\w+)\(", text)
    said = [value for option, value in given if option == "--arg"]
    return text, kernel, lambda: (grid, block, arguments(said).values, 0)


def mutants(text, kernel):
    """The whole file, then the file with one line of the kernel taken out; each with that line."""
    start, end = body(text, kernel)
    lines = text[start:end].split("\n")
    yield "", text
    for number, line in enumerate(lines):
        if not REMOVED.match(line):
            continue
        split = SPLIT.match(line)
        space = "shared" if ".shared" in line else "global"
        if split is not None:  # the update in two steps
            old = split[3] or "%rold"
            declared = [f"\t.reg .b32 %rold, %rnew;\n\tld.{space}.u32 {old}, [{split[4]}];"
                        f"\n\tadd.u32 %rnew, {old}, {split[5]};\n\tst.{space}.u32 [{split[4]}], %rnew;"]  # fmt: skip
        elif line.startswith(("\tatom", "\tred")):
            continue
        else:
            declared = []
        new = [*lines[:number], *(f"\t{{\n{text}\n\t}}" for text in declared), *lines[number + 1 :]]
        yield line.strip(), text[:start] + "\n".join(new) + text[end:]


def found(kernel, text, launched):
    """Kinds of what check finds in any of two orders of warps."""
    out = set()
    for seed in (None, 1):
        grid, block, values, shared = launched()
        watch, ended_by = Watch(), None
        try:
            launch(text, kernel, grid, block, values, gpu=find("A100-80GB"), dynamic_shared=shared, seed=seed,
                   instrument="events", on_start=watch.start, on_events=watch.take, time_limit=5,
                   patience=0.3)  # fmt: skip
        except (Fault, Deadlock) as error:
            ended_by = error
        told = watch.told(ended_by)
        said = [finding for check in (check_races, check_barriers, check_memory) for finding in check(told)]
        out |= {finding.kind for finding in merged(said)}
    return out


def silent(kernel, text, launched):
    """Number and instruction of each mutant of a kernel that check finds nothing in."""
    whole, *changed = mutants(text, kernel)
    assert not found(kernel, whole[1], launched)
    assert changed
    return {n: line.split()[0] for n, (line, mutant) in enumerate(changed) if not found(kernel, mutant, launched)}


def expected(name):
    return {number: line for number, (line, _) in SILENT.get(name, {}).items()}


@pytest.mark.parametrize("kernel", LAUNCHES)
def test_what_is_taken_out_is_missed(kernel):
    text = next(t for t in TEXTS if f".entry {kernel}(" in t)
    assert silent(kernel, text, LAUNCHES[kernel]) == expected(kernel)


@pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")
@pytest.mark.parametrize("name", TWINS)
def test_what_is_taken_out_of_a_mended_kernel_is_missed(name):
    text, kernel, launched = twin(name)
    assert silent(kernel, text, launched) == expected(name)


VOLATILE = "missed: all that it orders is volatile, which by the letter never races; only the order of values is lost"
NOT_RUN = "not reached: this launch has no tiles left for the loop behind the unrolled one"
SILENT = {
    "reduce_last_warp": {
        2: ("bar.warp.sync", "harmless: in this step lanes read words 32 to 63 and write words 0 to 31"),
        13: ("bar.warp.sync", "harmless: behind it thread 0 reads what it wrote itself"),
    },
    "look_back_scan": {17: ("membar.gl;", VOLATILE), 18: ("membar.gl;", VOLATILE)},
    "spin_lock": {0: ("membar.gl;", VOLATILE), 1: ("membar.gl;", VOLATILE)},
    "grid_barrier": {5: ("bar.sync", "harmless: what is written behind it nobody reads")},
    "named_barriers": {0: ("membar.cta;", "harmless: bar.arrive releases by itself")},
    "buffer_used_again": {0: ("bar.sync", "harmless: before the first round nobody has read the buffer")},
    "one_stage_too_few": {
        8: ("bar.sync", "harmless: behind it no further tile is copied"),
        11: ("bar.sync", "harmless: the last round's"),
        **{n: (name, NOT_RUN) for n, name in ((12, "cp.async.wait_group"), (13, "bar.sync"), (14, "bar.sync"))},
    },
}
"""Mutants that check is silent about: of 110 of 23 kernels 96 are found, 7 are harmless, 4 missed, 3 never reached."""
