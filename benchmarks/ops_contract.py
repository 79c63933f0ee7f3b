"""Runs the ops' contract (tests/ops_promises.py) on a GPU, and what only a GPU can show; counts go to a JSON file.

    PYTHONPATH=src:tests python3 benchmarks/ops_contract.py OUT [--limit SECONDS] [--only WORD] [--on cpu]
    PYTHONPATH=src:tests python3 benchmarks/ops_contract.py OUT --join EARLIER [EARLIER ...]

OUT/ops_contract_cuda.json (or cpu) has the counts by op and by class of past bugs. What takes the time is compiling, so
many processes, which use the one GPU side by side, take blocks of rows that lie beside each other and share kernels;
each writes its rows as they are done. `--join` runs nothing: it counts the rows of earlier runs on a GPU together, each
row as the last of them that reached it has it.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from ops_past_bugs import PAST_BUGS, rows_of
from ops_promises import Row, rows
from ops_promises_on_gpu import gpu_rows

BLOCK = 8
"""Rows that a process takes at a time."""


def in_blocks(table: list[Row]) -> list[list[Row]]:
    """What only a GPU can show first, row by row: some of it takes long. Then blocks of the ops, each op's spread over
    the whole: processes work on different ops, whose kernels are compiled once, and a run that is cut short has seen
    as much of each.
    """
    by_op: dict[str, list[Row]] = {}
    for row in table:
        if not row.on_gpu_only:
            by_op.setdefault(row.op, []).append(row)
    placed = [
        ((at + BLOCK / 2) / len(some), some[at : at + BLOCK])
        for some in by_op.values()
        for at in range(0, len(some), BLOCK)
    ]
    turns = [block for _, block in sorted(placed, key=lambda pair: pair[0])]
    return [*([row] for row in table if row.on_gpu_only), *turns]


def taken(blocks: list[list[Row]], out: Path) -> Iterator[Row]:
    """The rows of the blocks that no other process has taken yet."""
    for number, block in enumerate(blocks):
        try:
            (out / f"block_{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        yield from block


def matrix(results: dict[str, bool], table: list[Row]) -> dict[str, dict[str, dict[str, int]]]:
    """Rows by op and by class of past bugs: how many there are, were tried, were right."""

    def count(some: list[Row]) -> dict[str, int]:
        found = [results.get(str(row)) for row in some]
        return {"rows": len(some), "tried": sum(r is not None for r in found), "right": sum(r is True for r in found)}

    ops = dict.fromkeys(row.op for row in table)
    return {
        "ops": {op: count([row for row in table if row.op == op]) for op in ops},
        "past bugs": {bug: count(rows_of(bug, table)) for bug in PAST_BUGS},
    }


def run(table: Iterable[Row], device: str, file: Path, until: float) -> None:
    """Checks row after row and writes down what was wrong of each."""
    torch.set_num_threads(1)
    with file.open("w", encoding="utf-8") as lines:
        for row in table:
            if time.time() > until:
                break
            begin = time.monotonic()
            try:
                found = row.check(device)
            except Exception as error:  # counted as wrong, whatever it is
                found = [repr(error)[:400]]
            lines.write(json.dumps({"row": str(row), "wrong": found, "s": round(time.monotonic() - begin, 2)}) + "\n")
            lines.flush()
            if any("CUDA error" in text or "device-side" in text for text in found):
                break


def run_shared(asked: Any, until: float) -> list[dict[str, Any]]:
    """The rows that the processes wrote."""
    each = [sys.executable, __file__, str(asked.out), "--on", asked.on, "--only", asked.only]
    workers = range(max(min((os.cpu_count() or 2) - 1, 16), 1))
    running = [subprocess.Popen([*each, "--worker", str(n), str(until)], stderr=subprocess.DEVNULL) for n in workers]
    for process in running:
        try:
            process.wait(max(until + 15 - time.time(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
    files = [asked.out / f"rows_{n}.jsonl" for n in workers]
    return [json.loads(line) for file in files if file.exists() for line in file.read_text("utf-8").splitlines()]


def joined(folders: list[Path]) -> list[dict[str, Any]]:
    """The rows of several runs, the later ones' in the place of the earlier ones'."""
    files = [file for folder in folders for file in sorted(folder.glob("rows_*.jsonl"))]
    every = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return list({row["row"]: row for row in every}.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, default=95.0, help="seconds: no row is begun after that")
    parser.add_argument("--only", default="", help="rows whose name holds this word")
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--join", nargs="+", type=Path, default=[], help="folders of runs on a GPU, oldest first")
    parser.add_argument("--worker", nargs=2, metavar=("N", "UNTIL"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    os.environ.setdefault("UNDERTORCH_OPS", "own")  # the usual way of each: to measure them all would take minutes
    on_gpu = asked.on == "cuda"
    whole = [*gpu_rows(), *rows()]
    table = [row for row in whole if asked.only in str(row) and (on_gpu or not (row.on_gpu_only or row.large))]
    if asked.worker:
        number, until = asked.worker
        rows_taken = taken(in_blocks(table), asked.out)
        return run(rows_taken, asked.on, asked.out / f"rows_{number}.jsonl", float(until))
    asked.out.mkdir(parents=True, exist_ok=True)
    began = time.time()
    if asked.join:
        known = {str(row) for row in table}
        done = [row for row in joined(asked.join) if row["row"] in known]
    else:
        for old in (*asked.out.glob("rows_*.jsonl"), *asked.out.glob("block_*")):
            old.unlink()
        done = run_shared(asked, began + asked.limit)
    results = {row["row"]: not row["wrong"] for row in done}
    wrong = [{"row": row["row"], "wrong": row["wrong"]} for row in done if row["wrong"]]
    result: dict[str, Any] = {
        "device": f"a GPU, {len(asked.join)} runs" if asked.join else torch.cuda.get_device_name() if on_gpu else "CPU",
        "torch": torch.__version__,
        "seconds": round(time.time() - began, 1),
        "rows": len(table),
        "tried": len(done),
        "matrix": matrix(results, table),
        "wrong": wrong,
    }
    (asked.out / f"ops_contract_{asked.on}.json").write_text(json.dumps(result, indent=1) + "\n")
    for what, lines in result["matrix"].items():
        print(f"{what:40} rows tried right")
        for name, count in lines.items():
            print(f"  {name:38} {count['rows']:4} {count['tried']:5} {count['right']:5}")
    for row in wrong:
        print(row["row"], row["wrong"])
    print(f"{len(wrong)} wrong, {len(done)} of {len(table)} tried, {result['seconds']} s")
    return None


if __name__ == "__main__":
    main()
