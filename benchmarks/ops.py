"""Times the training ops on a GPU beside torch, torch.compile, Liger and quack, where those are installed.

    PYTHONPATH=src python3 benchmarks/ops.py OUT [--limit SECONDS] [--only WORD] [--first N] [--cuts] [--on cpu]

OUT/ops.jsonl gets a row as soon as it is known; `python3 benchmarks/ops_results.py OUT` makes of it
benchmarks/results/ops.json with the aims, and the plots. A measurement is a CUDA graph of calls on rotating inputs that
together exceed three times the L2 cache; all ways of a pass are replayed in turn, and the median counts. The ceilings,
of copies and matmuls, are measured in the same run.

Everything is compiled first, by many processes at once. One process after another then measures, case by case: what
ends one (an illegal access, a hang) is written down and left out by the next. `--cuts`: every way to cut our kernels
too. `--on cpu` rehearses on small tensors: our kernels are compiled and not run, and nothing is timed.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl

import ops_cases
from ops_cases import BF16, CASES, LINEAR, MANY_TENSORS, Case, Data
from ops_peers import PEERS, Way, auto_ways, cuts, own_ways
from undertorch.gpus.calibrating.on_cuda import driver_version

ROUNDS, ROUNDS_OF_LONG = 15, 7
LONG_US = 20_000
LEAST_US = 1000
"""Of a graph, about: its start, of some µs, is not to count."""
BUSY_CYCLES = 1_000_000
"""That the GPU spins before a round, half a millisecond, while the round's first graphs are put in line."""
ABOUT_RATE = 4e12
"""Bytes a second, to guess how many calls that is."""
SMALL = 256
"""Rows (of many tensors, 400 times as many elements) that a kernel is compiled and rehearsed with."""
STALLED = 75.0
"""Seconds without a row after which a measuring process is ended."""
COMPILING_SHARE = 0.3
"""Of the whole time, at most, for compiling first; what is not done by then is compiled when it is called."""
ENDED_BY_GPU = 3
"""Exit status of a process whose CUDA context is lost."""
LOST = ("illegal", "misaligned", "device-side assert", "unspecified launch failure", "CUDA error")


@dataclass
class Rows:
    """Writes rows as they come, and what is being tried."""

    out: Path
    began: float = field(default_factory=time.time)

    def write(self, **row: Any) -> None:
        """Appends one."""
        row["at_s"] = round(time.time() - self.began, 1)
        with (self.out / "ops.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def trying(self, what: str) -> None:
        """So that whoever finds this process dead knows of what."""
        (self.out / "trying.txt").write_text(what)


def about(case: Case, **more: Any) -> dict[str, Any]:
    """What a row says of its case."""
    dtype = str(case.dtype).removeprefix("torch.")
    return {"op": case.label, "rows": case.rows, "width": case.width, "features": case.features, "dtype": dtype, **more}


# Ceilings


@triton.jit
def copy_kernel(source, target, BLOCK: tl.constexpr):
    """Each block copies BLOCK elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at))


def ceilings(rows: Rows) -> None:
    """Bytes a second of the best of several copy kernels, and FLOPs a second of bfloat16 matmuls of the cases."""
    from undertorch.gpus.calibrating.backends import ProbeFailed
    from undertorch.gpus.calibrating.measuring import ceiling
    from undertorch.gpus.calibrating.on_cuda import OnCuda
    from undertorch.gpus.calibrating.probes import plan

    gpu = OnCuda()
    for probe in plan(gpu.facts()):
        if probe.ceiling == "global copy":
            try:
                found = ceiling(probe, gpu.seconds(probe))
            except ProbeFailed as error:
                rows.write(op="copy", config=probe.variant, failed=str(error))
            else:
                rows.write(op="copy", config=f"CUDA, {probe.variant}", rate=found.value)
    del gpu
    count = 2**29
    source, target = torch.randn(count, device="cuda", dtype=BF16), torch.empty(count, device="cuda", dtype=BF16)
    for block, warps in ((1024, 4), (2048, 8), (4096, 8), (8192, 8), (2048, 4)):
        call = partial(copy_kernel[(count // block,)], source, target, BLOCK=block, num_warps=warps)
        rate = 4 * count / _seconds(call)
        rows.write(op="copy", config=f"Triton, {block} elements, {warps} warps", rate=rate)
    del source, target
    for case in (case for case in CASES if case.op in LINEAR):
        x, weight = (torch.randn(n, case.features, device="cuda", dtype=BF16) for n in (case.rows, case.width))
        rate = 2 * case.rows * case.width * case.features / _seconds(partial(torch.mm, x, weight.t()))
        rows.write(op="matmul", config=str(case), rate=rate)
        del x, weight


def _seconds(call: Any) -> float:
    for _ in range(3):
        call()
    taken = []
    for _ in range(11):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) * 1e-3)
    return median(taken)


# One case


def all_ways(case: Case, rows: Rows, every_cut: bool, banned: Sequence[str]) -> Iterator[Way]:
    """Ours, then the peers that are there, without those that ended a process before."""
    sources: dict[str, Any] = {"undertorch own": own_ways, "undertorch auto": auto_ways, **PEERS}
    if every_cut:
        sources["undertorch, cut"] = cuts
    for who, source in sources.items():
        if f"{case}, {who}" in banned:
            continue
        rows.trying(f"{case}, {who}")
        try:
            yield from source(case)
        except (ImportError, AttributeError, RuntimeError) as error:  # a peer that is not there, or of another version
            rows.write(**about(case, who=who, failed=repr(error)[:300]))


class Called:
    """Stands for a graph of what no graph can hold."""

    def __init__(self, way: Way, sets: Sequence[Data], times: int) -> None:
        self.way, self.sets, self.times = way, sets, times

    def replay(self) -> None:
        """Its calls, as they come."""
        for _ in range(self.times):
            for d in self.sets:
                self.way.call(d)


def captured(way: Way, sets: Sequence[Data], times: int, stream: Any, pool: Any) -> Any:
    """A graph of some calls with each set, after two calls outside of it."""
    with torch.cuda.stream(stream):
        way.call(sets[0])
        for d in sets if way.pass_ == "backward" else sets[-1:]:
            way.call(d)
    stream.synchronize()
    if way.waits:
        return Called(way, sets, times)
    graph = torch.cuda.CUDAGraph()
    # As many results are kept as there are sets, so that writes, too, go to memory that no cache has.
    results: deque[Any] = deque(maxlen=len(sets))
    with torch.cuda.graph(graph, stream=stream, pool=pool):
        for _ in range(times):
            for d in sets:
                results.append(way.call(d))
    return graph


def renew(sets: Sequence[Data], originals: Sequence[Data]) -> None:
    """Inputs that a way has written over, as they were."""
    for d, original in zip(sets, originals, strict=True):
        for name in ("x", "residual", "logits", "q", "k"):
            if original.get(name) is not None:
                d[name].copy_(original[name])


def peak(way: Way, d: Data) -> int:
    """Bytes that a call holds at most, beyond its inputs."""
    way.call(d)  # what stays allocated after the first one, such as cuBLAS's 32 MiB, is nobody's in particular
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    way.call(d)
    return torch.cuda.max_memory_allocated() - before


@dataclass(frozen=True)
class Ready:
    """A way that can be replayed."""

    way: Way
    graph: Any
    calls: int
    held: int | None
    """Bytes at most, of what is bound by its matmuls."""


def replayed(
    case: Case, rows: Rows, ready: Sequence[Ready], stream: Any, renewed: Callable[[], None]
) -> list[list[float]]:
    """µs of a call, round by round, of each way in turn, in another order each time: matmuls heat the GPU for what
    comes after. It is busy before each of them, the first too: a graph starts some µs later on an idle GPU.
    """
    times: list[list[float]] = [[] for _ in ready]
    order, shuffled = list(zip(ready, times, strict=True)), random.Random(0)
    with torch.cuda.stream(stream):
        for turn in range(ROUNDS + 1):
            marks = []
            torch.cuda._sleep(BUSY_CYCLES)
            shuffled.shuffle(order)
            for one, taken in order:
                if turn > ROUNDS_OF_LONG and taken[0] * one.calls > LONG_US:
                    continue
                rows.trying(f"{case}, {one.way.who}{', cut' * bool(one.way.config)}")
                if one.way.spoils:
                    renewed()
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                one.graph.replay()
                end.record()
                marks.append((one.calls, taken, begin, end))
            try:
                stream.synchronize()
            except RuntimeError:  # the context is lost; the last one tried is left out next time
                os._exit(ENDED_BY_GPU)
            for calls, taken, begin, end in marks if turn else ():
                taken.append(begin.elapsed_time(end) * 1e3 / calls)
    return times


def run_case(case: Case, rows: Rows, every_cut: bool, banned: Sequence[str]) -> None:
    """Captures every way, replays them in turn, writes their times."""
    least, flops = ops_cases.least_bytes(case), ops_cases.arithmetic(case)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    count = 2 if case.op in MANY_TENSORS else max(2, min(-(-3 * l2 // min(least.values())) + 1, 64))
    repeats = 1 if flops else max(round(LEAST_US * 1e-6 * ABOUT_RATE / (min(least.values()) * count)), 1)
    sets = [ops_cases.data(case, "cuda") for _ in range(count)]
    spoilt: list[Data] = []
    torch.cuda.synchronize()
    stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    ready: list[Ready] = []
    for way in all_ways(case, rows, every_cut, banned):
        its = sets
        if way.spoils:
            its = spoilt = spoilt or [ops_cases.data(case, "cuda") for _ in range(count)]
            torch.cuda.synchronize()
        try:
            times = 1 if way.spoils else repeats
            graph = captured(way, its, times, stream, pool)
            held = peak(way, its[0]) if case.op in LINEAR and way.pass_ == "both" else None
            ready.append(Ready(way, graph, times * count, held))
        except Exception as error:  # of whatever kind: the others go on
            rows.write(**about(case, who=way.who, pass_=way.pass_, config=way.config, failed=repr(error)[:300]))
            if any(word in repr(error) for word in LOST):
                os._exit(ENDED_BY_GPU)
    found = replayed(case, rows, ready, stream, lambda: renew(spoilt, sets))
    for one, taken in zip(ready, found, strict=True):
        way = one.way
        more: dict[str, Any] = {} if one.held is None else {"peak_bytes": one.held}
        if way.pass_ in flops:
            more["flops"] = flops[way.pass_]
        rows.write(**about(
            case, pass_=way.pass_, who=way.who, config=way.config, us=round(median(taken), 3),
            least_us=round(min(taken), 3), bytes=least[way.pass_], **more,
        ))  # fmt: skip


# Processes


def asked_cases(asked: Any) -> list[Case]:
    """Those of this run, in order."""
    words = asked.only.split(",")
    return [case for case in CASES if any(word in str(case) for word in words)][: asked.first]


def compile_share(asked: Any, share: int, of: int) -> None:
    """Calls every so-manieth way once, so that it lies in the caches of Triton and Inductor."""
    torch.set_num_threads(1)
    work = [(case, who) for case in asked_cases(asked) for who in ("cuts", "own", *PEERS) if who != "torch"]
    for case, who in work[share::of]:
        shapes = who == "torch.compile"
        small = ops_cases.data(case, "cuda", None if shapes else SMALL * (400 if case.op in MANY_TENSORS else 1))
        with contextlib.suppress(Exception):  # what fails here fails again, and is said, when it is measured
            source = {"cuts": lambda case: cuts(case, None if asked.cuts else 5), "own": own_ways, **PEERS}[who]
            for way in source(case):
                way.call(small)


def compile_all(asked: Any) -> float:
    """Seconds that it took."""
    begin = time.monotonic()
    workers = max(min((os.cpu_count() or 2) - 2, 14), 1)
    running = [
        subprocess.Popen(_command(asked, "--compile", str(n), str(workers)), stderr=subprocess.DEVNULL)
        for n in range(workers)
    ]
    for process in running:
        try:
            process.wait(max(asked.limit * COMPILING_SHARE - (time.monotonic() - begin), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
    return time.monotonic() - begin


def _command(asked: Any, *more: str) -> list[str]:
    passed = [
        "--limit",
        str(asked.limit),
        "--only",
        asked.only,
        *(["--first", str(asked.first)] if asked.first else []),
    ]
    return [sys.executable, __file__, str(asked.out), *passed, *(["--cuts"] if asked.cuts else []), *more]


def measure_from(asked: Any, place: int, banned: Sequence[str], began: float) -> None:
    """Measures case after case, in this process."""
    rows = Rows(asked.out, began)
    for number, case in enumerate(asked_cases(asked)):
        if number < place:
            continue
        if time.time() - began > asked.limit:
            rows.write(op="stopped", before=str(case), after_s=asked.limit)
            return
        (asked.out / "place.txt").write_text(str(number))
        run_case(case, rows, asked.cuts, banned)
        torch.cuda.empty_cache()


def measure_all(asked: Any, rows: Rows) -> None:
    """Starts measuring processes until all is measured or the time is over."""
    banned: list[str] = []
    place = asked.out / "place.txt"
    place.write_text("0")
    while time.time() - rows.began < asked.limit:
        known = json.dumps({"place": int(place.read_text()), "banned": banned, "began": rows.began})
        process = subprocess.Popen(_command(asked, "--measure", known))
        ended = _watched(process, asked, rows)
        if ended == 0:
            return
        culprit = (asked.out / "trying.txt").read_text()
        rows.write(op="ended", status=ended, trying=culprit)
        banned.append(culprit)


def _watched(process: Any, asked: Any, rows: Rows) -> int:
    """Its exit status; one that stalls or runs over the time by far is ended."""
    trying = asked.out / "trying.txt"
    begun = time.time()
    while True:
        try:
            return int(process.wait(1.0))
        except subprocess.TimeoutExpired:
            last = max(trying.stat().st_mtime if trying.exists() else 0.0, begun)
            if time.time() - last > STALLED or time.time() - rows.began > asked.limit + 30:
                process.kill()


# Without a GPU


def rehearse(asked: Any, rows: Rows) -> None:
    """Every way once on small CPU tensors; our kernels are compiled for an H200 and not run."""
    from undertorch.compilers.triton_driver import Driver, put_in_place
    from undertorch.gpus import find
    from undertorch.ops.calls import on_host

    put_in_place(Driver(find("H200"), lambda launch: None, lambda name, count: None))
    for case in asked_cases(asked):
        small = ops_cases.data(case, "cpu", 16 * (400 if case.op in MANY_TENSORS else 1))
        for source in (own_ways, auto_ways, PEERS["torch"], lambda case: cuts(case, 2)):
            for way in source(case):
                if "cuDNN" in way.who:
                    continue
                with on_host():
                    way.call(small)
                rows.write(**about(case, pass_=way.pass_, who=way.who, config=way.config, us=1.0,
                                   bytes=ops_cases.least_bytes(case)[way.pass_]))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, default=450.0, help="seconds: no case is begun after that")
    parser.add_argument("--only", default="", help="cases whose name holds one of these words: WORD,WORD")
    parser.add_argument("--first", type=int, help="as many cases, in order of importance")
    parser.add_argument("--cuts", action="store_true", help="every way to cut our kernels")
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--compile", nargs=2, type=int, metavar=("I", "N"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("UNDERTORCH_CACHE", str(asked.out / "cache"))  # choices are measured in this very run
    os.environ.setdefault("UNDERTORCH_OPS", "own")
    if asked.compile:
        return compile_share(asked, *asked.compile)
    if asked.measure:
        return measure_from(asked, asked.measure["place"], asked.measure["banned"], asked.measure["began"])
    rows = Rows(asked.out)
    if asked.on == "cpu":
        return rehearse(asked, rows)
    rows.write(op="environment", torch=torch.__version__, triton=triton.__version__, gpu=torch.cuda.get_device_name(),
               driver=driver_version())  # fmt: skip
    rows.write(op="compiling", seconds=round(compile_all(asked), 1))
    ceilings(rows)
    torch.cuda.empty_cache()
    measure_all(asked, rows)
    return None


if __name__ == "__main__":
    main()
