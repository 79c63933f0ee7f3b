"""What the bandwidth of an L2 depends on: the order in which blocks walk over a set, its size, the kind of load.

    python benchmarks/l2_walks.py OUT               (needs CUDA; ten seconds)
    python benchmarks/l2_walks.py --result OUT      (no GPU: writes benchmarks/results/l2_walks.json)

Writes OUT/l2_walks.json: bytes a second that arrive at the SMs of each walk:

- `own`: each block reads a part of the set that is its own, again and again, as `undertorch gpus --calibrate` does:
  nothing can be joined on the way;
- `random`: from chunk to chunk in an order of its own;
- `next`: each block a chunk behind the next, all in the same order;
- `same`: all blocks the same chunk at about the same time: what joining can give at most.
"""

import json
import sys
from pathlib import Path
from statistics import median

from results_file import Aim, write
from undertorch.gpus.calibrating.on_cuda import REFUSALS, OnCuda
from undertorch.gpus.calibrating.probes import L2_BLOCK, L2_BLOCKS_PER_SM, L2_CHUNK, Buffer, KernelRun
from undertorch.gpus.calibrating.sources import ADD, SINK, SOURCES

PASSES = 1024
"""Chunks that a block reads."""
LOADS = {
    "cg": 'asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"',
    "ca": 'asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"',
    "no_allocate": 'asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"',
    "relaxed.gpu": 'asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"',
}
CHUNKS = {
    "own": "(unsigned long long)blockIdx.x * (chunks / gridDim.x) + pass % (unsigned)(chunks / gridDim.x)",
    "random": "__umulhi(order = order * 1664525u + 1013904223u, (unsigned)chunks)",
    "next": "(blockIdx.x + pass) % (unsigned)chunks",
    "same": "pass % (unsigned)chunks",
}
OWN_KIB = (16, 32, 48, 64, 80, 96)
"""Of a block's own part. Four blocks stay on an SM, whose L1 has at most 256 KiB (CUDA C++ Programming Guide, compute
capability 9.0): from 80 KiB on it cannot hold them, whatever the load asks for."""
SET_MIB = (4, 8, 16, 24, 32, 40, 48)


def source(walk: str, load: str) -> str:
    return f"""{ADD}
extern "C" __global__ void walk(uint4* written, const uint4* set, unsigned long long chunks,
                                unsigned long long passes) {{
    uint4 sum = make_uint4(0, 0, 0, 0);
    unsigned order = blockIdx.x * 2654435769u;
    for (unsigned pass = 0; pass < (unsigned)passes; ++pass) {{
        const unsigned long long chunk = {CHUNKS[walk]};
        const uint4* from = set + chunk * {L2_CHUNK // 16} + threadIdx.x;
        uint4 held[{L2_CHUNK // 16 // L2_BLOCK}];
        #pragma unroll
        for (int i = 0; i < {L2_CHUNK // 16 // L2_BLOCK}; ++i)
            {LOADS[load]} : "=r"(held[i].x), "=r"(held[i].y), "=r"(held[i].z), "=r"(held[i].w)
                          : "l"(from + i * {L2_BLOCK}));
        #pragma unroll
        for (int i = 0; i < {L2_CHUNK // 16 // L2_BLOCK}; ++i) take(sum, held[i]);
    }}
    order = order ^ sum.w;  // so that it is used in every walk
    if (order == 0x12345u) sum.x = order;
    {SINK}
}}
"""


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    backend = OnCuda()
    facts = backend.facts()
    grid = facts.sms * L2_BLOCKS_PER_SM
    runs = [("own", load, grid * kib // 16) for load in LOADS for kib in OWN_KIB]
    runs += [(walk, "cg", mib * 64) for walk in ("random", "next", "same") for mib in SET_MIB]
    rows: list[dict[str, object]] = []
    for walk, load, chunks in runs:
        SOURCES[f"{walk} {load}"] = source(walk, load)
        run = KernelRun(
            source=f"{walk} {load}",
            kernel="walk",
            grid=grid,
            block=L2_BLOCK,
            arguments=(
                Buffer(name="written", bytes=L2_CHUNK),
                Buffer(name="set", bytes=chunks * L2_CHUNK),
                chunks,
                PASSES,
            ),
        )
        row: dict[str, object] = {"walk": walk, "load": load, "set MiB": round(chunks * L2_CHUNK / 2**20, 1)}
        try:
            seconds = backend._kernel(run)
            row["TB/s"] = round(grid * PASSES * L2_CHUNK / median(seconds) / 1e12, 3)
            row["samples"] = len(seconds)
        except REFUSALS as error:
            row["failed"] = str(error)[:300]
        rows.append(row)
        print(row, flush=True)
        content = {"gpu": facts.gpu_name, "driver": facts.driver, "sms": facts.sms, "rows": rows}
        (out / "l2_walks.json").write_text(json.dumps(content, indent=1))


def result_of(out: Path) -> None:
    content = json.loads((out / "l2_walks.json").read_text())
    rates = {
        walk: max(
            row["TB/s"] for row in content["rows"] if row["walk"] == walk and row["load"] == "cg" and "TB/s" in row
        )
        for walk in CHUNKS
    }
    failed = [row for row in content["rows"] if "failed" in row]
    aim = Aim(
        what="what the L2 gives where no two blocks read the same line, beside what arrives where all do",
        aim="less",
        got=f"{rates['own']:.2f} TB/s at most; all blocks the same line {rates['same']:.2f}",
        holds=rates["own"] < 0.6 * rates["same"] and not failed,
    )
    write("l2_walks", content["rows"], [aim], {"driver": content["driver"]}, machine=content["gpu"])


if __name__ == "__main__":
    if sys.argv[1] == "--result":
        result_of(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
