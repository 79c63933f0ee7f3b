"""Makes one result and one golden of what several runs of golden_models.py left.

    python benchmarks/models_measured.py OUT…          (no GPU)

Writes benchmarks/results/golden_models.json and tests/golden/measured/models.json.gz. Of a model that several runs
hold the last counts; the times of the others stand beside it where they launched the same kernels.
"""

import gzip
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from golden_models import COMPILED
from results_file import Aim, write

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "measured" / "models.json.gz"
LEFT_OUT = frozenset({"resnet-deterministic"})
"""Its script sets cudnn.benchmark, so two processes choose different convolutions, seen or not: their first losses
differ, before anything was trained, and nothing can be told of undertorch by it."""
LAUNCH_BOUND = 0.1
"""From this share of idle time on a step waits for the CPU: its time is then the host's."""
DIGITS = 1
"""Of microseconds."""


def losses(folder: Path) -> dict[str, object]:
    """The first step whose losses, seen and unseen, are not the same bits; None where all are."""
    seen, unseen = (json.loads((folder / f"{name}.json").read_text())["losses"] for name in ("losses", "unseen"))
    pairs = list(zip(seen, unseen, strict=False))
    first = next((step for step, (one, other) in enumerate(pairs, 1) if one != other), None)
    return {"losses_compared": len(pairs), "losses_same": first is None, "losses_differ_from_step": first}


def row(found: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A model's row: as golden_models.py made it, without what stands in the aims, with medians."""
    seen, unseen = found["timed_us"], found["unseen_us"]
    kept = {
        name: found[name]
        for name in ("model", "launches", "ops", "samples", "step_us", "busy_us", "kernels_us", "profiler_us")
    }
    kept |= {"lines_us": found["lines_us"], "with_line": found["with_line"], "idle_us": found["idle_us"]}
    shares = {where: round(found["shares"].get(where, 0.0), 6) for where in ("model", "elsewhere", "no line")}
    kept |= {"shares": shares, "phases_us": found["phases_us"], "peak_bytes": found["peak_bytes"]}
    kept |= {"unseen_peak_bytes": found["unseen_peak_bytes"], "bytes_unknown": found["bytes_unknown"]}
    kept |= {"seen_us": seen, "unseen_us": unseen, "seen_median_us": statistics.median(seen)}
    if found.get("calls_differ") is not None:
        differ = {name: counts for name, counts in found["calls_differ"].items() if not name.startswith(COMPILED)}
        kept |= {"calls": sum(found["calls"].values()), "calls_differ": differ}
    kept |= {"unseen_median_us": statistics.median(unseen)}
    kept |= {"slower": kept["seen_median_us"] / kept["unseen_median_us"] - 1, "seen_s": found["seen_s"]}
    return rounded(kept | losses(folder) | {"earlier": []})


def rounded(kept: dict[str, Any]) -> dict[str, Any]:
    """Microseconds to a tenth."""

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: short(one) for name, one in value.items()}
        if isinstance(value, list):
            return [short(one) for one in value]
        return round(value, DIGITS) if isinstance(value, float) else value

    return {name: short(value) if name.endswith("_us") else value for name, value in kept.items()}


def merged(outs: list[Path]) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, str]]:
    """Rows, goldens and versions."""
    rows: dict[str, dict[str, Any]] = {}
    goldens: dict[str, Any] = {}
    versions: dict[str, str] = {}
    for out in outs:
        models = json.loads(gzip.decompress((out / "golden_models.json.gz").read_bytes()))["models"]
        for found in json.loads((out / "golden_models.json").read_text())["rows"]:
            name = found["model"]
            if name in LEFT_OUT or not all(found.get(key) for key in ("launches", "timed_us", "unseen_us")):
                continue
            new, before = row(found, out / name), rows.get(name)
            if before is not None and before["launches"] == new["launches"]:
                times = {key: before[key] for key in ("seen_us", "unseen_us", "seen_median_us", "unseen_median_us")}
                new["earlier"] = [*before["earlier"], times]
            rows[name], goldens[name] = new, models[name]
            versions = {**found["versions"], "driver": found["driver"]}
    return list(rows.values()), goldens, versions


def aims(rows: list[dict[str, Any]]) -> list[Aim]:
    least = min(rows, key=lambda one: one["with_line"])
    apart = max(rows, key=lambda one: abs(one["kernels_us"] - one["profiler_us"]))
    lines = max(rows, key=lambda one: abs(one["lines_us"] - one["busy_us"]))
    waiting = [one for one in rows if one["idle_us"] / one["step_us"] > LAUNCH_BOUND]
    busy = [one for one in rows if one not in waiting]
    slowest = max(busy, key=lambda one: abs(one["slower"]))
    same = [one["model"] for one in rows if one["losses_same"]]
    differing = [one for one in rows if not one["losses_same"]]
    counted = [one for one in rows if "calls" in one]
    others = [one["model"] for one in counted if one["calls_differ"]]
    return [
        Aim(
            what="share of GPU time with a line, least",
            aim="≥ 99.5 %",
            got=f"{least['with_line']:.2%} of {len(rows)} runs",
            holds=least["with_line"] >= 0.995,
        ),
        Aim(
            what="sum over launches, and the profiler's own total",
            aim="equal",
            got=f"at most {abs(apart['kernels_us'] - apart['profiler_us']):.1f} µs apart",
            holds=apart["kernels_us"] == apart["profiler_us"],
        ),
        Aim(
            what="sum over lines, and the busy time (kernels that overlap counted once)",
            aim="equal",
            got=f"at most {abs(lines['lines_us'] - lines['busy_us']):.1f} µs apart",
            holds=lines["lines_us"] == lines["busy_us"],
        ),
        Aim(
            what=f"clean steps seen against unseen, {len(busy)} runs that the GPU bounds",
            aim="within 2 %",
            got=f"{slowest['slower']:+.2%} at most ({slowest['model']})",
            holds=abs(slowest["slower"]) <= 0.02,
        ),
        *(
            Aim(
                what=f"clean steps seen against unseen, {one['model']}: idle {one['idle_us'] / one['step_us']:.0%}",
                aim="within 2 %",
                got=f"{one['slower']:+.1%}; {spreads(one)}",
                holds=abs(one["slower"]) <= 0.02,
            )
            for one in waiting
        ),
        *(
            [
                Aim(
                    what=f"calls into ATen of a step, seen and profiled without undertorch, {len(counted)} runs",
                    aim="as often each",
                    got=f"{sum(one['calls'] for one in counted):,} calls; others in {', '.join(others) or 'none'}",
                    holds=not others,
                )
            ]
            if counted
            else []
        ),
        Aim(
            what="losses seen and unseen, bit for bit",
            aim="equal",
            got=f"{', '.join(same)} equal; {len(differing)} runs differ",
            holds=not differing,
        ),
        Aim(
            what="first losses, before any backward, bit for bit",
            aim="equal",
            got=f"{sum(one['losses_differ_from_step'] != 1 for one in rows)} of {len(rows)} runs",
            holds=all(one["losses_differ_from_step"] != 1 for one in rows),
        ),
    ]


def spreads(one: dict[str, Any]) -> str:
    """Between which times the steps of each process lie."""
    runs = [one, *one["earlier"]]
    said = [
        f"{min(run['seen_us']) / 1e3:.2f} to {max(run['seen_us']) / 1e3:.2f} ms seen, "
        f"{min(run['unseen_us']) / 1e3:.2f} to {max(run['unseen_us']) / 1e3:.2f} ms unseen"
        for run in runs
    ]
    return "; another run: ".join(said)


def main(outs: list[Path]) -> None:
    rows, goldens, versions = merged(outs)
    write("golden_models", rows, aims(rows), versions, machine="NVIDIA H200")
    content = json.dumps({"gpu": "NVIDIA H200", "versions": versions, "models": goldens}, separators=(",", ":"))
    GOLDEN.write_bytes(gzip.compress(content.encode(), 9, mtime=0))
    print(f"{GOLDEN.name}: {GOLDEN.stat().st_size:,} bytes, {len(goldens)} runs")


if __name__ == "__main__":
    main([Path(folder) for folder in sys.argv[1:]])
