"""How a way of training is timed: the GPU to itself, rounds of steps, and a profile of what ran and what waited."""

import fcntl
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

WARM, TIMED, ROUNDS = 6, 10, 3
SEED = 1
TOGETHER = "TRAIN_WAYS_TOGETHER"
SHORT_GAP = 6.0
"""Microseconds: what lies between two kernels of a graph is less."""
WAIT, LONGEST_WAIT = "TRAIN_WAYS_WAIT", 55.0
"""Seconds."""


def small(on: str) -> bool:
    return on == "cpu"


def settings(name: str, on: str) -> Any:
    from undertorch.train.config import changed, preset

    found = preset(name)
    if small(on):
        return changed(found, layers=1, width=32, heads=4, context=16, vocabulary=300, batch=2)
    return replace(found, shape=replace(found.shape, vocabulary=50257)) if name.startswith("gpt2") else found


class Timer:
    """Times calls of a step, with the GPU to itself."""

    def __init__(self, on: str, lock: Path, name: str) -> None:
        self.on, self.lock, self.name, self.warm, self.timed = on, lock, name, WARM, TIMED
        self.before_profile, self.profiled = 6, 3

    def ready(self) -> None:
        """Waits until all that were started together have compiled: nothing else then uses the GPU, or its power."""
        together = [name for name in os.environ.get(TOGETHER, "").split(",") if name and name != self.name]
        (self.lock.parent / f"ready_{self.name}").touch()
        ends = time.monotonic() + float(os.environ.get(WAIT, LONGEST_WAIT))
        while time.monotonic() < ends and not all(
            (self.lock.parent / f"ready_{name}").exists() or (self.lock.parent / f"train_{name}.json").exists()
            for name in together
        ):
            time.sleep(0.05)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The GPU is ours inside."""
        with self.lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def __call__(self, step: Callable[[], float | None], tokens: int) -> dict[str, Any]:
        import torch

        cuda, states = self.on == "cuda", []
        losses, began = [], time.monotonic()
        for number in range(self.warm):
            losses.append(step())
            print(f"step {number}: {time.monotonic() - began:.1f} s", flush=True)
        self.ready()
        each = []
        with self.alone():
            for _ in range(2):
                step()
            for number in range(ROUNDS):
                if cuda:
                    torch.cuda.synchronize()
                speaks = os.environ.get("RANK", "0") == "0"
                clocks = asked_clocks() if cuda and speaks and number == 1 else None
                began = time.perf_counter()
                for _ in range(self.timed):
                    step()
                if cuda:
                    torch.cuda.synchronize()
                each.append((time.perf_counter() - began) / self.timed)
                if clocks is not None:
                    states = clocks.communicate()[0].split("\n")
            profiled = kernels_of(step, self.before_profile, self.profiled) if cuda else {}
        best = statistics.median(each)
        result = {
            "ms": best * 1e3,
            "rounds_ms": [e * 1e3 for e in each],
            "tokens_per_s": tokens / best,
            "losses": losses,
        }
        if cuda:
            result["peak_allocated_gib"] = torch.cuda.max_memory_allocated() / 2**30
            result["peak_reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
            result |= {"clocks": states[:8], "profiled": profiled}
        return result


def asked_clocks() -> Any:
    """nvidia-smi, while the GPU is at work: SM clock, power, why the clock is what it is."""
    query = "clocks.sm,power.draw,clocks_event_reasons.active,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    return subprocess.Popen(["sh", "-c", f"sleep 0.25; {' '.join(command)}"], stdout=subprocess.PIPE, text=True)


def kernels_of(step: Callable[[], float | None], before: int, steps: int) -> dict[str, Any]:
    """Time of each kernel in the steady state, the sum, what of the span nothing ran in, and NCCL alone;
    microseconds a step."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(before):
        step()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    names: dict[str, list[float]] = {}
    spans: list[tuple[float, float]] = []
    others: list[tuple[float, float]] = []
    communicating: list[tuple[float, float]] = []
    starts: list[tuple[float, str]] = []
    for event in profiler.events():
        if str(event.device_type).endswith("CUDA"):
            row = names.setdefault(event.name[:100], [0, 0.0])
            row[0] += 1 / steps
            row[1] += event.time_range.elapsed_us() / steps
            spans.append((event.time_range.start, event.time_range.end))
            (communicating if event.name.startswith("nccl") else others).append(spans[-1])
            starts.append((event.time_range.start, event.name[:60]))
    spans.sort()
    after = dict(starts)
    busy, until, gaps = 0.0, 0.0, []
    for begin, end in spans:
        if until and begin > until:
            gaps.append((begin - until, after[begin]))
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    gaps.sort(reverse=True)
    short = [gap for gap, _ in gaps if gap < SHORT_GAP]
    span = (until - spans[0][0]) / steps if spans else 0.0
    top = sorted(names.items(), key=lambda pair: -pair[1][1])[:60]
    return {
        "span_us": span, "busy_us": busy / steps, "launches": len(spans) / steps,
        "communication_us": union_us(communicating) / steps,
        "others_us": union_us(others) / steps,
        "exposed_communication_us": (busy - union_us(others)) / steps,
        "short_gaps": len(short) / steps, "short_gaps_us": sum(short) / steps,
        "long_gaps": [[round(gap, 1), name] for gap, name in gaps[:24] if gap >= SHORT_GAP],
        "kernels": [[name, round(count, 2), round(us, 1)] for name, (count, us) in top],
    }  # fmt: skip


def union_us(spans: Iterable[tuple[float, float]]) -> float:
    """Time in which at least one of them was."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def random_rows(config: Any, world: int = 1, rank: int = 0) -> Any:
    """The same tokens for every way; each step takes the next of four batches."""
    import numpy as np

    from undertorch.train.loader import Rows

    random = np.random.default_rng(SEED)
    shape = (4, world, config.batch, config.shape.context + 1)
    tokens = random.integers(0, config.shape.vocabulary, shape)[:, rank]
    return [Rows(tokens=each, places=(0,) * config.batch, epoch=0) for each in tokens]
