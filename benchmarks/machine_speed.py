"""How fast the machine runs: executed thread-instructions a second, on one host thread and on two, and compile times.

The instructions are counted by the machine itself in a run with counters; times are the best of several of the whole
launch. `processor_seconds` are those of all host threads together, `seconds` went by on the wall: on a machine that is
busy with other things they say more about those. Speeds are of processor time; two host threads that other processes
leave alone come to twice the speed of each.

Compiling, of a file with this one kernel, in fresh processes: `first on a machine` has no objects at all; `first in a
process` has the runtime's and starts the worker process; `next in a process` finds all that running, as a second kernel
does; `kept` has the kernel's own object on disk. Each includes reading the PTX.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import llvmlite
import numpy as np

from results_file import RESULTS, Aim, write
from undertorch.gpus import find
from undertorch.simt import launch

KERNELS = Path(__file__).parent.parent / "tests" / "simt" / "kernels" / "classics.ptx"
LEVELS = ("none", "counters", "events")
GPU = "A100-80GB"
SMALL = ("naive_matmul", "tiled_matmul", "collatz")
"""Kernels of up to 300 statements."""


@dataclass(frozen=True, kw_only=True)
class Case:
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[object, ...]
    right: Callable[[], bool]


def cases(n: int) -> list[Case]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n, n)).astype(np.float32)
    product = a.astype(np.float64) @ b
    c = np.zeros((n, n), np.float32)

    def close() -> bool:
        return bool(np.abs(c - product).max() < 1e-3)

    ints = np.arange(1, 100_001, dtype=np.int32)
    steps = np.zeros_like(ints)
    table = rng.standard_normal(1 << 20).astype(np.float32)
    sums = np.zeros(1 << 16, np.float32)
    index = (np.arange(1 << 16)[:, None] * 4099 + np.arange(64) * 97) % table.size
    return [
        Case(kernel="naive_matmul", grid=(n // 32, n // 8), block=(32, 8), arguments=(a, b, c, n), right=close),
        Case(kernel="tiled_matmul", grid=(n // 32, n // 32), block=(32, 32), arguments=(a, b, c, n), right=close),
        Case(kernel="register_tiled_matmul", grid=(n // 128, n // 128), block=(256,), arguments=(a, b, c, n),
             right=close),
        Case(kernel="collatz", grid=(782,), block=(128,), arguments=(ints, steps, ints.size),
             right=lambda: bool(steps[26] == 111)),  # 27 takes 111 steps
        Case(kernel="strided_gather", grid=(512,), block=(128,), arguments=(table, sums, table.size, 4099),
             right=lambda: bool(np.allclose(sums, table[index].sum(1), atol=1e-3))),
    ]  # fmt: skip


def measure(case: Case, level: str, threads: int, times: int = 5) -> tuple[float, float, int | None]:
    """The least elapsed and processor time, and the thread-instructions where they are counted."""
    elapsed = processor = float("inf")
    instructions = None
    text = KERNELS.read_text()
    for _ in range(times):
        began, used = time.perf_counter(), time.process_time()
        result = launch(text, case.kernel, case.grid, case.block, case.arguments, gpu=find(GPU), instrument=level,
                        threads=threads)  # fmt: skip
        elapsed, processor = (
            min(elapsed, time.perf_counter() - began),
            min(processor, time.process_time() - used),
        )
        instructions = result.counters.thread_instructions if result.counters else None
    assert case.right(), case.kernel
    return elapsed, processor, instructions


COMPILE = """
import resource, sys, time
from undertorch.simt.codegen.objects import linker
from undertorch.simt.program import prepare
text = open(sys.argv[1]).read()
for tag in sys.argv[3:]:
    began, used = time.perf_counter(), time.process_time()
    prepare(f"// {tag}\\n{text}", sys.argv[2], "none")
    print(time.perf_counter() - began, time.process_time() - used)
linker().worker.close()
print(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]))
"""


def alone(kernel: str) -> str:
    """PTX with this kernel only."""
    text = KERNELS.read_text()
    head = text[: text.index(".address_size 64") + len(".address_size 64\n")]
    body = re.search(rf"(?ms)^\.visible \.entry {kernel}\(.*?^\}}", text)
    assert body is not None
    return head + body.group() + "\n" + "\n".join(re.findall(r"(?m)^\s*\.file.*$", text)) + "\n"


def compile_times(kernel: str, times: int) -> dict[str, object]:
    """Seconds elapsed and of processors (this process and the worker) in each state, the least of several."""
    best: dict[str, tuple[float, float]] = {}

    def timed(folder: str, names: list[str], *tags: str) -> None:
        command = [sys.executable, "-c", COMPILE, f"{folder}/kernel.ptx", kernel, *tags]
        environment = os.environ | {"UNDERTORCH_CACHE": folder}
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        worker = float(out.pop()) / max(1, len(tags))
        for name, elapsed, own in zip(names, out[::2], out[1::2], strict=True):
            found = (float(elapsed), float(own) + worker)
            best[name] = min(best.get(name, found), found)

    for number in range(times):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "kernel.ptx").write_text(alone(kernel))
            timed(folder, ["first on a machine"], "a")
            timed(folder, ["first in a process"], f"b{number}")
            timed(folder, ["", "next in a process"], f"c{number}", f"d{number}")
            timed(folder, ["kept"], "a")
    del best[""]
    statements = alone(kernel).count(";")
    return {"kernel": kernel, "ptx_statements": statements} | {
        f"{name}{unit}": round(value, 4)
        for name, values in best.items()
        for unit, value in zip((", seconds", ", processor seconds"), values, strict=True)
    }


IMPORT = (
    "import time; t = time.perf_counter(); import undertorch.simt, llvmlite.binding; print(time.perf_counter() - t)"
)


def import_seconds(times: int) -> float:
    """Importing what the machine needs, numpy and llvmlite among it, in a fresh process."""
    command = [sys.executable, "-c", IMPORT]
    return min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(times))


def peers() -> tuple[list[dict[str, object]], list[Aim]]:
    """What machine_peers.py last measured of other machines in software, where it has run here."""
    path = RESULTS / "machine_peers.json"
    if not path.is_file():
        return [], []
    content = json.loads(path.read_text())
    return content["rows"], [Aim(**aim) for aim in content["aims"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    size, times = given.size, given.times
    rows: list[dict[str, object]] = []
    speeds: dict[tuple[str, str, int], float] = {}
    for case in cases(size):
        *_, instructions = measure(case, "counters", 1, 1)
        assert instructions is not None
        for level in LEVELS:
            for threads in (1, 2):
                elapsed, processor, _ = measure(case, level, threads, times)
                speed = speeds[case.kernel, level, threads] = instructions / processor / 1e9
                rows.append({"kernel": case.kernel, "instrument": level, "threads": threads,
                             "seconds": round(elapsed, 4), "processor_seconds": round(processor, 4),
                             "thread_instructions": instructions,
                             "giga_per_processor_second": round(speed, 3)})  # fmt: skip
                print(rows[-1], flush=True)
    compiled = [compile_times(case.kernel, times) for case in cases(128)]
    imported = import_seconds(times)
    rows += [*compiled, {"import": "undertorch.simt, numpy and llvmlite", "seconds": round(imported, 3)}]
    aims = [
        Aim(what=f"tiled {size}³, {level}, thread-instructions a second of one thread", aim=f"{aim} G",
            got=f"{speeds['tiled_matmul', level, 1]:.2f} G", holds=speeds["tiled_matmul", level, 1] >= aim)
        for level, aim in zip(LEVELS, (2.5, 2.0, 1.0), strict=True)
    ]  # fmt: skip
    gather = speeds["strided_gather", "events", 1]
    aims.append(Aim(what="gather with events", aim="0.6 G", got=f"{gather:.2f} G", holds=gather >= 0.6))
    for state in ("next in a process", "first in a process"):
        times_of = {str(row["kernel"]): float(str(row[f"{state}, seconds"])) for row in compiled}
        slowest = max(SMALL, key=lambda kernel, times_of=times_of: times_of[kernel])
        aims.append(Aim(what=f"compile a small kernel, {state}, the slowest ({slowest})", aim="0.15 s",
                        got=f"{times_of[slowest]:.3f} s", holds=times_of[slowest] <= 0.15))  # fmt: skip
        large = times_of["register_tiled_matmul"]
        aims.append(Aim(what=f"compile register-tiled matmul (1,900 instructions), {state}", aim="1.5 s",
                        got=f"{large:.2f} s", holds=large <= 1.5))  # fmt: skip
    aims.append(Aim(what="import undertorch, numpy and llvmlite", aim="0.5 s", got=f"{imported:.2f} s",
                    holds=imported <= 0.5))  # fmt: skip
    other_rows, other_aims = peers()
    versions = {"python": platform.python_version(), "llvmlite": llvmlite.__version__, "numpy": np.__version__}
    write("machine_speed", rows + other_rows, aims + other_aims, versions)


if __name__ == "__main__":
    main()
