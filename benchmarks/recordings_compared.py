"""Two recordings of the same models held against each other: do they say the same of what ran, and where?

    python benchmarks/recordings_compared.py FIRST… --and SECOND…          (no GPU)

Each a `golden_models.json.gz` (or tests/golden/measured/models.json.gz); of a model that several hold the last counts.
Of every model that both have: its ops (name, line, phase), its launches (kernel, grid, block, line, phase) in the order
in which they ran, and the time of those that are alike. Writes benchmarks/results/recordings_compared.json.
"""

import argparse
import gzip
import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from results_file import Aim, write

LONG_US = 20.0
"""A launch of which the clock's ticks (32 ns) and what ran before it make little."""


WHAT = ("kernels", "launches")


def models(files: list[Path]) -> dict[str, dict[str, Any]]:
    """By name."""
    found: dict[str, dict[str, Any]] = {}
    for file in files:
        found |= json.loads(gzip.decompress(file.read_bytes()))["models"]
    return found


def ops(model: dict[str, Any]) -> Counter[tuple[object, ...]]:
    """Name, line and phase of all that launched something."""
    numbers = {launch[1][0] for launch in model["launches"]}
    return Counter(placed(model, number) for number in numbers)


def placed(model: dict[str, Any], number: int) -> tuple[object, ...]:
    name, line, _, phase = (None if field is None else model["texts"][field] for field in model["ops"][number][:4])
    return name, line, phase


def launches(model: dict[str, Any], geometry: bool) -> list[tuple[tuple[object, ...], float]]:
    """Of each what it is and where, in order of start, and its microseconds."""
    rows = sorted(model["launches"], key=lambda launch: launch[8])
    return [
        (
            (model["texts"][one[0]], *((str(one[3]), str(one[4])) if geometry else ()), *placed(model, one[1][0])),
            one[9],
        )
        for one in rows
    ]


def alike(first: list[tuple[Any, float]], second: list[tuple[Any, float]]) -> list[tuple[float, float]]:
    """Times of launches that both have: the n-th of a kind with the n-th."""
    times: dict[Any, list[float]] = {}
    for what, us in second:
        times.setdefault(what, []).append(us)
    for some in times.values():
        some.reverse()
    return [(us, times[what].pop()) for what, us in first if times.get(what)]


def row(name: str, first: dict[str, Any], second: dict[str, Any]) -> dict[str, object]:
    """One model."""
    ours, theirs = ops(first), ops(second)
    one, other = launches(first, geometry=True), launches(second, geometry=True)
    kernels = alike(launches(first, geometry=False), launches(second, geometry=False))
    pairs = alike(one, other)
    ratios = sorted(b / a for a, b in pairs if min(a, b) >= LONG_US)
    quarters = statistics.quantiles(ratios, n=20) if len(ratios) > 1 else [1.0] * 19
    return {
        "model": name,
        "ops": [ours.total(), theirs.total()],
        "ops_alike": (ours & theirs).total(),
        "launches": [len(one), len(other)],
        "kernels_alike": len(kernels),
        "launches_alike": len(pairs),
        "busy_us": [round(sum(us for _, us in some), 1) for some in (one, other)],
        "long": len(ratios),
        "ratio_median": round(statistics.median(ratios), 4) if ratios else None,
        "ratio_5_95": [round(quarters[0], 4), round(quarters[-1], 4)],
        "step_us": [round(statistics.median(some["timed_us"]), 1) for some in (first, second)],
    }


def aims(rows: list[dict[str, Any]]) -> list[Aim]:
    everywhere = [sum(max(one["ops"]) for one in rows), sum(one["ops_alike"] for one in rows)]
    ran = [sum(max(one["launches"]) for one in rows), *(sum(one[f"{key}_alike"] for one in rows) for key in WHAT)]
    apart = max(rows, key=lambda one: abs((one["ratio_median"] or 1) - 1))
    return [
        Aim(
            what="ops at the same line in the same phase",
            aim="all",
            got=f"{everywhere[1]:,} of {everywhere[0]:,}",
            holds=everywhere[0] == everywhere[1],
        ),
        Aim(
            what="launches of the same kernel at the same line in the same phase",
            aim="≥ 98 %: all but what libraries choose anew",
            got=f"{ran[1]:,} of {ran[0]:,}; {ran[2]:,} with the same grid and block",
            holds=ran[1] >= 0.98 * ran[0],
        ),
        Aim(
            what="their time, those of 20 µs and more, median of a model",
            aim="within 2 %",
            got=f"{apart['ratio_median'] - 1:+.2%} at most ({apart['model']})",
            holds=abs(apart["ratio_median"] - 1) <= 0.02,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path, nargs="+")
    parser.add_argument("--and", dest="second", type=Path, nargs="+", required=True)
    given = parser.parse_args()
    first, second = models(given.first), models(given.second)
    rows = [row(name, one, second[name]) for name, one in first.items() if name in second]
    for one in rows:
        print(one)
    write("recordings_compared", rows, aims(rows), {}, machine="NVIDIA H200")


if __name__ == "__main__":
    main()
