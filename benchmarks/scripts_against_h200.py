"""Whole scripts predicted with no GPU, beside what an H200 needed for them: time of a step, memory held and at most.

    python benchmarks/scripts_against_h200.py

What the H200 answered is tests/golden/h200_scripts.json (benchmarks/golden_scripts.py). Measured memory holds two
workspaces of cuBLAS and cuBLASLt, 32 MiB each on Hopper, that the prediction leaves out.
"""

import json
from pathlib import Path

from results_file import Aim, write
from undertorch import gpus
from undertorch.records.totals import busy_us
from undertorch.steps.see import see

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden" / "h200_scripts.json"


def row(measured: dict) -> tuple[dict[str, object], dict[str, str]]:
    arguments = tuple(measured["arguments"])
    step = see(ROOT / measured["script"], arguments, gpus.find("H200"), step=2)
    memory = step.memory
    return {
        "script": " ".join((measured["script"], *arguments)),
        "step_us predicted": round(step.step_us or 0),
        "step_us measured": measured["step_us"],
        "step ratio": round((step.step_us or 0) / measured["step_us"], 3),
        "busy_us predicted": round(busy_us(step.launches)),
        "peak_bytes predicted": memory.peak_bytes,
        "peak_bytes measured": measured["peak_of_step_2"],
        "peak ratio": round((memory.peak_bytes or 0) / measured["peak_of_step_2"], 4),
        "start_bytes predicted": memory.start_bytes,
        "start_bytes measured": measured["held_after_step_1"],
    }, step.environment.versions


def main() -> None:
    content = json.loads(GOLDEN.read_text())
    rows, versions = [], {}
    for measured in content["scripts"]:
        found, versions = row(measured)
        rows.append(found)
        print(found, flush=True)
    filling = [r for r in rows if r["step_us measured"] > 40_000]
    write(
        "scripts_against_h200",
        rows,
        [
            Aim(
                what="step time of scripts that fill the GPU, predicted / measured",
                aim="within 10 %",
                got=", ".join(f"{r['step ratio']:.3f}" for r in filling),
                holds=all(abs(r["step ratio"] - 1) <= 0.1 for r in filling),
            ),
            Aim(
                what="peak memory, predicted / measured",
                aim="within 1 %, but for 64 MiB of workspaces",
                got=", ".join(f"{r['peak ratio']:.4f}" for r in rows),
                holds=all(
                    abs(r["peak_bytes predicted"] + (64 << 20) - r["peak_bytes measured"])
                    <= 0.01 * r["peak_bytes measured"]
                    for r in rows
                ),
            ),
        ],
        versions | {"measured with": str(content["machine"])},
    )


if __name__ == "__main__":
    main()
