"""Sees every model of benchmarks/models on a real GPU, and holds what was seen against the same steps unseen.

    python benchmarks/golden_models.py OUT [--quick] [--only NAME…] [--turns N] [--alongside N] [--seen]
                                               [--limit SECONDS]   (needs CUDA; five minutes a turn on an H200)
    python benchmarks/golden_models.py OUT --ranks [N…] [--limit SECONDS]    (as many GPUs as the largest N; N: 2)


Each model trains twice a turn, in processes of its own: unseen, and seen by `undertorch see` without --gpu; which comes
first changes from turn to turn and from model to model (two turns: seen, unseen, unseen, seen). Written into OUT:

- `golden_models.json`: of each model the step's time unseen and seen, the share of GPU time with a line, by phase,
  idle, the sum over lines beside the profiler's own total, whether the losses are the same bits, and the aims;
- `golden_models.json.gz`: of each model every launch (kernel, grid, block, µs, op, line, phase), peak memory, time;
  `golden_models_2.json.gz`: the same of the second turn, in other processes;
- `thirty.txt`: thirty kernels taken by a seed, ten of them backward, with their lines, to be judged by hand;
- `NAME/`: the measurement itself (--quick or --keep), or what went wrong;
- `--seen` leaves out the unseen trainings, and what is told by them;
- with --ranks `ranks.json`: of each script and number of GPUs what each rank says, communication beside the sum of
  NCCL's kernels; `ddp_gpt_2/` and so on: the report, the JSON (with --keep the page), each rank's raw traces
  (ranks_measured.py holds the report against them).

Models may be measured in parts, each with an OUT of its own: models_measured.py joins them. All is written as it comes,
and what no time is left for is named.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measured_figures import judge, thirty
from trained_model import DETERMINISTIC
from undertorch.steps.measure.exchange import GPU_ONLY, MEASURED, TRACE
from undertorch.steps.measure.ranks import DONE

HERE = Path(__file__).parent
MODELS = HERE / "models"
TRAINED = HERE / "trained_model.py"
STEPS = 30
"""More than are measured: undertorch stops the script."""
TIMEOUT_S = 240
ALONGSIDE = 3
"""Models whose processes are there at once, of which one at a time is timed: as many as have room on the GPU together.
(The three largest, but for the one that trains alone, hold 122 GB.)"""
LEAST_S = 15.0
"""Of time left with which a process is started."""
READING_S = 20.0
"""Kept free at the end, to read the last traces."""


COMPILED = "## Call CompiledFxGraph"
"""Begins the name of the range around compiled code (torch/_inductor/output_code.py)."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One model as it is trained."""

    name: str
    script: str
    arguments: str = ""
    mode: str | None = None
    """Of torch.compile; None: eager; `deterministic`: eager, by algorithms that give the same bits each time."""
    quick: bool = False
    alone: bool = False
    """Whether it needs the GPU's memory to itself."""


RUNS = (
    Run(name="gpt2", script="gpt2", quick=True),
    Run(name="resnet", script="resnet", quick=True),
    Run(name="gpt2-compile", script="gpt2", mode="default", quick=True),
    Run(name="llama-compile", script="llama", mode="default"),
    Run(name="vit-compile", script="vit", mode="default"),
    Run(name="bert-compile", script="bert", arguments="--layers 12", mode="default"),
    Run(name="resnet-compile", script="resnet", mode="default"),
    Run(name="gpt2-graphs", script="gpt2", mode="reduce-overhead", quick=True),
    Run(name="gpt2-captured", script="captured_step", quick=True),
    Run(name="gpt2-deterministic", script="gpt2", arguments="--layers 4", mode=DETERMINISTIC, quick=True),
    Run(name="lstm", script="lstm"),
    Run(name="dlrm", script="dlrm"),
    Run(name="vit", script="vit"),
    Run(name="bert", script="bert"),
    Run(name="moe", script="moe"),
    Run(name="unet", script="unet"),
    Run(name="llama", script="llama"),
    Run(name="llama-8b", script="llama", arguments="--size 8b", alone=True),
)


# In the process that starts the others.


def environment() -> dict[str, str]:
    """With the package importable where it is not installed."""
    source = str(HERE.parent / "src")
    path = os.environ.get("PYTHONPATH")
    # Inductor's account of its kernels is part of the key of its cache: asked for unseen as well, nothing is compiled
    # twice.
    return os.environ | {
        "PYTHONPATH": source if not path else f"{source}{os.pathsep}{path}",
        "INDUCTOR_PROVENANCE": "2",
    }


def finished(command: list[str], log: Path, patience: float = TIMEOUT_S, **more: str) -> int:
    """Runs a command with its output in a file; answers its status. What outlives its time is killed, children too.
    `more`: of its environment."""
    with log.open("w") as out:
        process = subprocess.Popen(command, env=environment() | more, stdout=out, stderr=out, start_new_session=True)
        try:
            return process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def command(run: Run, folder: Path, lock: Path, unseen: bool) -> list[str]:
    """What follows trained_model.py to train a model."""
    script = str(next(path for folder in (MODELS, HERE) if (path := folder / f"{run.script}.py").exists()))
    given = [str(folder), str(lock), "unseen" if unseen else "seen", run.mode or "", script]
    return [*given, "--steps", str(STEPS), *run.arguments.split()]


def train_unseen(run: Run, folder: Path, lock: Path, patience: float) -> dict[str, Any]:
    """What the model's process wrote."""
    given = [sys.executable, str(TRAINED), *command(run, folder, lock, unseen=True)]
    finished(given, folder / "unseen.log", patience)
    return json.loads((folder / "unseen.json").read_text())


def train_seen(run: Run, folder: Path, lock: Path, patience: float) -> float:
    """Leaves the measurement in the folder; answers the seconds it took."""
    code = (
        "import sys; from pathlib import Path; from undertorch.steps.measure.spawn import run_measured;"
        "run_measured(Path(sys.argv[1]), sys.argv[3:], Path(sys.argv[2]))"
    )
    begun = time.monotonic()
    log = folder / "seen.log"
    given = [str(TRAINED), str(folder), *command(run, folder, lock, unseen=False)]
    status = finished([sys.executable, "-c", code, *given], log, patience)
    if status:
        raise RuntimeError(f"seen: status {status}: {log.read_text()[-1500:]}")
    return time.monotonic() - begun


class Report:
    """What is written as it comes."""

    def __init__(self, out: Path, limit: float) -> None:
        self._out = out
        self._begun = time.monotonic()
        self.until = self._begun + limit - READING_S
        """When trainings end."""
        self.rows: dict[str, dict[str, Any]] = defaultdict(dict)
        self.goldens: list[dict[str, dict[str, Any]]] = [{}, {}]
        """Of the first and of the second turn."""
        self.candidates: list[dict[str, Any]] = []
        self.failures: dict[str, str] = {}
        self._writing = threading.Lock()

    def failed(self, name: str, error: BaseException) -> None:
        self.failures[name] = "".join(traceback.format_exception(error))[-4000:]
        print(f"FAILED {name}: {error!r}"[:600], flush=True)
        self.write()

    def write(self) -> None:
        with self._writing:
            self._write()

    def _write(self) -> None:
        rows = [{"model": name, **row} for name, row in list(self.rows.items())]
        (self._out / "golden_models.json").write_text(
            json.dumps(
                {
                    "name": "golden_models",
                    "date": datetime.now(UTC).date().isoformat(),
                    "seconds": round(time.monotonic() - self._begun, 1),
                    "rows": rows,
                    "aims": self.aims(),
                    "failures": self.failures,
                },
                indent=1,
                default=str,
            )
        )
        for name, goldens in zip(("golden_models", "golden_models_2"), self.goldens, strict=True):
            content = json.dumps({"made": datetime.now(UTC).date().isoformat(), "models": goldens})
            (self._out / f"{name}.json.gz").write_bytes(gzip.compress(content.encode()))
        (self._out / "thirty.txt").write_text(thirty(self.candidates))

    def aims(self) -> list[dict[str, object]]:
        rows = self.rows.items()
        seen = [(name, row["with_line"]) for name, row in rows if row.get("with_line") is not None]
        slower = [
            (name, statistics.median(row["timed_us"]) / statistics.median(row["unseen_us"]) - 1)
            for name, row in rows
            if row.get("timed_us") and row.get("unseen_us")
        ]
        sums = [
            (name, abs(row["kernels_us"] - row["profiler_us"]) / row["profiler_us"])
            for name, row in rows
            if row.get("profiler_us")
        ]
        losses = [
            (name, row["losses_same"]) for name, row in rows if name.endswith(DETERMINISTIC) and "losses_same" in row
        ]
        return [
            aim(
                "share of GPU time with a line, least",
                "≥ 99.5 %",
                min(seen, key=lambda x: x[1], default=None),
                lambda x: x >= 0.995,
            ),
            aim(
                "clean steps while seen against unseen, most",
                "≤ 2 %",
                max(slower, key=lambda x: x[1], default=None),
                lambda x: x <= 0.02,
            ),
            aim(
                "sum over launches against the profiler's total",
                "equal",
                max(sums, key=lambda x: x[1], default=None),
                lambda x: x < 1e-6,
            ),
            aim(
                "losses of deterministic runs seen and unseen, bit for bit",
                "equal",
                min(losses, key=lambda x: x[1], default=None),
                bool,
            ),
        ]


def aim(what: str, wanted: str, got: tuple[str, Any] | None, holds: Any) -> dict[str, object]:
    """What was aimed at, and the model that is furthest from it."""
    return {"what": what, "aim": wanted, "got": got, "holds": got is not None and bool(holds(got[1]))}


def same_losses(folder: Path) -> tuple[bool | None, int]:
    """Whether the losses of the steps that both trainings made are the same bits, and how many they are."""
    unseen = json.loads((folder / "unseen.json").read_text())["losses"]
    seen = json.loads((folder / "losses.json").read_text())["losses"]
    both = min(len(unseen), len(seen))
    return (None if not both else unseen[:both] == seen[:both]), both


def order(place: int, turns: int) -> list[str]:
    """Of a model's trainings: each turn the other way round than the one before, and than that of the model before, so
    that what grows or warms up meanwhile favours neither. Compiled code is compiled seen, and found in Inductor's cache
    unseen: the other way round it would be without what undertorch has Inductor keep."""
    pairs = [("seen", "unseen") if (place + turn) % 2 == 0 else ("unseen", "seen") for turn in range(turns)]
    return [how for pair in pairs for how in pair]


def model(run: Run, folder: Path, lock: Path, report: Report, pool: ProcessPoolExecutor, hows: list[str]) -> None:
    """One model, as often as is said. Traces are read while others train."""
    row = report.rows[run.name]
    judged: list[Future[Any]] = []
    times: dict[str, list[list[float]]] = {"seen": [], "unseen": []}
    for how in hows:
        own = folder if not times[how] else folder / f"{how}_{len(times[how]) + 1}"
        own.mkdir(parents=True, exist_ok=True)
        try:
            left = report.until - time.monotonic()
            if left < LEAST_S:
                raise TimeoutError(f"no time was left to train it {how}")
            if how == "unseen":
                unseen = train_unseen(run, own, lock, min(TIMEOUT_S, left))
                times[how].append(unseen["times_us"])
                row.setdefault("unseen_peak_bytes", unseen["peak_bytes"])
            else:
                seconds = round(train_seen(run, own, lock, min(TIMEOUT_S, left)), 1)
                times[how].append(timed(own))
                row.setdefault("seen_s", seconds)
                judged.append(pool.submit(judge, run.name, run.script, str(own)))
        except Exception as error:  # a model that fails is listed, and the others go on
            report.failed(f"{run.name} {how}", error)
    try:
        for place, one in enumerate(judged):
            figures, kept, candidates = one.result(timeout=TIMEOUT_S)
            if place == 0:
                row |= figures
                report.candidates += candidates
            if place < len(report.goldens):
                report.goldens[place][run.name] = kept
        if times["seen"] and times["unseen"]:
            row["losses_same"], row["losses_compared"] = same_losses(folder)
            row["calls_differ"] = other_calls(folder, row)
    except Exception as error:
        report.failed(run.name, error)
    row["order"] = hows
    row["timed_us"], row["unseen_us"] = ([step for one in times[how] for step in one] for how in ("seen", "unseen"))
    row["processes_us"] = {how: [statistics.median(one) for one in some if one] for how, some in times.items()}
    report.write()
    print(
        run.name,
        {
            k: row.get(k)
            for k in ("launches", "with_line", "shares", "step_us", "losses_same", "calls_differ", "read_s")
        },
        row["processes_us"],
        flush=True,
    )


def other_calls(folder: Path, row: dict[str, Any]) -> dict[str, list[int]] | None:
    """Of calls into ATen that a step makes more or less often seen than unseen, how often: nothing, or markers would
    change what runs. None where no step was profiled unseen. Compiled code's own ranges are no calls, though the
    profiler may write them down as such."""
    clean = folder / "calls.json"
    if not clean.exists():
        return None
    seen, unseen = Counter(row["calls"]), Counter(json.loads(clean.read_text()))
    names = (name for name in sorted(seen | unseen) if not name.startswith(COMPILED))
    return {name: [seen[name], unseen[name]] for name in names if seen[name] != unseen[name]}


def timed(folder: Path) -> list[float]:
    """Microseconds of the steps that undertorch timed."""
    from undertorch.steps.measure import exchange

    measured = exchange.read(folder)
    return [] if measured is None else list(measured.timed_us)


def train_ranks(out: Path, counts: list[int], limit: float, keep: bool) -> None:
    """Sees the scripts of benchmarks/ranks on so many GPUs each."""
    import torch

    out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + limit
    rows: list[dict[str, Any]] = []
    there = torch.cuda.device_count()
    for count in counts:
        for name in RANKED:
            row: dict[str, Any] = {"script": name, "ranks": count}
            rows.append(row)
            if count > there:
                row["failed"] = f"this machine has {there} GPUs"
            elif time.monotonic() > until:
                row["failed"] = "no time was left"
            else:
                row |= train_ranked(out / f"{name}_{count}", name, count, until, keep)
            print(row, flush=True)
            (out / "ranks.json").write_text(json.dumps(rows, indent=1))


RANKED = ("ddp_gpt", "fsdp_gpt")


def train_ranked(folder: Path, name: str, count: int, until: float, keep: bool) -> dict[str, Any]:
    """One script on so many GPUs: what its report says, or why there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), "-m"]
    files = ["--json", str(folder / "step.json"), "--page", str(folder / "step.html")]
    script = [str(HERE / "ranks" / f"{name}.py"), "--steps", str(STEPS)]
    begun = time.monotonic()
    try:
        patience = max(1.0, min(TIMEOUT_S, until - begun))
        with kept_traces(folder) as temporary:
            given = [*command, "undertorch", "see", *files, *script]
            status = finished(given, folder / "report.txt", patience, TMPDIR=str(temporary))
    except subprocess.TimeoutExpired:
        status = -1
    took = round(time.monotonic() - begun, 1)
    if status:
        return {"failed": f"status {status} after {took} s", "said": (folder / "report.txt").read_text()[-3000:]}
    text = (folder / "step.json").read_bytes()
    if not keep:
        (folder / "step.json.gz").write_bytes(gzip.compress(text))
        for name_ in ("step.json", "step.html"):
            (folder / name_).unlink()
    steps = json.loads(text)
    return {"seconds": took, **ranked(steps if isinstance(steps, list) else [steps])}


@contextmanager
def kept_traces(folder: Path) -> Iterator[Path]:
    """A folder for what is temporary. What the ranks measure there is taken over into `folder/rank_N` as each is done:
    the command itself leaves none of it."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            for done in temporary.glob(f"undertorch-ranks-*/rank_*/{DONE}"):
                kept = folder / done.parent.name
                if not kept.exists():
                    kept.mkdir()
                    for name in (TRACE, GPU_ONLY, MEASURED):
                        if (done.parent / name).exists():
                            os.link(done.parent / name, kept / name)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield temporary
    finally:
        over.set()
        looking.join()
        shutil.rmtree(temporary, ignore_errors=True)


def ranked(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the ranks' steps as `--json` writes them: their figures, and beside each the sum of its NCCL kernels; the
    share of its launches' time with a line."""
    report = steps[0].get("ranks") or {"ranks": [{"rank": 0}], "waits": [], "notes": []}
    rows = []
    for step, figures in zip(steps, report["ranks"], strict=True):
        launches = step["launches"]
        lines = {op["id"]: op["where"] for op in step["ops"]}
        total = sum(one["time_us"] for one in launches)
        known = sum(one["time_us"] for one in launches if lines[one["ops"][0]] is not None)
        nccl = [one["time_us"] for one in launches if "nccl" in one["kernel"]]
        rows.append(
            figures
            | {"nccl_us": sum(nccl), "nccl_kernels": len(nccl), "launches": len(launches), "with_line": known / total}
            | {"profiled_us": step["step_us"], "without_line": sum(lines[one["ops"][0]] is None for one in launches)}
        )
    return {"rows": rows, "waits": report["waits"], "notes": report["notes"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true", help="GPT-2 (eager, compiled, as CUDA graphs) and ResNet")
    parser.add_argument(
        "--only", nargs="+", default=[], choices=[run.name for run in RUNS], help="these models, the first first"
    )
    parser.add_argument("--turns", type=int, default=1, help="how often each model trains both seen and unseen")
    parser.add_argument(
        "--alongside", type=int, default=ALONGSIDE, help="so many models' processes at once, one of them being timed"
    )
    parser.add_argument("--seen", action="store_true", help="each model seen alone, not unseen beside it")
    parser.add_argument("--keep", action="store_true", help="leave the measurements in OUT")
    parser.add_argument("--ranks", type=int, nargs="*", help="DDP and FSDP2 alone, on so many GPUs each (2)")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which all ends")
    given = parser.parse_args()
    if given.ranks is not None:
        train_ranks(given.out, given.ranks or [2], given.limit, given.keep)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    by_name = {run.name: run for run in RUNS}
    every = [run.name for run in RUNS if run.quick or not given.quick]
    runs = [by_name[name] for name in dict.fromkeys(given.only or every)]
    report = Report(given.out, given.limit)
    lock = given.out / "gpu.lock"
    beside = [(place, run) for place, run in enumerate(runs) if not run.alone]
    apart = [(place, run) for place, run in enumerate(runs) if run.alone]
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        for some, number in ((beside, given.alongside), (apart, 1)):
            with ThreadPoolExecutor(number) as threads:
                for done in [
                    threads.submit(
                        model,
                        run,
                        given.out / run.name,
                        lock,
                        report,
                        pool,
                        ["seen"] * given.turns if given.seen else order(0 if run.mode else place, given.turns),
                    )
                    for place, run in some
                ]:
                    done.result()
    report.write()
    for one in report.aims():
        print("holds" if one["holds"] else "FALLS SHORT", one["what"], one["aim"], one["got"])
    if not (given.quick or given.keep):
        for path in [*given.out.rglob("trace.json.gz"), *given.out.rglob("capture_*.json.gz")]:
            if not any(name in path.parts for failure in report.failures for name in failure.split()[:1]):
                path.unlink()
        for path in [*given.out.rglob("step.json"), *given.out.rglob("measured.json")]:
            path.unlink()
    print(f"{time.monotonic() - report._begun:.0f} s", list(report.failures))


if __name__ == "__main__":
    main()
