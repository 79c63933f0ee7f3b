"""Every own kernel at reduced shapes under compute-sanitizer: memcheck and racecheck. Needs a GPU.

    PYTHONPATH=src:tests python3 benchmarks/ops_sanitized.py OUT [--limit SECONDS] [--calls WORD] [--tools TOOL]

OUT/ops_sanitized.json says of each tool and group of calls whether it was clean, and has the first of what was found;
what was found in cuBLAS's own kernels alone, which linear_cross_entropy and linear_act call, is listed apart.
The groups run side by side, each in a process of its own; `--run GROUP` runs one, without compute-sanitizer.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ops_reduced import EVERYWHERE, ON_GPU
from undertorch.ops.calls import on_host

TOOLS = ("memcheck", "racecheck")
MOST = 100
"""Findings that are printed. Where there are as many some may not have been."""
CUBLAS = re.compile(r"access at (nvjet_|cutlass|sm\d+_xmma_|void cublas|void gemm|void splitK)")
GROUPS = {**EVERYWHERE, **ON_GPU}


def run(group: str, device: str) -> None:
    """The calls of one group, waited for."""
    torch.manual_seed(0)
    if device == "cuda":
        GROUPS[group](device)
        torch.cuda.synchronize()
    else:
        with on_host():
            GROUPS[group](device)


def watched(tool: str, group: str, out: Path) -> Any:
    """compute-sanitizer on a process of its own."""
    command = [
        "compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "99",
        "--print-limit", str(MOST), sys.executable, __file__, str(out), "--run", group,
    ]  # fmt: skip
    # An allocation of its own for each tensor, so that the first byte after it is nobody's; graphs need torch's pools.
    caching = {} if group == "graphs" else {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    log = (out / f"{tool}_{group}.log").open("w")
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **caching})


def said(log: Path) -> list[str]:
    """What compute-sanitizer found, without its frames."""
    lines = [line.removeprefix("=========").strip() for line in log.read_text(errors="replace").splitlines()]
    return [line[:300] for line in lines if line.startswith(("Invalid", "Error", "Race", "Warning", "Program hit"))]


def judged(status: int | None, found: list[str]) -> dict[str, Any]:
    """Whether our kernels were clean, and what is to be told."""
    library = [line for line in found if CUBLAS.search(line)]
    only_library = bool(found) and len(library) == len(found) < MOST
    ours = [line for line in found if line not in library]
    return {"clean": status == 0 or (status == 99 and only_library), "found": ours[:10], "in_cublas": library[:10]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--calls", default="", help="groups whose name holds this word")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--run", choices=GROUPS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    os.environ["UNDERTORCH_OPS"] = "own"
    if asked.run:
        return run(asked.run, "cuda")
    asked.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    running = {
        (tool, group): watched(tool, group, asked.out)
        for tool in asked.tools
        for group in GROUPS
        if asked.calls in group
    }
    rows = []
    for (tool, group), process in running.items():
        try:
            status = process.wait(max(asked.limit - (time.monotonic() - began), 0.5))
        except subprocess.TimeoutExpired:
            process.kill()
            status = None
        log = asked.out / f"{tool}_{group}.log"
        text = log.read_text(errors="replace")
        verdict = judged(status, said(log))
        rows.append({
            "tool": tool, "group": group, "status": status, **verdict,
            "end": text[-400:] if status else "", "after_s": round(time.monotonic() - began, 1),
        })  # fmt: skip
        (asked.out / "ops_sanitized.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(tool, group, "clean" if verdict["clean"] else f"status {status}", verdict, flush=True)
    return None


if __name__ == "__main__":
    main()
