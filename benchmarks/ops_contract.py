"""Runs the ops' contract (tests/ops_promises.py) on a GPU, and what only a GPU can show; counts go to a JSON file.

    PYTHONPATH=src:tests python3 benchmarks/ops_contract.py OUT [--seconds N] [--only WORD]

Rows come out as they are done, in OUT/ops_contract.jsonl; OUT/ops_contract.json has the counts. Kernels are compiled
first, on all cores, by workers that launch nothing (`--compile I N`).
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import torch

from ops_promises import rows
from ops_promises_on_gpu import gpu_rows

COMPILING = 40.0
"""Seconds at most; what is not compiled by then is compiled when it is called."""


def compile_share(share: int, of: int) -> None:
    """Calls every so-manieth row on the CPU, with kernels that are compiled for an H200 and not run."""
    from undertorch.compilers.triton_driver import Driver, put_in_place
    from undertorch.gpus import find
    from undertorch.ops.calls import on_host

    torch.set_num_threads(1)
    put_in_place(Driver(find("H200"), lambda launch: None, lambda name, count: None))
    for row in rows()[share::of]:
        if not row.on_gpu_only and not (row.large and "131" in row.name):
            with on_host(), contextlib.suppress(Exception):
                row.check("cpu")


def compile_all() -> float:
    began = time.monotonic()
    workers = max(min((os.cpu_count() or 2) - 1, 15), 1)
    each = [[sys.executable, __file__, "-", "--compile", str(n), str(workers)] for n in range(workers)]
    running = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in each]
    for process in running:
        try:
            process.wait(max(COMPILING - (time.monotonic() - began), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=110.0, help="start no row after that")
    parser.add_argument("--only", default="", help="rows whose name holds this word")
    parser.add_argument("--compile", nargs=2, type=int, metavar=("I", "N"))
    asked = parser.parse_args()
    os.environ.setdefault("UNDERTORCH_OPS", "own")  # the usual way of each: to measure them all would take minutes
    if asked.compile:
        return compile_share(*asked.compile)
    asked.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    compiled = compile_all()
    counts: dict[str, Counter[str]] = {}
    wrong = []
    table = [row for row in [*gpu_rows(), *rows()] if asked.only in str(row)]
    # The ops in turn, so that a run that is cut short has seen some of each.
    places: Counter[str] = Counter()
    order = []
    for row in table:
        order.append((places[row.op], row))
        places[row.op] += 1
    order.sort(key=lambda pair: pair[0])
    with (asked.out / "ops_contract.jsonl").open("w", encoding="utf-8") as lines:
        for _, row in order:
            count = counts.setdefault(row.op, Counter())
            if time.monotonic() - began > asked.seconds:
                count["not run"] += 1
                continue
            begin = time.monotonic()
            try:
                found = row.check("cuda")
            except Exception as error:  # counted as wrong, whatever it is
                found = [repr(error)[:400]]
            count["wrong" if found else "right"] += 1
            if found:
                wrong.append({"row": str(row), "wrong": found})
                print(row, found, flush=True)
            lines.write(json.dumps({"row": str(row), "wrong": found, "s": round(time.monotonic() - begin, 2)}) + "\n")
            lines.flush()
            if any("CUDA error" in text or "device-side" in text for text in found):
                break
    result = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "compiling_s": round(compiled, 1),
        "seconds": round(time.monotonic() - began, 1),
        "counts": counts,
        "wrong": wrong,
    }
    (asked.out / "ops_contract.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["counts"]), f"{result['seconds']} s")
    return None


if __name__ == "__main__":
    main()
