"""compute-sanitizer and undertorch over the planted faults, side by side; and what mending a slow kernel saves.

    python benchmarks/sanitizer.py FOLDER                on an NVIDIA GPU: compute-sanitizer's tools, and times
    python benchmarks/sanitizer.py FOLDER --limit 110    ... and end after so many seconds
    python benchmarks/sanitizer.py FOLDER --only mended  ... of mended kernels alone
    python benchmarks/sanitizer.py FOLDER --here         undertorch's part, without a GPU: what it finds, and seconds
    python benchmarks/sanitizer.py FOLDER --merge        of both (sanitizer_gpu*.json, sanitizer_here.json) results/

Each kernel of tests/faults is compiled by nvcc, broken and mended, and launched as its file says by a process of its
own, under each tool. Writes sanitizer_gpu.json or sanitizer_here.json into the folder. Times are of launches that fill
the GPU (LARGE), the fastest of many, by CUDA's events.
"""

import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

FAULTS = Path(__file__).parent.parent / "tests/faults"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
AT_ONCE = 14
PATIENCE = 25.0
"""Seconds for one process: a kernel that never ends is one of the faults."""
RUNS = 30
LARGE = {
    "stride_of_32": "--grid 256,256 --block 32,8 --arg f32[8192,8192] --arg f32[8192,8192] --arg 8192",
    "interleaved_reduction": "--grid 131072 --block 256 --arg i32[33554432] --arg i32[131072]",
    "index_order": "--grid 512,512 --block 16,16 --arg f32[8192,8192] --arg f32[8192,8192] --arg 8192",
    "row_of_ones_own": "--grid 4096 --block 64 --arg f32[262144,96] --arg f32[262144] --arg 96",
    "array_of_structs": "--grid 65536 --block 128 --arg f32[67108864] --arg f32[8388608] --arg 8388608",
    "divergent_branch": "--grid 65536 --block 128 --arg f32[8388608] --arg f32[8388608]",
    "uneven_loop": "--grid 65536 --block 128 --arg f32[8388608] --arg f32[8388608]",
    "register_starved_tile": "--grid 2048 --block 256 --arg f32[64,524288] --arg f32[64,524288] "
    "--arg f32[64,524288] --arg 524288",
    "few_warps": "--grid 4096 --block 64 --arg f32[49283072] --arg f32[49283072]",
    "tail_wave": "--grid 530 --block 128 --arg f32[67840] --arg f32[67840] --arg 20000",
}
"""Launches for times. tail_wave's is a wave and two blocks of an H200: 132 SMs hold four blocks each."""


def stated(path: Path) -> tuple[str, list[str]]:
    """Kind and launch of a fault."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return lines[0].split()[2], lines[1].removeprefix("// launch: ").split()


def compiled(path: Path, work: Path, *options: str) -> tuple[Path, str]:
    """A cubin for this GPU with source lines, and its kernel's name."""
    name = path.stem + ("_mended" if options else "")
    ptx, cubin = work / f"{name}.ptx", work / f"{name}.cubin"
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    subprocess.run([nvcc, "-ptx", "-arch=sm_80", "-lineinfo", "-std=c++17", *options, path, "-o", ptx], check=True)
    subprocess.run([Path(nvcc).parent / "ptxas", "-arch=sm_90", "-lineinfo", ptx, "-o", cubin], check=True)
    entry = re.search(r"\.entry (\w+)\(", ptx.read_text())
    assert entry is not None, path
    return cubin, entry[1]


# -- the child: one launch, or times of several


class Device:
    """The GPU, by CUDA's driver."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver = driver
        self.call(driver.cuInit, 0)
        context = self.call(driver.cuDevicePrimaryCtxRetain, self.call(driver.cuDeviceGet, 0))
        self.call(driver.cuCtxSetCurrent, context)

    def call(self, function: Any, *arguments: Any) -> Any:
        """What a function of the driver answers."""
        status, *answer = function(*arguments)
        if status != self.driver.CUresult.CUDA_SUCCESS:
            raise SystemExit(f"{function.__name__}: {status}")
        return answer[0] if answer else None

    def launch(self, cubin: str, kernel: str, words: Sequence[str], *, timed: bool) -> float | None:
        """Launches a kernel as its file says. Timed: the fastest of RUNS, in microseconds."""
        call, driver = self.call, self.driver
        given: dict[str, list[str]] = {}
        for name, text in zip(words[::2], words[1::2], strict=True):
            given.setdefault(name, []).append(text)
        grid, block = ((*map(int, given[name][0].split(",")), 1, 1)[:3] for name in ("--grid", "--block"))
        function = call(driver.cuModuleGetFunction, call(driver.cuModuleLoad, cubin.encode()), kernel.encode())
        held: list[Any] = []
        values = [value(spec, self, held, quick=timed) for spec in given.get("--arg", [])]
        pointers = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.c_char_p(v), ctypes.c_void_p).value for v in values)
        )
        arguments = (function, *grid, *block, 0, 0, ctypes.addressof(pointers), 0)
        call(driver.cuLaunchKernel, *arguments)
        call(driver.cuCtxSynchronize)
        best = None
        if timed:
            events = [call(driver.cuEventCreate, 0) for _ in range(RUNS + 1)]
            call(driver.cuEventRecord, events[0], 0)
            for event in events[1:]:
                call(driver.cuLaunchKernel, *arguments)
                call(driver.cuEventRecord, event, 0)
            call(driver.cuCtxSynchronize)
            best = min(call(driver.cuEventElapsedTime, a, b) for a, b in pairwise(events)) * 1e3
        for place in held:
            call(driver.cuMemFree, place)
        return best


def value(spec: str, device: Device, held: list[Any], *, quick: bool) -> bytes:
    """An argument's bytes: of an array the address of its copy on the GPU, which is added to `held`.

    `quick`: all elements 0.5, or 1.
    """
    array = re.fullmatch(r"(\w+)\[([\d,]+)\](?:=(\w+))?", spec)
    if array is None:
        return int(spec).to_bytes(4, "little")
    count = int(np.prod([int(n) for n in array[2].split(",")]))
    size = int(array[1][1:]) // 8
    place = device.call(device.driver.cuMemAlloc, count * size)
    held.append(place)
    if quick:
        device.call(device.driver.cuMemsetD32, place, 0x3F000000 if array[1] == "f32" else 1, count * size // 4)
    elif array[3] != "empty":
        from undertorch.checks.arguments import arguments

        (contents,) = arguments([spec]).values
        filled: Any = contents
        device.call(device.driver.cuMemcpyHtoD, place, filled.ctypes.data, filled.nbytes)
    return int(place).to_bytes(8, "little")


# -- on the GPU


def run(command: Sequence[object], seconds: float) -> tuple[int, float, str]:
    """A process: its status (124: killed), its seconds, what it said."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [str(word) for word in command], stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = 124
        said.seek(0)
        return status, time.monotonic() - began, said.read()


def sanitized(tool: str, cubin: Path, kernel: str, words: Sequence[str], seconds: float) -> dict[str, object]:
    """What one tool says of one launch."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    child = [sys.executable, __file__, "-", "--launch", cubin, kernel, *words]
    options = ["--racecheck-report", "all"] if tool == "racecheck" else []
    status, taken, said = run([sanitizer, "--tool", tool, *options, "--error-exitcode", "9", *child], seconds)
    lines = [line for line in said.split("\n") if line.startswith("=========")] or said.split("\n")[-5:]
    return {"status": status, "seconds": round(taken, 2), "found": status == 9, "said": lines[:14] + lines[-2:]}


def on_gpu(folder: Path, limit: float, only: str | None) -> None:
    """All of it, as far as time allows: times first, then the tools on broken kernels, then on mended ones."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"gpu": described(), "microseconds": {}, "tools": {}}

    def left() -> float:
        return limit - (time.monotonic() - began)

    def write() -> None:
        (folder / "sanitizer_gpu.json").write_text(json.dumps(result, indent=1))

    paths = sorted(FAULTS.glob("*.cu"), key=lambda p: (stated(p)[0] == "deadlock", p.name))
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(AT_ONCE) as pool:
        work = Path(scratch)
        broken = list(pool.map(lambda path: compiled(path, work), paths))
        mended = list(pool.map(lambda path: compiled(path, work, "-DMENDED"), paths))
        print(f"compiled: {limit - left():.0f} s", flush=True)
        large = {
            path.stem: [[str(cubin), kernel] for cubin, kernel in both]
            for path, *both in zip(paths, broken, mended, strict=True)
            if path.stem in LARGE
        }
        (work / "large.json").write_text(json.dumps(large))
        _, _, said = run([sys.executable, __file__, work / "large.json", "--timed"], 40)
        result["microseconds"] = said.strip().split("\n")
        write()
        print(f"timed: {limit - left():.0f} s", flush=True)
        for which, kernels in {"broken": broken, "mended": mended}.items():
            if only not in {None, which}:
                continue
            jobs = {
                (path.stem, tool): pool.submit(in_time, left, tool, *one, stated(path)[1])
                for path, one in zip(paths, kernels, strict=True)
                for tool in TOOLS
            }
            for (name, tool), job in jobs.items():
                found = job.result()
                if found is not None:
                    result["tools"].setdefault(name, {}).setdefault(which, {})[tool] = found
                    write()
            print(f"{which}: {limit - left():.0f} s", flush=True)


def in_time(left: Any, tool: str, cubin: Path, kernel: str, words: Sequence[str]) -> dict[str, object] | None:
    """None where no time is left."""
    return sanitized(tool, cubin, kernel, words, min(PATIENCE, left() - 3)) if left() > 8 else None


def described() -> list[str]:
    """GPU and driver, and the sanitizer."""
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    commands = (["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], [sanitizer, "--version"])
    said = [run(command, 10)[2] for command in commands if shutil.which(command[0])]
    return [line.strip() for text in said for line in text.split("\n") if line.strip()]


# -- without a GPU


def here(folder: Path) -> None:
    """What undertorch finds in each, and how long it takes, its compilation by NVRTC and LLVM included."""
    from undertorch.checks.arguments import arguments
    from undertorch.checks.check import check
    from undertorch.compilers.nvrtc import compile_cuda
    from undertorch.gpus import find
    from undertorch.simt.frontends.kernels import KernelFile, Setting

    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, object]] = {}
    gpu = find("A100-80GB")
    for path in sorted(FAULTS.glob("*.cu")):
        _, words = stated(path)
        given: dict[str, list[str]] = {}
        for name, text in zip(words[::2], words[1::2], strict=True):
            given.setdefault(name, []).append(text)
        grid, block = (tuple(int(n) for n in given[name][0].split(",")) for name in ("--grid", "--block"))
        source = path.read_text(encoding="utf-8")
        for which, options in (("broken", ()), ("mended", ("-DMENDED",))):
            began = time.monotonic()
            ptx = compile_cuda(source, options, name=path.name)
            file = KernelFile(text=ptx, default=Setting(gpu=gpu), source=source)
            args = arguments(given.get("--arg", []))
            found = check(file[file.kernels[0]], grid, block, args.values, gpu=gpu, empty=args.empty,
                          source_name=path.name)  # fmt: skip
            kinds = sorted({str(finding.kind) for finding in found.findings})
            rows.setdefault(path.stem, {})[which] = {"found": kinds, "seconds": round(time.monotonic() - began, 2)}
        print(path.stem, rows[path.stem], flush=True)
    (folder / "sanitizer_here.json").write_text(json.dumps(rows, indent=1))


# -- both


WHAT = {
    "stride_of_32": "8192 × 8192 floats transposed",
    "interleaved_reduction": "33,554,432 integers added up in blocks of 256",
    "index_order": "8192 × 8192 floats doubled",
    "row_of_ones_own": "262,144 rows of 96 floats added up",
    "array_of_structs": "a field of 8,388,608 structs copied",
    "divergent_branch": "8,388,608 threads, half of them in each arm",
    "uneven_loop": "8,388,608 threads, half of them with 200 rounds, half with 5",
    "register_starved_tile": "524,288 threads with 64 sums each",
    "few_warps": "49,283,072 floats reversed in pieces",
    "tail_wave": "530 blocks with 20,000 rounds, where 528 fit",
}
"""What LARGE's launches do."""


def merge(folder: Path) -> None:
    """Makes benchmarks/results of what the GPU and this machine said: of several recordings the last counts."""
    from results_file import write

    here_: dict[str, Any] = json.loads((folder / "sanitizer_here.json").read_text())
    times: dict[str, list[float]] = {}
    tools: dict[str, dict[str, Any]] = {}
    gpu: list[str] = []
    for path in sorted(folder.glob("sanitizer_gpu*.json")):
        found = json.loads(path.read_text())
        gpu = found["gpu"]
        for line in found["microseconds"]:
            times |= json.loads(line)
        for name, sides in found["tools"].items():
            for side, said in sides.items():
                tools.setdefault(name, {}).setdefault(side, {}).update(said)
    versions = {"driver": gpu[0].partition(", ")[2], "compute-sanitizer": gpu[-1].split()[1]}
    machine = f"{gpu[0].partition(', ')[0]}; undertorch: two CPU cores, no GPU"
    write("fault_times", [{"fault": name, "what": WHAT[name], "broken_us": round(a, 1), "mended_us": round(b, 1)}
                          for name, (a, b) in sorted(times.items())], [], versions, machine)  # fmt: skip
    rows: list[dict[str, object]] = []
    for name, own in sorted(here_.items()):
        row: dict[str, object] = {"fault": name, "kind": stated(FAULTS / f"{name}.cu")[0]}
        for side in ("broken", "mended"):
            said = tools.get(name, {}).get(side, {})
            row[f"{side}_sanitizer"] = None if not said else [tool for tool, one in said.items() if one["found"]]
            row[f"{side}_sanitizer_ended"] = all(one["status"] != 124 for one in said.values()) if said else None
            row[f"{side}_sanitizer_seconds"] = round(sum(one["seconds"] for one in said.values()), 1) if said else None
            row[f"{side}_undertorch"] = own[side]["found"]
            row[f"{side}_undertorch_seconds"] = own[side]["seconds"]
        rows.append(row)
    write("sanitizer", rows, [], versions, machine)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--only", choices=["broken", "mended"])
    parser.add_argument("--merge", action="store_true")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--launch", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if given.launch:
        Device().launch(*given.launch[:2], given.launch[2:], timed=False)
    elif given.timed:
        device = Device()
        for name, both in json.loads(given.folder.read_text()).items():
            times = [device.launch(*one, LARGE[name].split(), timed=True) for one in both]
            print(json.dumps({name: times}), flush=True)
    elif given.here:
        here(given.folder)
    elif given.merge:
        merge(given.folder)
    else:
        on_gpu(given.folder, given.limit, given.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
