"""The machine beside what else runs GPU kernels on a CPU: Numba's CUDA simulator and Oclgrind, in one run.

python benchmarks/machine_peers.py --numba PYTHON --oclgrind FOLDER

PYTHON is an interpreter that has numba (not a dependency of undertorch); FOLDER is where Debian's packages oclgrind
and liboclgrind were unpacked (dpkg -x), or / where they are installed. Four kernels, each at sizes that the peer
finishes in seconds: the naive and the tiled matrix product, Collatz (lanes part in every round), a strided gather.
Compared are units of the kernel's own work (multiply-adds, steps, loads) a second of processor time, on one thread of
the host. What does not hang on the size (start-up, compilation) is taken out, as the difference of a large and a small
launch.
"""

import argparse
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

import numpy as np

from results_file import Aim, write

PTX = Path(__file__).parent.parent / "tests" / "simt" / "kernels" / "classics.ptx"
TILE = 16

OPENCL = """
kernel void naive_matmul(global const float* a, global const float* b, global float* c, int n) {
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0.f;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
kernel void tiled_matmul(global const float* a, global const float* b, global float* c, int n) {
    local float as[16][16], bs[16][16];
    int tx = get_local_id(0), ty = get_local_id(1), column = get_global_id(0), row = get_global_id(1);
    float sum = 0.f;
    for (int t = 0; t < n / 16; t++) {
        as[ty][tx] = a[row * n + t * 16 + tx];
        bs[ty][tx] = b[(t * 16 + ty) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < 16; k++) sum += as[ty][k] * bs[k][tx];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = sum;
}
kernel void collatz(global const int* in, global int* out, int n) {
    int i = get_global_id(0);
    if (i >= n) return;
    int v = in[i], steps = 0;
    while (v != 1) { if (v & 1) v = 3 * v + 1; else v = v >> 1; steps++; }
    out[i] = steps;
}
kernel void strided_gather(global const float* in, global float* out, int n, int stride) {
    int i = get_global_id(0);
    float sum = 0.f;
    for (int k = 0; k < 64; k++) sum += in[((long)i * stride + k * 97) % n];
    out[i] = sum;
}
"""

NUMBA = """
import sys, time
import numpy as np
from numba import cuda, float32

@cuda.jit
def naive_matmul(a, b, c, n):
    column, row = cuda.grid(2)
    total = float32(0)
    for k in range(n):
        total += a[row, k] * b[k, column]
    c[row, column] = total

@cuda.jit
def tiled_matmul(a, b, c, n):
    s = cuda.shared.array((16, 16), float32)
    u = cuda.shared.array((16, 16), float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for t in range(n // 16):
        s[ty, tx] = a[row, t * 16 + tx]
        u[ty, tx] = b[t * 16 + ty, column]
        cuda.syncthreads()
        for k in range(16):
            total += s[ty, k] * u[k, tx]
        cuda.syncthreads()
    c[row, column] = total

@cuda.jit
def collatz(x, out, n):
    i = cuda.grid(1)
    if i < n:
        v, steps = int(x[i]), 0
        while v != 1:
            v = 3 * v + 1 if v & 1 else v >> 1
            steps += 1
        out[i] = steps

@cuda.jit
def strided_gather(x, out, n, stride):
    i = cuda.grid(1)
    total = float32(0)
    for k in range(64):
        total += x[(i * stride + k * 97) % n]
    out[i] = total

name, size = sys.argv[1], int(sys.argv[2])
if name.endswith("matmul"):
    a = np.ones((size, size), np.float32)
    out = np.zeros((size, size), np.float32)
    began = time.process_time()
    globals()[name][(size // 16, size // 16), (16, 16)](a, 2 * a, out, size)
    right = bool((out == 2 * size).all())
elif name == "collatz":
    x, out = np.arange(1, size + 1, dtype=np.int32), np.zeros(size, np.int32)
    began = time.process_time()
    collatz[-(-size // 64), 64](x, out, size)
    right = bool(out[26] == 111)
else:
    x, out = np.ones(4096, np.float32), np.zeros(size, np.float32)
    began = time.process_time()
    strided_gather[size // 64, 64](x, out, 4096, 4099)
    right = bool((out == 64).all())
print(time.process_time() - began, right)
"""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    name: str
    unit: str
    sizes: dict[str, tuple[int, int]]
    """A small and a large one for each: the machine, Numba, Oclgrind."""

    def work(self, size: int) -> int:
        """Units of one launch."""
        if self.name.endswith("matmul"):
            return size**3
        if self.name == "strided_gather":
            return 64 * size
        total = 0
        for value in range(1, size + 1):
            while value != 1:
                value = 3 * value + 1 if value & 1 else value >> 1  # noqa: PLW2901
                total += 1
        return total


KERNELS = (
    Kernel(name="naive_matmul", unit="multiply-adds",
           sizes={"machine": (32, 384), "numba": (16, 32), "oclgrind": (16, 96)}),
    Kernel(name="tiled_matmul", unit="multiply-adds",
           sizes={"machine": (32, 384), "numba": (16, 32), "oclgrind": (16, 96)}),
    Kernel(name="collatz", unit="steps", sizes={"machine": (64, 40000), "numba": (64, 1024), "oclgrind": (64, 6000)}),
    Kernel(name="strided_gather", unit="loads",
           sizes={"machine": (64, 65536), "numba": (64, 1024), "oclgrind": (64, 8192)}),
)  # fmt: skip


def on_machine(kernel: Kernel, size: int) -> float:
    from undertorch.gpus import find
    from undertorch.simt import launch

    text, gpu = PTX.read_text(), find("A100-80GB")
    if kernel.name.endswith("matmul"):
        a, out = np.ones((size, size), np.float32), np.zeros((size, size), np.float32)
        tile = 32 if kernel.name == "tiled_matmul" else TILE
        grid, block, arguments = (size // tile, size // tile), (tile, tile), (a, 2 * a, out, size)
    elif kernel.name == "collatz":
        out = np.zeros(size, np.int32)
        grid, block, arguments = (-(-size // 64),), (64,), (np.arange(1, size + 1, dtype=np.int32), out, size)
    else:
        out = np.zeros(size, np.float32)
        grid, block, arguments = (size // 64,), (64,), (np.ones(4096, np.float32), out, 4096, 4099)
    launch(text, kernel.name, grid, block, arguments, gpu=gpu)  # compiles
    began = time.process_time()
    launch(text, kernel.name, grid, block, arguments, gpu=gpu)
    took = time.process_time() - began
    assert (out[26] == 111) if kernel.name == "collatz" else (out == (64 if out.ndim == 1 else 2 * size)).all()
    return took


def on_numba(kernel: Kernel, size: int, python: str) -> float:
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    command = [python, "-c", NUMBA, kernel.name, str(size)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, right = done.stdout.split()[-2:]
    assert right == "True", kernel.name
    return float(seconds)


def on_oclgrind(kernel: Kernel, size: int, root: Path) -> float:
    if kernel.name.endswith("matmul"):
        bytes_ = 4 * size * size
        shape = f"{size} {size} 1\n16 16 1"
        arguments = [f"<size={bytes_} float fill=1>", f"<size={bytes_} float fill=2>", f"<size={bytes_} float fill=0>"]
    elif kernel.name == "collatz":
        shape = f"{-(-size // 64) * 64} 1 1\n64 1 1"
        arguments = [f"<size={4 * size} int range=1:1:{size}>", f"<size={4 * size} int fill=0>"]
    else:
        shape = f"{size} 1 1\n64 1 1"
        arguments = ["<size=16384 float fill=1>", f"<size={4 * size} float fill=0>"]
    numbers = [4096, 4099] if kernel.name == "strided_gather" else [size]
    arguments += [f"<size=4 int fill={n}>" for n in numbers]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.cl").write_text(OPENCL)
        lines = ["kernels.cl", kernel.name, shape, "", *arguments]
        (Path(folder) / "kernel.sim").write_text("\n".join(lines) + "\n")
        libraries = ":".join(str(p) for p in (root / "usr/lib/x86_64-linux-gnu", root / "usr/lib/oclgrind"))
        command = [str(root / "usr/bin/oclgrind-kernel"), "--num-threads", "1", "kernel.sim"]
        environment = os.environ | {"LD_LIBRARY_PATH": libraries}
        began = os.times()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        ended = os.times()
    assert not re.search(r"rror|nvalid", done.stdout + done.stderr), done.stdout + done.stderr
    return ended.children_user + ended.children_system - began.children_user - began.children_system


def rate(kernel: Kernel, where: str, run: Callable[[int], float]) -> float:
    """Units a second: of the large launch, less what the small one takes; the best of two."""
    small, large = kernel.sizes[where]
    seconds = min(run(large) for _ in range(2)) - min(run(small) for _ in range(2))
    return (kernel.work(large) - kernel.work(small)) / max(seconds, 1e-6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numba", required=True, help="a Python that has numba")
    parser.add_argument("--oclgrind", required=True, type=Path, help="where its packages were unpacked")
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    aims: list[Aim] = []
    for kernel in KERNELS:
        rates = {
            "machine": rate(kernel, "machine", lambda size, k=kernel: on_machine(k, size)),
            "numba": rate(kernel, "numba", lambda size, k=kernel: on_numba(k, size, given.numba)),
            "oclgrind": rate(kernel, "oclgrind", lambda size, k=kernel: on_oclgrind(k, size, given.oclgrind)),
        }
        ratios = {peer: rates["machine"] / rates[peer] for peer in ("numba", "oclgrind")}
        rows.append({"kernel": kernel.name, "unit": kernel.unit, "sizes": kernel.sizes,
                     "per_second": {k: float(f"{v:.4g}") for k, v in rates.items()},
                     "times_as_fast_as": {k: float(f"{v:.3g}") for k, v in ratios.items()}})  # fmt: skip
        print(rows[-1], flush=True)
        aims += [
            Aim(what=f"{kernel.name}: {peer}", aim="100 times as fast", got=f"{ratio:.0f} times", holds=ratio >= 100)
            for peer, ratio in ratios.items()
        ]
    command = [given.numba, "-c", "import numba; print(numba.__version__)"]
    numba = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    write("machine_peers", rows, aims, {"python": platform.python_version(), "numba": numba, "oclgrind": "21.10"})


if __name__ == "__main__":
    sys.exit(main())
