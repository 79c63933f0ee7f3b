"""Makes the tables of docs/accuracy.md and docs/machine.md from benchmarks/results/: `make bench`.

A table stands between `<!-- table NAME -->` and `<!-- end -->`; NAME is a function here.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def result(name: str) -> dict:
    """A benchmark's last result."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(head: list[str], rows: list[list[object]]) -> str:
    """A Markdown table; all columns but the first are figures."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def kinds() -> str:
    """Busy time of the GPT-2 step by kind of kernel."""
    rows = [row for row in result("gpt2_against_h200")["rows"] if "kind" in row]
    predicted, measured = (sum(row[key] for row in rows) for key in ("predicted_us", "measured_us"))
    cells = [
        [
            r["kind"],
            r["launches"],
            f"{r['predicted_us'] / 1e3:.2f}",
            f"{r['measured_us'] / 1e3:.2f}",
            f"{r['ratio']:.2f}",
        ]
        for r in rows
    ]
    whole = ["**all**", sum(r["launches"] for r in rows), f"{predicted / 1e3:.2f}", f"{measured / 1e3:.2f}"]
    return table(
        ["kind", "launches", "predicted ms", "measured ms", "ratio"], [*cells, [*whole, f"{predicted / measured:.3f}"]]
    )


def scripts() -> str:
    """Step time and peak memory of whole scripts."""
    return table(
        ["script", "step predicted", "measured", "peak memory predicted", "measured"],
        [
            [
                f"`{r['script']}`",
                f"{r['step_us predicted'] / 1e3:.1f} ms",
                f"{r['step_us measured'] / 1e3:.1f} ms",
                f"{r['peak_bytes predicted'] / 1e9:.2f} GB",
                f"{r['peak_bytes measured'] / 1e9:.2f} GB",
            ]
            for r in result("scripts_against_h200")["rows"]
        ],
    )


def cost() -> str:
    """What seeing costs."""
    content = result("see_cost")
    rows = [[r["what"], f"{r['seconds']} s" if "seconds" in r else f"{r['GiB']} GiB"] for r in content["rows"]]
    return table([f"`see` of GPT-2 124M, {content['machine']}", ""], rows)


LEVELS = ("none", "counters", "events")


def machine_speeds() -> str:
    """Executed thread-instructions of the machine, by kernel and by what is watched."""
    rows = [row for row in result("machine_speed")["rows"] if row.get("threads") == 1]
    speeds = {(row["kernel"], row["instrument"]): row["giga_per_processor_second"] for row in rows}
    kernels = dict.fromkeys(row["kernel"] for row in rows)
    cells = [[f"`{kernel}`", *(f"{speeds[kernel, level]:.1f}" for level in LEVELS)] for kernel in kernels]
    return table(["10⁹ thread-instructions a second, one host thread", "nothing", "counters", "events"], cells)


def machine_compiles() -> str:
    """What the machine's compiling takes."""
    states = ("first on a machine", "first in a process", "next in a process", "kept")
    rows = [row for row in result("machine_speed")["rows"] if "ptx_statements" in row]
    cells = [
        [f"`{row['kernel']}`", row["ptx_statements"], *(f"{1e3 * row[f'{s}, seconds']:.0f} ms" for s in states)]
        for row in rows
    ]
    return table(["kernel", "PTX statements", *states], cells)


MEASURES = {"ulp": "units of the last place", "relative": "of the value", "absolute": "absolute"}


def approximations() -> str:
    """The greatest errors of `.approx` instructions: stated, a GPU's, the machine's."""
    content = result("approximations")

    def figure(row: dict[str, Any], which: str) -> str:
        if row[which] is None:
            return "none"
        return f"{row[which]:.2f}" if row["measure"] == "ulp" else f"2^{math.log2(row[which]):.1f}"

    cells = [
        [f"`{r['opcode']}`", r["over"], MEASURES[r["measure"]], *(figure(r, w) for w in ("stated", "gpu", "machine"))]
        for r in content["rows"]
    ]
    gpu = f"{content['versions']['gpu']}, driver {content['versions']['driver']}"
    return table(["", "over", "greatest error", "stated by the PTX ISA", gpu, "the machine"], cells)


TABLES: dict[str, tuple[Callable[[], str], ...]] = {
    "accuracy.md": (kinds, scripts, cost),
    "machine.md": (machine_speeds, machine_compiles, approximations),
}


def main() -> None:
    """Fills in every table of the pages."""
    for name, tables in TABLES.items():
        page = ROOT / "docs" / name
        text = page.read_text()
        for made in tables:
            block = rf"(<!-- table {made.__name__} -->\n).*?(\n<!-- end -->)"
            text, found = re.subn(block, lambda m, made=made: m[1] + made() + m[2], text, flags=re.S)
            if found != 1:
                raise SystemExit(f"{name} has {found} places for the table {made.__name__}; one is needed.")
        page.write_text(text)


if __name__ == "__main__":
    main()
