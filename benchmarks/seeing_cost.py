"""What being seen costs a step that the CPU bounds: seen and unseen processes in turn, each with the GPU to itself.

    python benchmarks/seeing_cost.py OUT [--only NAME…] [--limit SECONDS]      (needs CUDA; two minutes on an H200)
    python benchmarks/seeing_cost.py --result OUT…               (no GPU: writes benchmarks/results/seeing_cost.json)

All processes import first, and wait; then one after the other trains, and nothing else runs beside it. Each is timed
by one hook and the same CUDA events, seen or not. Within a process undertorch's parts are taken out and put back
every few steps, so that what each costs is told without the difference of two processes in it:

- `all`: as `undertorch see` leaves it in the steps that it times;
- `clocked`: the same, and the time that each of its functions takes is added up: what the CPU does more, seen;
- `no hooks`, `no engine`: without its hooks of the optimizers; without its wrapper of the autograd engine;
- `nothing`: without either; `gc off`: Python collects no garbage meanwhile.
"""

import argparse
import gc
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results_file import Aim, write

HERE = Path(__file__).parent
SEED = 20
WARM_UP, FIRST = 3, 5
"""Steps as undertorch plans them: those that warm up, those that it times."""
IMPORTS_S = 40.0
"""For which the slowest to import is waited for."""
STARTS_S = 8.0
"""What a process needs beside its steps, for the decision whether there is time for another."""

SEEN = ("all", "clocked", "no hooks", "all, gc off", "no engine", "nothing")
UNSEEN = ("nothing", "nothing, gc off")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process."""

    model: str
    how: str
    """`seen` or `unseen`."""
    steps: int
    block: int
    """Steps between two changes; the first of each is not counted."""

    @property
    def states(self) -> tuple[str, ...]:
        """What is changed between."""
        if self.block == 2:  # steps that take long: fewer of them
            return ("all", "clocked", "nothing") if self.how == "seen" else ("nothing",)
        return SEEN if self.how == "seen" else UNSEEN


def _runs(model: str, hows: str, steps: int, block: int) -> list[Run]:
    names = {"s": "seen", "u": "unseen"}
    return [Run(model=model, how=names[how], steps=steps, block=block) for how in hows]


RUNS = (
    *_runs("moe", "s", 44, 2),
    *_runs("lstm", "s", 160, 8),
    *_runs("dlrm", "s", 160, 8),
    *_runs("moe", "u", 20, 2),
    *_runs("lstm", "u", 160, 8),
    *_runs("dlrm", "us", 160, 8),
    *_runs("lstm", "s", 160, 8),
    *_runs("dlrm", "u", 160, 8),
    *_runs("lstm", "u", 160, 8),
    *_runs("moe", "s", 44, 2),
)
ON_CPU = ["--batch", "4", "--rows", "100"]
"""Arguments of a rehearsal, which trains DLRM alone."""


# In the process of a model.


class Timer:
    """Times steps between ends of optimizer steps, and changes what is in place."""

    def __init__(self, run: Run, on_gpu: bool) -> None:
        import torch
        from torch.optim import optimizer

        self._torch = torch
        self._optimizer = optimizer
        self._run = run
        self._on_gpu = on_gpu
        self._moments: list[Any] = []
        self._states: list[str] = []
        self._state = run.states[0]
        self._hooks: list[tuple[Any, int, Any]] = []
        self._run_backward = torch.autograd.graph._engine_run_backward
        """torch's own."""
        self._followed: Any = None
        self._own_ns = 0
        self._own_us: list[float] = []
        for module in (torch.autograd.graph, torch.autograd):
            module._engine_run_backward = self._engine  # type: ignore[attr-defined]
        self._collected = 0
        optimizer.register_optimizer_step_post_hook(self._ended)
        self._own = next(reversed(optimizer._global_optimizer_post_hooks))

    def _engine(self, *given: Any, **named: Any) -> Any:
        """torch's own, whose time is not undertorch's."""
        began = time.perf_counter_ns()
        try:
            return self._run_backward(*given, **named)
        finally:
            self._own_ns -= time.perf_counter_ns() - began

    def _clocked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function of undertorch's, whose time is added up."""

        def called(*given: Any, **named: Any) -> Any:
            began = time.perf_counter_ns()
            try:
                return call(*given, **named)
            finally:
                self._own_ns += time.perf_counter_ns() - began

        return called

    def _ended(self, *_: object) -> None:
        if self._state == "clocked":
            if len(self._states) and self._states[-1] == "clocked":  # a whole step since the last
                self._own_us.append(round(self._own_ns / 1e3, 1))
            self._own_ns = 0
        self._states.append(self._state)
        number = len(self._states)
        if number == 1:
            initialize_as_ever(self._torch)
        if number == WARM_UP and self._on_gpu:
            self._torch.cuda.synchronize()
        if number >= WARM_UP:
            self._moments.append(self._now())
        if number == WARM_UP + FIRST:
            self._collected = gc.get_stats()[2]["collections"]
        if number >= WARM_UP + FIRST:
            self._change(self._planned(number))
        if number == self._run.steps:
            sys.exit(0)

    def _planned(self, number: int) -> str:
        """The state of the step that follows. Each round goes through the states in another order."""
        turn, states = (number - WARM_UP - FIRST) // self._run.block, self._run.states
        rounds, place = divmod(turn, len(states))
        return states[(place * (1 + rounds % 2 * (len(states) - 2)) + rounds) % len(states)]

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _change(self, state: str) -> None:
        if state == self._state:
            return
        self._state = state
        if self._run.how == "seen":
            self._keep()
            hooked, followed = state not in ("no hooks", "nothing"), state not in ("no engine", "nothing")
            clocked = self._clocked if state == "clocked" else _same
            engine = clocked(self._followed) if followed else self._engine
            for hooks, key, hook in self._hooks:
                hooks[key] = clocked(hook) if hooked else _none
            for module in (self._torch.autograd.graph, self._torch.autograd):
                module._engine_run_backward = engine  # type: ignore[attr-defined]
        if state.endswith("gc off"):
            gc.disable()
        else:
            gc.enable()

    def _keep(self) -> None:
        """Finds what undertorch put in place."""
        if self._followed is not None:
            return
        self._followed = self._torch.autograd.graph._engine_run_backward
        for hooks in (self._optimizer._global_optimizer_pre_hooks, self._optimizer._global_optimizer_post_hooks):
            self._hooks += [(hooks, key, hook) for key, hook in hooks.items() if key != self._own]
        assert len(self._hooks) == 2
        assert self._followed is not self._engine

    def result(self) -> dict[str, Any]:
        if self._on_gpu:
            self._torch.cuda.synchronize()
        pairs = list(zip(self._moments, self._moments[1:], strict=False))
        times = [a.elapsed_time(b) if self._on_gpu else (b - a) * 1e3 for a, b in pairs]
        by_state: dict[str, list[float]] = defaultdict(list)
        states = self._states[WARM_UP:]
        for place in range(FIRST, len(times)):
            if states[place] == states[place - 1]:
                by_state[states[place]].append(round(times[place], 3))
        return {
            "model": self._run.model,
            "how": self._run.how,
            "first_ms": [round(one, 3) for one in times[:FIRST]],
            "ms": by_state,
            "own_us": self._own_us,
            "full_collections": gc.get_stats()[2]["collections"] - self._collected,
            "objects": len(gc.get_objects()),
            "modules": len(sys.modules),
            "torch": str(sys.modules["torch"].__version__),
        }


FILLS = ("uniform_", "normal_")


def initialize_on_gpu(torch: Any) -> None:
    """Draws large weights that a model makes on the CPU on the GPU, which takes seconds off each process."""
    for name in FILLS:
        fill = getattr(torch.Tensor, name)

        def filled(tensor: Any, *given: Any, _fill: Any = fill, **named: Any) -> Any:
            if tensor.device.type != "cpu" or tensor.numel() < LARGE:
                return _fill(tensor, *given, **named)
            return tensor.copy_(_fill(torch.empty_like(tensor, device="cuda"), *given, **named))

        setattr(torch.Tensor, name, filled)


LARGE = 100_000


def initialize_as_ever(torch: Any) -> None:
    for name in FILLS:
        if name in vars(torch.Tensor):
            delattr(torch.Tensor, name)


def _none(*_: object) -> None:
    """A hook that does nothing."""


def _same(call: Callable[..., Any]) -> Callable[..., Any]:
    return call


def child(folder: Path, run: Run, on_gpu: bool, given: list[str]) -> None:
    """Imports, waits until told to go, trains."""
    import torch

    script = str(HERE / "models" / f"{run.model}.py")
    arguments = ["--steps", str(run.steps + 10), *given]
    if run.how == "seen":
        train = seen(script, arguments, on_gpu)
    else:

        def train() -> None:
            sys.argv = [script, *arguments]
            with suppress(SystemExit):
                runpy.run_path(script, run_name="__main__")

    (folder / "ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    torch.manual_seed(SEED)
    if on_gpu:
        initialize_on_gpu(torch)
    timer = Timer(run, on_gpu)
    begun = time.monotonic()
    train()
    result = timer.result() | {"seconds": round(time.monotonic() - begun, 1)}
    (folder / "result.part").write_text(json.dumps(result))
    (folder / "result.part").replace(folder / "result.json")
    sys.stdout.flush()
    os._exit(0)  # tearing a context down takes time that others need


def seen(script: str, arguments: list[str], on_gpu: bool) -> Callable[[], None]:
    """Trains in the process that undertorch runs a script in, which here never comes to profile."""
    from undertorch.steps.measure import run as measuring
    from undertorch.steps.measure.exchange import Request
    from undertorch.steps.measure.plan import Plan

    never = 10**6
    measuring.plan = lambda _: Plan(clock=WARM_UP, profiler=never, shown=never, last=never)  # type: ignore[assignment]
    folder = tempfile.mkdtemp()
    request = Request(
        script=script,
        arguments=tuple(arguments),
        step=None,
        folder=folder,
        without_gpu=not on_gpu,
        reached=str(Path(folder) / "reached"),
    )
    return lambda: measuring.run(request)


# In the process that starts the others.


def environment() -> dict[str, str]:
    """With the package importable, and what undertorch sets for its child in all."""
    source, path = str(HERE.parent / "src"), os.environ.get("PYTHONPATH")
    return os.environ | {
        "PYTHONPATH": source if not path else f"{source}{os.pathsep}{path}",
        "INDUCTOR_PROVENANCE": "2",
        "KINETO_LOG_LEVEL": "5",
    }


def started(number: int, run: Run, out: Path, given: argparse.Namespace) -> tuple[Path, subprocess.Popen[bytes]]:
    folder = out / f"{number:02}_{run.model}_{run.how}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("go", "ready", "result.json"):
        (folder / name).unlink(missing_ok=True)
    command = [sys.executable, __file__, "--child", str(folder), str(number), given.on]
    with (folder / "log").open("w") as log:
        return folder, subprocess.Popen(command, env=environment(), stdout=log, stderr=log)


def ready(folder: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether a process waits for its turn, or is over."""
    return (folder / "ready").exists() or process.poll() is not None


def measure(given: argparse.Namespace) -> None:
    begun = time.monotonic()

    def left() -> float:
        return float(given.limit) - (time.monotonic() - begun)

    given.out.mkdir(parents=True, exist_ok=True)
    models = given.only if given.on == "cuda" else ["dlrm"]
    runs = [(i, run) for i, run in enumerate(RUNS) if not models or run.model in models]
    processes = [(run, *started(number, run, given.out, given)) for number, run in runs]
    results: list[dict[str, Any]] = []
    try:
        until = time.monotonic() + IMPORTS_S
        while time.monotonic() < until and not all(ready(folder, process) for _, folder, process in processes):
            time.sleep(0.05)
        print(f"imported after {time.monotonic() - begun:.1f} s", flush=True)
        for _, folder, process in processes:
            if left() < STARTS_S:
                print("no time for", folder.name)
                continue
            (folder / "go").touch()
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(1.0, left()))
            if (folder / "result.json").exists():
                results.append(json.loads((folder / "result.json").read_text()))
                (given.out / "seeing_cost.json").write_text(json.dumps(results))
                print(said(results[-1]), f"({results[-1]['seconds']} s)", flush=True)
            else:
                print("FAILED", folder.name, (folder / "log").read_text()[-1500:], flush=True)
    finally:
        for _, _, process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    print(f"{time.monotonic() - begun:.0f} s")
    for one in table(results):
        print(one)


def said(result: dict[str, Any]) -> str:
    states = ", ".join(f"{name} {statistics.median(ms):.3f}" for name, ms in result["ms"].items())
    own = f", undertorch's own {statistics.median(result['own_us']):.1f} µs a step" if result.get("own_us") else ""
    return f"{result['model']} {result['how']}: five {statistics.median(result['first_ms']):.3f}, {states} ms{own}"


# Of what was measured.


def table(results: list[dict[str, Any]]) -> list[dict[str, object]]:
    """A row each model: what a step takes in seen and unseen processes, and within the seen ones, what each part
    costs."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        groups[result["model"]].append(result)
    return [row(model, of) for model, of in groups.items()]


def row(model: str, results: list[dict[str, Any]]) -> dict[str, object]:
    seen_, unseen = ([one for one in results if one["how"] == how] for how in ("seen", "unseen"))

    def medians(of: list[dict[str, Any]], state: str) -> list[float]:
        return [round(statistics.median(one["ms"][state]), 3) for one in of if one["ms"].get(state)]

    found: dict[str, object] = {
        "model": model,
        "seen_ms": medians(seen_, "all"),
        "unseen_ms": medians(unseen, "nothing"),
        "first_seen_ms": [one["first_ms"] for one in seen_],
        "first_unseen_ms": [one["first_ms"] for one in unseen],
        "own_us": [round(statistics.median(one["own_us"]), 1) for one in seen_ if one.get("own_us")],
        "full_collections": [one["full_collections"] for one in results],
    }
    for state in SEEN[1:]:
        pairs = list(zip(medians(seen_, "all"), medians(seen_, state), strict=False))
        if pairs:  # above 0: a step is faster without
            found[f"all against {state}"] = [round(with_ / without - 1, 5) for with_, without in pairs]
    return found


def result_of(outs: list[Path]) -> None:
    """Of several runs of this, all count."""
    results = [one for out in outs for one in json.loads((out / "seeing_cost.json").read_text())]
    rows = table(results)
    aims = []
    for one in rows:
        own, seen_, unseen = one["own_us"], one["seen_ms"], one["unseen_ms"]
        if not (own and seen_ and unseen):
            continue
        share = statistics.median(own) / 1e3 / statistics.median(seen_)  # type: ignore[arg-type]
        apart = statistics.median(seen_) / statistics.median(unseen) - 1  # type: ignore[arg-type]
        aims.append(
            Aim(
                what=f"undertorch's own time on the CPU in a clean step of {one['model']}",
                aim="within 2 %",
                got=f"{share:.2%}; between processes {apart:+.1%}: seen {seen_}, unseen {unseen} ms",
                holds=share <= 0.02,
            )
        )
    versions = {one["torch"] for one in results if one.get("torch")}  # of the machine that measured
    write("seeing_cost", rows, aims, {"torch": ", ".join(sorted(versions))} if versions else {}, machine="NVIDIA H200")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--limit", type=float, default=55, help="seconds after which no process starts")
    parser.add_argument("--only", nargs="+", default=[], help="these models")
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda", help="cpu: a rehearsal")
    parser.add_argument("--result", type=Path, nargs="+")
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    if given.child:
        folder, number, on = given.child
        run = RUNS[int(number)]
        child(Path(folder), run, on == "cuda", [] if on == "cuda" else ON_CPU)
    elif given.result:
        result_of(given.result)
    else:
        measure(given)


if __name__ == "__main__":
    main()
