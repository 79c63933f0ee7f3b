"""What check costs: launches of working kernels, plain, with events that nobody reads, and checked.

    python benchmarks/check_speed.py FOLDER

Each is run three times, and the fastest counts. Writes check_speed.json into the folder.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from undertorch.checks.check import Watch
from undertorch.gpus import find
from undertorch.simt import launch

KERNELS = Path(__file__).parents[1] / "tests/simt/kernels"
RUNS = 3


def launches():
    """Kernel, grid, block, arguments, bytes of shared memory."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 512, 512)).astype(np.float32)
    c, many = np.zeros((512, 512), np.float32), 2_000_000
    ones = np.ones(many, np.int32)
    yield "tiled_matmul", (16, 16), (32, 32), (a, b, c, 512), 0
    yield "naive_matmul", (32, 32), (16, 16), (a, b, c, 512), 0
    yield "register_tiled_matmul", (4, 4), 256, (a, b, c, 512), 0
    bins = np.zeros(256, np.uint32)
    yield "histogram", 64, 256, (random.integers(0, 256, many, np.uint8), bins, many), 0
    blocks = -(-many // 256)
    yield "reduce_sequential", blocks, 256, (ones, np.zeros(blocks, np.int32), many), 1024
    x = np.ones((2000, 128, 4), np.float32)
    yield "double_buffer", 1, 128, (x, np.zeros_like(x), 2000), 0
    yield "strided_gather", 256, 128, (ones.astype(np.float32), np.zeros(1 << 15, np.float32), many, 31), 0


def fastest(text, kernel, grid, block, arguments, shared, how):
    """Of the fastest of some runs."""
    best = float("inf")
    for _ in range(RUNS):
        watch = Watch()
        options = {
            "plain": {},
            "events": {"instrument": "events", "on_events": lambda rows, sites: None},
            "checked": {"instrument": "events", "on_events": watch.take, "on_start": watch.start},
        }[how]
        began = time.perf_counter()
        launch(text, kernel, grid, block, arguments, gpu=find("A100-80GB"), dynamic_shared=shared, **options)
        best = min(best, time.perf_counter() - began)
    return best


def main(folder):
    """Measures all."""
    texts = [path.read_text() for path in sorted(KERNELS.glob("*.ptx"))]
    rows = []
    for kernel, *asked in launches():
        text = next(t for t in texts if f".entry {kernel}(" in t)
        row = {how: fastest(text, kernel, *asked, how) for how in ("plain", "events", "checked")}
        rows.append({"kernel": kernel, **row, "slowdown": row["checked"] / row["plain"]})
        times = "".join(f"{how} {taken:.3f} s  " for how, taken in row.items())
        print(f"{kernel:24} {times}x {rows[-1]['slowdown']:.1f}")
    (folder / "check_speed.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
