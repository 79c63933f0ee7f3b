"""What NVIDIA's occupancy header answers: `python benchmarks/golden_occupancy.py tests/golden/occupancy.json.gz`.

The header is host-only C. It comes with CUDA's runtime: `pip install nvidia-cuda-runtime-cu12==12.9.79`. What it needs
to know of a device stands in DEVICES, from NVIDIA's own tables, so that nothing of undertorch has a part in the answer.
The tests replay the file, and ask the header again where it is installed.
"""

import argparse
import gzip
import json
import random
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from itertools import product
from pathlib import Path

PACKAGE = "nvidia-cuda-runtime-cu12"
NO_LIMIT = 2**31 - 1  # the header's INT_MAX

Launch = tuple[int, int, int, int, int]
"""Registers a thread, bytes of shared memory a block, threads a block, barriers, carve-out in percent (-1: default)."""
Answer = tuple[int, int, int, int, int, int, int]
"""Blocks, the bits of what limits them, and the blocks that warps, blocks, registers, shared and barriers allow."""

DEVICES = {
    # CUDA C++ Programming Guide, technical specifications per compute capability: threads of an SM, bytes of shared
    # memory of an SM and of a block that opts in; bytes that the driver reserves for each block. Alike in all of them:
    # 1024 threads and 48 KiB a block, 65536 registers of a block and an SM, warps of 32.
    "7.0": (2048, 96 * 1024, 96 * 1024, 0),
    "7.5": (1024, 64 * 1024, 64 * 1024, 0),
    "8.0": (2048, 164 * 1024, 163 * 1024, 1024),
    "8.6": (1536, 100 * 1024, 99 * 1024, 1024),
    "8.9": (1536, 100 * 1024, 99 * 1024, 1024),
    "9.0": (2048, 228 * 1024, 227 * 1024, 1024),
    "10.0": (2048, 228 * 1024, 227 * 1024, 1024),
    "12.0": (1536, 100 * 1024, 99 * 1024, 1024),
}

ORACLE = r"""
#include <stdio.h>
#include "cuda_occupancy.h"

/* argv: major minor threads_per_sm shared_per_sm shared_optin reserved; stdin: launches; stdout: answers */
int main(int argc, char **argv) {
    int device[6], registers, shared, threads, barriers, carveout;
    if (argc != 7) return 2;
    for (int i = 0; i < 6; i++) sscanf(argv[i + 1], "%d", &device[i]);
    cudaOccDeviceProp properties = {0};
    properties.computeMajor = device[0];
    properties.computeMinor = device[1];
    properties.maxThreadsPerBlock = 1024;
    properties.maxThreadsPerMultiprocessor = device[2];
    properties.regsPerBlock = properties.regsPerMultiprocessor = 65536;
    properties.warpSize = 32;
    properties.sharedMemPerBlock = 48 * 1024;
    properties.sharedMemPerMultiprocessor = device[3];
    properties.sharedMemPerBlockOptin = device[4];
    properties.reservedSharedMemPerBlock = device[5];
    properties.numSms = 1;
    while (scanf("%d %d %d %d %d", &registers, &shared, &threads, &barriers, &carveout) == 5) {
        cudaOccFuncAttributes kernel = {0};
        cudaOccDeviceState state = {0};
        cudaOccResult r;
        kernel.maxThreadsPerBlock = INT_MAX;
        kernel.numRegs = registers;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared;
        kernel.numBlockBarriers = barriers;
        state.carveoutConfig = carveout;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&r, &properties, &kernel, &state, threads, shared)) return 3;
        printf("%d %u %d %d %d %d %d\n", r.activeBlocksPerMultiprocessor, r.limitingFactors, r.blockLimitWarps,
               r.blockLimitBlocks, r.blockLimitRegs, r.blockLimitSharedMem, r.blockLimitBarriers);
    }
    return 0;
}
"""


def header() -> Path | None:
    """Where the installed header lies; None where it is not installed."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == "cuda_occupancy.h"), None)


def ask(header: Path, device: str, launches: Iterable[Launch]) -> list[Answer]:
    """The header's answers for a compute capability. Compiles it with gcc."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "oracle"
        source = program.with_suffix(".c")
        source.write_text(ORACLE)
        subprocess.run(["gcc", "-O1", "-o", program, source, "-I", header.parent], check=True)
        arguments = [*device.split("."), *map(str, DEVICES[device])]
        lines = "".join(f"{' '.join(map(str, launch))}\n" for launch in launches)
        done = subprocess.run([program, *arguments], input=lines, capture_output=True, text=True, check=True)
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


def every_register_count() -> Iterator[Launch]:
    sizes = (1, 31, 32, 33, 64, 65, 96, 100, 128, 160, 192, 224, 250, 256, 257, 320, 384, 448, 500, 512, 513, 576, 640)
    sizes += (672, 704, 768, 800, 832, 896, 960, 992, 993, 1023, 1024, 1025)
    for registers, threads in product(range(256), sizes):
        yield registers, 0, threads, 1, -1


def shared_sizes() -> Iterator[Launch]:
    """Round each size that a rule speaks of: units of allocation, what is free of opting in, every device's most."""
    edges = (0, 128, 256, 1024, 8192, 16384, 32768, 48 * 1024, 64 * 1024, 96 * 1024, 99 * 1024, 163 * 1024, 227 * 1024)
    near = sorted({max(0, edge + step) for edge in edges for step in (-1024, -1, 0, 1, 1000)})
    for shared, threads, carveout in product(near, (32, 100, 256, 1024), (-1, 0, 25, 50, 100)):
        yield 32, shared, threads, 1, carveout


def anything(count: int, seed: int) -> Iterator[Launch]:
    rng = random.Random(seed)
    for _ in range(count):
        shared = rng.choice((0, rng.randrange(2048), rng.randrange(49153), rng.randrange(240_000)))
        yield (
            rng.randrange(256),
            shared,
            rng.randrange(1, 1025),
            rng.choice((0, 1, 1, 2, 3, 5, 16)),
            rng.choice((-1, -1, 0, 10, 33, 50, 75, 100)),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    found = header()
    if found is None:
        raise SystemExit(f"NVIDIA's header is not installed: pip install {PACKAGE}==12.9.79")
    launches = [*every_register_count(), *shared_sizes(), *anything(4000, seed=0)]
    gcc = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    answers = {
        device: [list(column) for column in zip(*ask(found, device, launches), strict=True)] for device in DEVICES
    }
    record = {
        "made_by": "benchmarks/golden_occupancy.py",
        "header": f"cuda_occupancy.h of {PACKAGE} {metadata.version(PACKAGE)}",
        "compiler": gcc,
        "date": datetime.now(UTC).date().isoformat(),
        "no_limit": NO_LIMIT,
        "launches": [list(column) for column in zip(*launches, strict=True)],
        "answers": answers,
    }
    out.write_bytes(gzip.compress(json.dumps(record, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    main()
