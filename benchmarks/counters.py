"""The machine's counts against an H200's: shared memory's wavefronts, sectors, active lanes, by Nsight Compute (ncu).

    python benchmarks/counters.py FOLDER               count on this GPU, into FOLDER/h200_counters.json.gz
    python benchmarks/counters.py FOLDER --limit 130   ... and end after so many seconds, with what there is by then
    python benchmarks/counters.py FOLDER --known FILE  ... of what FILE does not have, and add its counts
    python benchmarks/counters.py FOLDER --replay      read FOLDER's raw files again, without a GPU
    python benchmarks/counters.py --check [FILE]       the machine against a recording (tests/golden's)

What is counted is in tests/checks/counted.py: single volatile accesses of one warp, and whole kernels, compiled by
ptxas with source lines. Counting runs in batches, each a process under ncu, so that what is done stays. FOLDER also
gets ncu's own tables (raw, by kernel; source, by instruction of the GPU's own code) as they came.
"""

import argparse
import csv
import ctypes
import datetime
import functools
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from checks import counted

GOLDEN = Path(__file__).parent.parent / "tests/golden/h200_counters.json.gz"
METRICS = {
    "memory_l1_wavefronts_shared": "wavefronts",
    "memory_l1_wavefronts_shared_ideal": "wavefronts_ideal",
    "memory_l2_theoretical_sectors_global": "sectors",
    "memory_l2_theoretical_sectors_global_ideal": "sectors_ideal",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "wavefronts_by_l1tex",
    "smsp__inst_executed.sum": "warp_instructions",
    "smsp__thread_inst_executed.sum": "thread_instructions",
    "smsp__thread_inst_executed_pred_on.sum": "thread_instructions_predicated_on",
    "launch__registers_per_thread": "registers",
}
"""Of ncu, and what they are called here. The memory_ ones are exact; l1tex's have arbitration in them."""


EXACT = [name for name in METRICS if not name.startswith(("l1tex", "smsp__thread_inst_executed_pred"))]
ASKED: tuple[list[str], ...] = (
    ["--metrics", ",".join(METRICS)],
    ["--metrics", ",".join(EXACT)],
    ["--section", "SourceCounters", "--section", "LaunchStats"],
)
"""Of ncu; the next where it does not know the first."""
FIRST_BATCH, MOST_OF_A_BATCH = 12, 160
RAW = "counters_raw.json.gz"


def launches(known: Path | None = None) -> list[Any]:
    """All that is counted and not known, whole kernels first."""
    counts = read(known)["counts"] if known else {}
    everything = [*counted.wholes(), *counted.branches(), *counted.patterns()]
    return [item for item in everything if item.name not in counts]


def read(path: Path) -> dict[str, Any]:
    """A recording."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def of(item: Any) -> tuple[str, str, tuple[int, int, int], tuple[int, int, int], tuple[object, ...], int]:
    """PTX, kernel, grid, block, arguments, bytes of dynamic shared memory."""
    if isinstance(item, counted.Pattern):
        return counted.text(), item.kernel, (1, 1, 1), (32, 1, 1), item.arguments, 0
    text = item.file.read_text(encoding="utf-8")
    return text, item.kernel, item.grid, item.block, item.arguments, item.dynamic_shared


# -- on the GPU, under ncu


def run_part(first: int, last: int, known: Path | None) -> None:
    """The child: launches some, one behind the other."""
    from cuda.bindings import driver

    def call(function: Any, *arguments: Any) -> Any:
        status, *answer = function(*arguments)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise SystemExit(f"{function.__name__}: {status}")
        return answer[0] if answer else None

    call(driver.cuInit, 0)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, call(driver.cuDeviceGet, 0)))
    modules: dict[str, Any] = {}
    for item in launches(known)[first:last]:
        ptx, kernel, grid, block, arguments, shared = of(item)
        if ptx not in modules:
            modules[ptx] = call(driver.cuModuleLoadData, assembled(ptx))
        function = call(driver.cuModuleGetFunction, modules[ptx], kernel.encode())
        values, held = [], []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                place = call(driver.cuMemAlloc, max(argument.nbytes, 4))
                call(driver.cuMemcpyHtoD, place, np.ascontiguousarray(argument).ctypes.data, argument.nbytes)
                held.append(place)
                values.append(int(place).to_bytes(8, "little"))
            else:
                values.append(argument if isinstance(argument, bytes) else int(argument).to_bytes(4, "little"))
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value for value in values)
        )
        call(driver.cuLaunchKernel, function, *grid, *block, shared, 0, ctypes.addressof(pointers), 0)
        call(driver.cuCtxSynchronize)
        for place in held:
            call(driver.cuMemFree, place)


def assembled(ptx: str) -> bytes:
    """A cubin with source lines; the PTX itself, for the driver, where there is no ptxas."""
    program = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")
    if program is None:
        return ptx.encode() + b"\0"
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "k.ptx", Path(folder) / "k.cubin"
        source.write_text(ptx)
        subprocess.run([program, "-arch=sm_90", "-lineinfo", "-o", cubin, source], check=True)
        return cubin.read_bytes()


def ncu() -> str:
    """Where it is. Raises SystemExit."""
    places = [*sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu")), Path("/usr/local/cuda/bin/ncu")]
    found = shutil.which("ncu") or next((str(place) for place in places if place.exists()), None)
    if found is None:
        raise SystemExit("There is no ncu here.")
    return found


def profiled(
    folder: Path, name: str, part: tuple[int, int], what: list[str], seconds: float, known: Path | None
) -> Path | None:
    """One process under ncu; its report. What it said goes into the folder."""
    report = folder / f"{name}.ncu-rep"
    child = [sys.executable, __file__, str(folder), "--part", *map(str, part)]
    child += ["--known", str(known)] if known else []
    command = [ncu(), "--clock-control", "none", "--cache-control", "none", *what, "-f", "-o", str(report), *child]
    began, log = time.monotonic(), folder / f"{name}.log"
    with log.open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    taken = time.monotonic() - began
    log.write_text(f"{command}\nrc {process.returncode}, {taken:.1f} s\n{log.read_text()[-3000:]}\n")
    print(f"{name}: rc {process.returncode}, {taken:.1f} s", flush=True)
    return report if report.exists() else None


def table(folder: Path, report: Path, page: str, *options: str) -> None:
    """A report's page as CSV, packed, beside it."""
    command = [ncu(), "--import", str(report), "--csv", "--page", page, "--print-units", "base", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    text = done.stdout or done.stderr
    name = f"{report.stem}.{'_'.join([page, *(o.strip('-').replace(',', '_') for o in options[1:])])}.csv.gz"
    (folder / name).write_bytes(gzip.compress(text.encode()))


def count(folder: Path, limit: float, known: Path | None) -> None:
    """All batches, as far as time allows."""
    folder.mkdir(parents=True, exist_ok=True)
    began, total = time.monotonic(), len(launches(known))

    def left() -> float:
        return limit - (time.monotonic() - began)

    with tempfile.TemporaryDirectory() as scratch:
        work, asked = Path(scratch), list(ASKED)
        first, size, each = 0, FIRST_BATCH, 0.0
        while first < total and left() > 12 + each * size:
            start, last = time.monotonic(), min(total, first + size)
            report = profiled(work, f"batch_{first:04}_{last:04}", (first, last), asked[0], left() - 6, known)
            if report is None and first == 0 and len(asked) > 1:
                asked.pop(0)  # a metric that this ncu does not know, perhaps: less is asked for
                continue
            if report is not None:
                table(work, report, "raw")
                report.unlink()
            keep(work, folder, known)
            each = (time.monotonic() - start) / (last - first)
            if first == 0 and known is None:
                lines(work, folder, left())
            first, size = last, max(8, min(MOST_OF_A_BATCH, int(0.5 * left() / each)))
    replay(folder, known)


def lines(work: Path, folder: Path, left: float) -> None:
    """Whole kernels by instruction and source line."""
    if left < 40:
        return
    last = len(counted.wholes())
    report = profiled(work, f"lines_{0:04}_{last:04}", (0, last), list(ASKED[-1]), 30, None)
    if report is not None:
        table(work, report, "source", "--print-source", "cuda,sass")
        report.unlink()
    keep(work, folder, None)


def keep(work: Path, folder: Path, known: Path | None) -> None:
    """What is small goes out at once: all of it in one file, since few may come back."""
    parts = {path.name: path for path in sorted(work.iterdir()) if path.suffix in {".gz", ".log"}}
    content = {
        name: gzip.decompress(path.read_bytes()).decode(errors="replace") if path.suffix == ".gz" else path.read_text()
        for name, path in parts.items()
    }
    raw = {"about": about(), "launches": [item.name for item in launches(known)], "files": content}
    (folder / RAW).write_bytes(gzip.compress(json.dumps(raw).encode()))


@functools.cache
def about() -> dict[str, str]:
    """GPU, driver, ncu, date."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        version = subprocess.run([ncu(), "--version"], capture_output=True, text=True, check=False).stdout.strip()
    except (OSError, SystemExit):
        said, version = "none, none", ""
    gpu, _, driver = said.partition(", ")
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"gpu": gpu, "driver": driver, "ncu": version.rpartition("\n")[2], "date": date}


# -- what ncu said


def rows(text: str) -> list[dict[str, str]]:
    """Of a page of CSV: lines before the heading and the row of units are left out."""
    lines = text.split("\n")
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    return [row for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))) if (row["ID"] or "").isdigit()]


def number(text: str) -> int:
    """`1,024` or `32 (32; 0)`, the sum before its parts."""
    return round(float(text.split("(", maxsplit=1)[0].split(";", maxsplit=1)[0].replace(",", "").strip() or 0))


def replay(folder: Path, known: Path | None) -> dict[str, Any]:
    """Makes the golden of the raw tables, and of what was known."""
    raw = read(folder / RAW)
    golden = read(known) if known else {"counts": {}, "lines": {}}
    golden |= {
        "what": "what Nsight Compute counts of single accesses and of whole kernels; made by benchmarks/counters.py",
        **raw["about"],
    }
    for name, text in raw["files"].items():
        first, last = (int(n) for n in name.split(".")[0].split("_")[1:])
        names = raw["launches"][first:last]
        if name.startswith("batch_") and ".raw" in name:
            found = rows(text)
            if len(found) != len(names):
                print(f"{name}: {len(found)} rows of {len(names)} launches")
                continue
            golden["counts"] |= {
                launch: {mine: number(row[theirs]) for theirs, mine in METRICS.items() if row.get(theirs)}
                for launch, row in zip(names, found, strict=True)
            }
        elif name.startswith("lines_") and ".source" in name:
            golden["lines"] = dict(zip(names, by_line(text), strict=True))
    (folder / GOLDEN.name).write_bytes(gzip.compress(json.dumps(golden, indent=0).encode(), mtime=0))
    print(f"{len(golden['counts'])} counted")
    return golden


COLUMNS = ("Instructions Executed", "L1 Wavefronts Shared", "L1 Wavefronts Shared Ideal",
           "L2 Theoretical Sectors Global", "L2 Theoretical Sectors Global Ideal")  # fmt: skip


def by_line(text: str) -> list[dict[str, dict[str, list[int]]]]:
    """Of each launch the memory instructions of the GPU's own code: by line and opcode what COLUMNS say, added up.

    An instruction of inlined code is listed under each line that it came through: it counts at the first of them.
    """
    found: list[dict[str, dict[str, list[int]]]] = []
    seen: set[tuple[str, str]] = set()
    taken: set[str] = set()
    heading: list[str] = []
    file, line = "", ""
    for row in csv.reader(io.StringIO(text)):
        if row and row[0] == "File Path":
            file = row[1]
        elif row and row[0] == "Function Name":
            if (file, row[1]) in seen or not any(row[1] == function for _, function in seen):
                found.append({})
                seen, taken = set(), set()
            seen.add((file, row[1]))
        elif row and row[0] == "Line No":
            heading = row
        elif len(row) > 4:
            values = dict(zip(heading[4:], row[4:], strict=True))
            if row[2] == "-":
                line = row[0]
            elif values["Address Space"] in {"Shared", "Global"} and row[2] not in taken:
                taken.add(row[2])
                words = row[3].replace("@!", "@").split()
                opcode = words[1] if words[0].startswith("@") else words[0]
                sums = found[-1].setdefault(f"{file}:{line}", {}).setdefault(opcode, [0] * len(COLUMNS))
                for n, column in enumerate(COLUMNS):
                    sums[n] += int(values.get(column, "0").replace(",", ""))
    return found


# -- the machine


EXPLAINED = {
    "tiled_matmul": "ptxas joins loads of shared memory into LDS.128",
    "register_tiled_matmul": "ptxas joins loads of shared memory into LDS.128",
    "loop_by_lane: 48 threads, 0, 3": "an unrolled loop: lanes that leave it meet the others elsewhere",
    "loop_by_hash: 96 threads, 100": "an unrolled loop: lanes that leave it meet the others elsewhere",
}


def check(path: Path) -> int:
    """The machine's counts against a recording; benchmarks/results/counters.json."""
    from results_file import Aim, write

    golden = read(path)
    counts, rows = golden["counts"], {}
    unexplained = 0
    for item in [*counted.patterns(), *counted.wholes(), *counted.branches()]:
        if item.name not in counts:
            continue
        theirs, mine = counted.of_gpu(item, counts[item.name]), counted.of_machine(item)
        row: dict[str, Any] = rows.setdefault(kind(item), {"what": kind(item), "counted": 0, "equal": 0, "other": []})
        row["counted"] += 1
        row["equal"] += mine == theirs
        if mine != theirs:
            why = EXPLAINED.get(item.name)
            unexplained += why is None
            row["other"].append({"name": item.name, "machine": mine, "gpu": theirs, "why": why})
            print(f"{item.name}: {mine}, the GPU {theirs}: {why}")
    total, equal = (sum(row[key] for row in rows.values()) for key in ("counted", "equal"))
    aim = Aim(what="the machine's counts against the GPU's", aim="equal, or explained",
              got=f"{equal} of {total} equal, {unexplained} unexplained", holds=not unexplained)  # fmt: skip
    versions = {key: golden[key] for key in ("driver", "ncu", "date")}
    write("counters", list(rows.values()), [aim], versions, f"{golden['gpu']}, and the machine")
    return int(bool(unexplained))


def kind(item: Any) -> str:
    """The row of a table."""
    if isinstance(item, counted.Whole):
        return "whole kernels" if "simt" in item.file.parts else "kernels whose warps part"
    space, op, *_ = item.kernel.split("_")
    what = {"ld": "loads", "st": "stores", "ldmatrix": "ldmatrix"}[op]
    return f"{space} memory, {what}, {item.bytes} bytes a lane"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--part", type=int, nargs=2)
    parser.add_argument("--known", type=Path)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--check", type=Path, nargs="?", const=GOLDEN)
    given = parser.parse_args()
    known = given.known.resolve() if given.known else None
    if given.check:
        return check(given.check)
    if given.part:
        run_part(*given.part, known)
    elif given.replay:
        replay(given.folder, known)
    else:
        count(given.folder, given.limit, known)
    return 0


if __name__ == "__main__":
    sys.exit(main())
