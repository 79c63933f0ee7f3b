"""What `check` says of kernels that people use: Triton's tutorials, Liger's, and our own ops; and what it costs.

python benchmarks/check_kernels.py [--tutorials FOLDER] [--liger FOLDER] [--own] [--only NAME] [--to FILE]

--tutorials and --liger as in triton_on_machine.py, whose cases these are; --own: of each op one of the promises of
tests/ops_promises.py.
Each case is run once on the machine alone and once with every check; both after everything was compiled. Writes
benchmarks/results/check_kernels.json: a row a case with seconds, launches and findings, which docs/check.md judges.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

import triton_on_machine
import undertorch
from results_file import write
from undertorch.checks.launches import Launches
from undertorch.checks.programs import watching
from undertorch.checks.relative import relative
from undertorch.gpus import find

GPU = find("A100-80GB")


def cases(given: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Source, name, and what runs it."""
    if given.tutorials or given.liger:
        for one in triton_on_machine.all_cases(given):
            yield one.source, one.name, one.run
    if given.own:
        from ops_promises import rows

        small = [row for row in rows() if not row.large and not row.on_gpu_only]
        for row in {str(row).partition(":")[0]: row for row in small}.values():
            yield "undertorch", str(row), partial(_promise, row)


def _promise(row: Any) -> None:
    from undertorch.ops.calls import on_host

    with on_host():
        row.check("cpu")


def looked_at(source: str, name: str, run: Callable[[], object]) -> dict[str, object]:
    seconds = {}
    launches = Launches(every=True)
    for way, looks in (("compile", False), ("alone", False), ("compile checked", True), ("checked", True)):
        launches = Launches(every=True)
        began = time.perf_counter()
        if looks:
            with watching(GPU, launches):
                run()
        else:
            with undertorch.machine():
                run()
        seconds[way] = time.perf_counter() - began
    checked = [relative(one, Path.cwd()) for one in launches.checked()]
    return {
        "source": source,
        "case": name,
        "seconds": round(seconds["alone"], 4),
        "checked_seconds": round(seconds["checked"], 4),
        "launches": sum(one.launches for one in checked),
        "missed": [one.missed for one in checked if one.missed],
        "kernels": sorted({one.kernel for one in checked}),
        "findings": [
            {"kernel": one.kernel, "kind": f.kind, "severity": f.severity,
             "at": f"{Path(f.place.file).name}:{f.place.line}",
             "other": f.other and f"{Path(f.other.file).name}:{f.other.line}", "count": f.count, "message": f.message,
             "evidence": f.evidence, "cost": f.cost, "remedy": f.remedy}
            for one in checked for f in one.findings
        ],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutorials", type=Path)
    parser.add_argument("--liger", type=Path)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--to", type=Path)
    given = parser.parse_args()
    with undertorch.machine():  # Triton's tutorials ask for the device as they are loaded
        wanted = [case for case in cases(given) if given.only in f"{case[0]} {case[1]}"]
    rows = []
    for source, name, run in wanted:
        row = looked_at(source, name, run)
        rows.append(row)
        print(f"{source} {name}: {row['seconds']} s, checked {row['checked_seconds']} s, {len(row['findings'])} found")
        for finding in row["findings"]:
            print(
                f"    {finding['severity']} {finding['kind']} {finding['kernel']} {finding['at']} {finding['message']}"
            )
        if given.to:
            given.to.write_text(json.dumps(rows, indent=1, ensure_ascii=False))
        else:  # row by row: a case that fails at the end takes nothing away
            write("check_kernels", rows, [], {"torch": torch.__version__, "triton": triton.__version__})


if __name__ == "__main__":
    main()
