"""What is told of a measured step: shares of its time, every launch in small, kernels to be judged by hand."""

import gzip
import json
import random
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

SEED = 20
"""Of the thirty kernels."""
GIVEN = 5
"""Arguments of trained_model.py before those of the script."""


def judge(name: str, script: str, folder: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Of a measurement a row of figures, its golden, and kernels from which the thirty are taken."""
    from undertorch.records.files import write_steps
    from undertorch.steps.measure import exchange
    from undertorch.steps.measure.reading import read_measured

    begun = time.monotonic()
    measured = exchange.read(Path(folder))
    assert measured is not None
    step, _ = read_measured(Path(folder), measured)
    write_steps(Path(folder) / "step.json", [step])
    row = figures(name, script, step) | profilers_own(Path(folder), step.environment.step)
    row |= {"timed_us": list(measured.timed_us), "read_s": round(time.monotonic() - begun, 1)}
    return row, golden(step, measured), kernels(name, step)


def figures(name: str, script: str, step: Any) -> dict[str, Any]:
    """Where a step's time goes."""
    from undertorch.records import Phase
    from undertorch.records.totals import busy_us, lines

    total = sum(launch.time_us for launch in step.launches)
    groups: dict[str, float] = defaultdict(float)
    without: Counter[str] = Counter()
    for launch in step.launches:
        op = step.ops[launch.ops[0]]
        where = (
            "no line"
            if op.where is None
            else "model"
            if Path(op.where.file).name in (f"{script}.py", "gpt2.py")
            else "elsewhere"
        )
        if op.where is None:
            without[f"{launch.kernel.name} / {op.name} / {op.node}"] += round(launch.time_us, 1)
        groups[where] += launch.time_us
        if launch.phase in (Phase.UPDATE, Phase.OTHER):
            groups[launch.phase] += launch.time_us
    by_lines = sum(line.time_us for line in lines(step))
    busy = busy_us(step.launches)
    return {
        "model": name,
        "launches": len(step.launches),
        "ops": len(step.ops),
        "step_us": step.step_us,
        "busy_us": busy,
        "kernels_us": total,
        "lines_us": by_lines,
        "shares": {key: value / total for key, value in groups.items()},
        "with_line": step.accounting.time_with_line,
        "phases_us": {phase: sum(x.time_us for x in step.launches if x.phase is phase) for phase in Phase},
        "idle_us": sum(one.time_us for one in step.idle),
        "idle_causes_us": {
            cause: sum(one.time_us for one in step.idle if one.cause == cause) for cause in {x.cause for x in step.idle}
        },
        "idle_with_line_us": sum(one.time_us for one in step.idle if one.where is not None),
        "bytes_unknown": sum(launch.kernel.min_bytes is None for launch in step.launches),
        "several_ops": sum(len(launch.ops) > 1 for launch in step.launches),
        "without_line": without.most_common(12),
        "peak_bytes": step.memory.peak_bytes,
        "samples": step.samples,
        "notes": [one.what for one in step.accounting.assumed],
        "gpu": step.environment.gpu_name,
        "driver": step.environment.driver,
        "versions": step.environment.versions,
    }


def kernels(name: str, step: Any) -> list[dict[str, Any]]:
    """Each launch that has a line, as a person would judge it."""
    from undertorch.records.totals import source_line

    return [
        {
            "model": name,
            "kernel": launch.kernel.name,
            "op": op.name,
            "node": op.node,
            "phase": launch.phase,
            "line": f"{Path(op.where.file).name}:{op.where.line} {op.where.function}",
            "source": source_line(step.environment.sources, op.where.file, op.where.line),
            "others": [
                f"{other.where.line} {source_line(step.environment.sources, other.where.file, other.where.line)}"
                for other in (step.ops[i] for i in launch.ops[1:])
                if other.where is not None
            ],
            "module": op.module,
            "us": round(launch.time_us, 2),
        }
        for launch in step.launches
        if (op := step.ops[launch.ops[0]]).where is not None
    ]


def profilers_own(folder: Path, number: int) -> dict[str, Any]:
    """Of a step, from the trace without undertorch: microseconds on the GPU of all that was launched in it, and how
    often it made each call into ATen."""
    from undertorch.steps.measure.naming import mark_number

    with gzip.open(folder / "trace.json.gz") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    step = next(e for e in events if e["name"] == f"ProfilerStep#{number}" and e["cat"] == "user_annotation")
    inside = [event for event in events if step["ts"] <= event["ts"] <= step["ts"] + step["dur"]]
    begun = {event["args"]["correlation"] for event in inside if event["cat"] in ("cuda_runtime", "cuda_driver")}
    return {
        "profiler_us": sum(
            event["dur"]
            for event in events
            if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") and event["args"].get("correlation") in begun
        ),
        "calls": Counter(e["name"] for e in inside if e["cat"] == "cpu_op" and mark_number(e["name"]) is None),
    }


def golden(step: Any, measured: Any) -> dict[str, Any]:
    """Every launch of a step, small: texts stand once, in `texts`, and are named by their number."""
    texts: dict[str, int] = {}

    def text(value: object) -> int | None:
        return None if value is None else texts.setdefault(str(value), len(texts))

    def line(op: Any) -> str | None:
        return None if op.where is None else f"{Path(op.where.file).name}:{op.where.line}"

    ops = [
        [text(op.name), text(line(op)), text(op.module), text(op.phase), op.forward, op.microbatch] for op in step.ops
    ]
    launches = [
        [
            text(launch.kernel.name),
            list(launch.ops),
            text(launch.phase),
            None if launch.kernel.grid is None else list(launch.kernel.grid),
            None if launch.kernel.block is None else list(launch.kernel.block),
            launch.kernel.registers,
            launch.kernel.shared_bytes,
            launch.stream,
            round(launch.start_us, 1),
            round(launch.time_us, 2),
        ]
        for launch in step.launches
    ]
    return {
        "arguments": step.environment.arguments[GIVEN:],
        "step_us": step.step_us,
        "timed_us": measured.timed_us,
        "peak_bytes": measured.peak_bytes,
        "start_bytes": measured.start_bytes,
        "samples": step.samples,
        "op_fields": ["name", "line", "module", "phase", "forward", "microbatch"],
        "ops": ops,
        "launch_fields": [
            *("kernel", "ops", "phase", "grid", "block", "registers", "shared_bytes", "stream", "start_us", "time_us")
        ],
        "launches": launches,
        "idle": [
            [round(one.start_us, 1), round(one.time_us, 1), text(one.cause)] for one in step.idle if one.time_us > 1
        ],
        "texts": list(texts),
    }


def thirty(candidates: list[dict[str, Any]]) -> str:
    """Thirty kernels of all models, ten of them backward, each with its line and the line's text."""
    pick = random.Random(SEED)
    distinct = {(c["model"], c["kernel"], c["op"], c["line"], c["phase"]): c for c in candidates}
    pool = list(distinct.values())
    backward = [c for c in pool if c["phase"] == "backward"]
    chosen = pick.sample(backward, min(10, len(backward)))
    others = [c for c in pool if c not in chosen]
    chosen += pick.sample(others, min(20, len(others)))
    rows = []
    for number, one in enumerate(chosen, 1):
        rows.append(
            f"{number:2}. {one['model']} {one['phase']}: {one['kernel']} ({one['us']} µs) {one['op']}"
            f" {one['node'] or ''}"
        )
        rows.append(f"    {one['line']} [{one['module']}]   {one['source']}")
        rows += [f"      also {other}" for other in one["others"]]
    return "\n".join(rows) + "\n"
