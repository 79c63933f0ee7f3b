"""How fast the machine runs: executed thread-instructions a second, on one host thread and on two, and compile times.

The instructions are counted by the machine itself in a run with counters; times are the best of three of the whole
launch: processor time on one thread, elapsed time on two. `cold` compiles with an empty cache of objects (the worker
process is started before), `cached` loads from disk in a fresh process.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import llvmlite
import numpy as np

from results_file import Aim, write
from undertorch.gpus import find
from undertorch.simt import launch

KERNELS = Path(__file__).parent.parent / "tests" / "simt" / "kernels" / "classics.ptx"
LEVELS = ("none", "counters", "events")
GPU = "A100-80GB"


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


def measure(case: Case, level: str, threads: int) -> tuple[float, int | None]:
    best, instructions = float("inf"), None
    text = KERNELS.read_text()
    for _ in range(3):
        clock = time.process_time if threads == 1 else time.perf_counter
        began = clock()
        result = launch(text, case.kernel, case.grid, case.block, case.arguments, gpu=find(GPU), instrument=level,
                        threads=threads)  # fmt: skip
        best = min(best, clock() - began)
        instructions = result.counters.thread_instructions if result.counters else None
    assert case.right(), case.kernel
    return best, instructions


COMPILE = """
import sys, time
from undertorch.simt.codegen.objects import linker
from undertorch.simt.program import prepare
text = open(sys.argv[1]).read()
prepare(text, "doubling", "none")
for kernel in sys.argv[2:]:
    began = time.perf_counter()
    prepare(text, kernel, "none")
    print(time.perf_counter() - began)
"""


def compile_times(kernels: list[str]) -> list[dict[str, object]]:
    """Of a fresh process whose worker runs: without cached objects, and with them."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for kernel in kernels:
            environment = os.environ | {"UNDERTORCH_CACHE": folder}
            # Another kernel with the same runtime functions first: register_tiled and tiled share theirs.
            times = []
            for _ in range(2):
                command = [sys.executable, "-c", COMPILE, str(KERNELS), kernel]
                times.append(
                    float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
                )
            rows.append({"kernel": kernel, "cold_seconds": round(times[0], 4), "cached_seconds": round(times[1], 4)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512)
    size = parser.parse_args().size
    rows: list[dict[str, object]] = []
    speeds: dict[tuple[str, str, int], float] = {}
    for case in cases(size):
        _, instructions = measure(case, "counters", 1)
        assert instructions is not None
        for level in LEVELS:
            for threads in (1, 2):
                seconds, _ = measure(case, level, threads)
                speeds[case.kernel, level, threads] = instructions / seconds / 1e9
                speed = instructions / seconds / 1e9
                rows.append({"kernel": case.kernel, "instrument": level, "threads": threads,
                             "seconds": round(seconds, 4),
                             "thread_instructions": instructions, "giga_per_second": round(speed, 3)})  # fmt: skip
                print(rows[-1], flush=True)
    compiled = compile_times([case.kernel for case in cases(128)])
    rows += compiled
    aims = [
        Aim(what=f"tiled {size}³, {level}", aim=f"{aim} G thread-instructions a second",
            got=f"{speeds['tiled_matmul', level, 1]:.2f} G", holds=speeds["tiled_matmul", level, 1] >= aim)
        for level, aim in zip(LEVELS, (2.5, 2.0, 1.0), strict=True)
    ]  # fmt: skip
    gather = speeds["strided_gather", "events", 1]
    aims.append(Aim(what="gather with events", aim="0.6 G", got=f"{gather:.2f} G", holds=gather >= 0.6))
    by_name = {str(row["kernel"]): float(str(row["cold_seconds"])) for row in compiled}
    small = max(seconds for kernel, seconds in by_name.items() if kernel != "register_tiled_matmul")
    large = by_name["register_tiled_matmul"]
    aims += [
        Aim(what="compile a small kernel, cold, with the runtime's functions that it is the first to use, slowest",
            aim="0.15 s", got=f"{small:.2f} s", holds=small <= 0.15),
        Aim(what="compile register-tiled matmul (2,600 instructions), cold, likewise", aim="1.5 s",
            got=f"{large:.2f} s", holds=large <= 1.5),
    ]  # fmt: skip
    versions = {"python": platform.python_version(), "llvmlite": llvmlite.__version__, "numpy": np.__version__}
    write("machine_speed", rows, aims, versions)


if __name__ == "__main__":
    main()
