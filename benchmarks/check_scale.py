"""What check takes where it could take too much: locks that spin, many blocks, much memory, a fault at the very end.

    python benchmarks/check_scale.py [NAME ...]

Each case runs in a process of its own, after its code was compiled once. Writes benchmarks/results/check_scale.json:
seconds, and the most memory that the process had beside its arguments.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LOCK = """__global__ void count(int* lock, int* total) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        *total += 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}"""
DOUBLE = """__global__ void doubled(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}"""
SPARSE = """__global__ void sparse(float* x, long long n) {
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * 16;
    if (i < n) x[i] = 1;
}"""
LAST = """__global__ void last(float* x, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i == n - 1) i = n;
    x[i] = 1;
}"""

Case = tuple[str, str, int, int, Callable[[], tuple[Any, ...]], str]
CASES: tuple[Case, ...] = (
    ("spin lock", LOCK, 512, 32, lambda: (np.zeros(1, np.int32), np.zeros(1, np.int32)),
     "512 blocks take a lock in turn, 128 or so at a time"),
    ("blocks", DOUBLE, 100_000, 128, lambda: (np.ones(12_800_000, np.float32), np.zeros(12_800_000, np.float32),
     np.int64(12_800_000)), "100,000 blocks of 128 threads, each reads one float and writes one"),
    ("one gigabyte", SPARSE, 65_536, 256, lambda: (np.zeros(1 << 28, np.float32), np.int64(1 << 28)),
     "1 GB of arguments, a float of each 64 bytes is written"),
    ("one gigabyte read", DOUBLE, 16_384, 256, lambda: (np.zeros(1 << 28, np.float32), np.zeros(1 << 22, np.float32),
     np.int64(1 << 22)), "1 GB that is only read, 16 MB that are written"),
    ("last thread", LAST, 40_000, 256, lambda: (np.zeros(10_240_000, np.float32), np.int64(10_240_000)),
     "the last of 10,240,000 threads writes past the end"),
)  # fmt: skip


def run(name: str) -> None:
    """One case, in this process; prints its row."""
    import undertorch

    _, source, grid, block, make, what = next(case for case in CASES if case[0] == name)
    file = undertorch.cuda(source)
    kernel, arguments = file[file.kernels[0]], make()
    small = [np.zeros(4096, a.dtype) if isinstance(a, np.ndarray) else np.int64(4096) for a in arguments]
    undertorch.check(kernel, 1, 32, *small)
    given = sum(a.nbytes for a in arguments)
    began = time.perf_counter()
    found = undertorch.check(kernel, grid, block, *arguments)
    seconds = time.perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row = {"case": name, "what": what, "threads": grid * block, "bytes": given, "seconds": round(seconds, 2),
           "memory": max(0, most - given), "found": sorted({str(f.kind) for f in found.findings})}  # fmt: skip
    print(json.dumps(row))


def main(asked: list[str]) -> None:
    """All, or those that are asked for."""
    rows: list[dict[str, object]] = []
    for name, *_ in CASES:
        if asked and name not in asked:
            continue
        done = subprocess.run([sys.executable, __file__, "--run", name], capture_output=True, text=True, check=False)
        lines = done.stdout.strip().split("\n")
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr}")
        rows.append(json.loads(lines[-1]))
        print(rows[-1])
    if not asked:
        from results_file import write

        write("check_scale", rows, [], {"python": sys.version.split()[0], "numpy": np.__version__})


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2])
    else:
        main(sys.argv[1:])
