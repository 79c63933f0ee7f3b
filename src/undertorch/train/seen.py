"""The step in view: one screen of its kernels before training, and its page."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from undertorch import gpus
from undertorch.records import Assumption, Gpu, Launch, Phase, Step
from undertorch.records.steps import UNCAPTURED
from undertorch.records.totals import busy_us, shares_us
from undertorch.train.config import Settings

SCRIPT = Path(__file__).with_name("one_step.py")


def see_step(settings: Settings, gpu: str | None) -> tuple[Step, Gpu]:
    """One step of these settings: on the GPU of that name as predicted; None: as measured on this machine's.

    Raises RecordError, UnknownGpu, BadSheet, BadTrace.
    """
    with tempfile.TemporaryDirectory(prefix="undertorch-") as folder:
        given = Path(folder) / "settings.json"
        given.write_text(json.dumps(asdict(settings)), "utf-8")
        if gpu is None:
            from undertorch.steps.measure import measure

            step, sheet = measure(SCRIPT, [str(given)])
            return named(step, settings), sheet
        from undertorch.steps.see import see

        sheet = gpus.find(gpu)
        return named(see(SCRIPT, [str(given)], sheet), settings), sheet


def named(step: Step, settings: Settings) -> Step:
    """The step under the command that trains so, and as that runs it: a run replays as CUDA graphs what `one_step.py`
    launches one by one.
    """
    seen = replace(step.environment, script="undertorch", arguments=("train", "--preset", settings.preset))
    if not settings.graphs:
        return replace(step, environment=seen)
    captured = Assumption(
        where=None, what=f"{UNCAPTURED}: undertorch train replays its steps so, and one is shown without."
    )
    return replace(
        step,
        environment=seen,
        accounting=replace(step.accounting, assumed=(*step.accounting.assumed, captured)),
        advice=tuple(one for one in step.advice if one.kind != "launching"),
    )


def write_page(path: Path, step: Step, gpu: Gpu) -> None:
    """The step's page. Raises OSError."""
    from undertorch.reports.page import write_page as write

    write(path, [step], {gpu.name: gpu})


def screen(step: Step) -> Iterator[str]:
    """The kinds of kernels of a step: in which phase, how many, their time and what bounds most of it."""
    busy = busy_us(step.launches)
    groups: dict[tuple[Phase, str], list[tuple[Launch, float]]] = defaultdict(list)
    for launch, share in zip(step.launches, shares_us(step.launches), strict=True):
        groups[launch.phase, str(launch.kernel.kind)].append((launch, share))
    yield (
        f"One step on {step.gpu}, {step.time_origin}: {len(step.launches):,} kernels, "
        f"{busy / 1e3:.2f} ms of the GPU's time"
    )
    yield f"  {'phase':11} {'kind':12} {'kernels':>7} {'ms':>8} {'share':>6}  bound by"
    order = list(Phase)
    for (phase, kind), group in sorted(groups.items(), key=lambda g: (order.index(g[0][0]), -_time(g[1]))):
        time = _time(group)
        bounds: dict[str, float] = defaultdict(float)
        for launch, share in group:
            bounds[str(launch.bound or "unknown")] += share
        most = max(bounds, key=lambda name: bounds[name])
        part = f"{time / busy:.1%}" if busy else ""
        yield f"  {phase:11} {kind:12} {len(group):>7,} {time / 1e3:>8.3f} {part:>6}  {most}"
    if step.accounting.ops_without_cost:
        yield f"  no kernels are known for: {', '.join(step.accounting.ops_without_cost)}"


def _time(group: list[tuple[Launch, float]]) -> float:
    return sum(share for _, share in group)
