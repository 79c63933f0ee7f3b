"""The tables of docs/train.md, from benchmarks/results/train.json."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
ROWS: list[dict[str, Any]] = json.loads((BENCHMARKS / "results" / "train.json").read_text())["rows"]

if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))
from train_gpus import NAME, efficiency, is_one, partner  # noqa: E402 - it lies there

WAYS = {
    "eager": "PyTorch, eager, float32 weights and autocast",
    "compile": "torch.compile",
    "compile_graphs": "torch.compile in a CUDA graph",
    "compile_graphs_bf16": "the same, bfloat16 weights with float32 masters",
    "ours": "**undertorch train**",
}
KINDS = {"matmul": "products", "elementwise": "GELU's slope", "copy": "queries, keys, values joined; copies"}
SMALL_US = 250.0
"""Kinds that take less in a phase stand in one row."""


def train_peers() -> str:
    """Tokens a second of the last two runs."""
    lines = ["| run, UTC | | tokens/s | ms | its rounds | MFU | peak memory |", "|---|---|---:|---:|---|---:|---:|"]
    for run in sorted({row["run"] for row in ROWS if row.get("run", 3) <= 2}):
        for way, words in WAYS.items():
            for r in (row for row in ROWS if row.get("run") == run and row["way"] == way):
                rounds = ", ".join(f"{ms:.1f}" for ms in r["rounds_ms"])
                lines.append(
                    f"| {r['at'][11:16]} | {words} | {r['tokens_per_s']:,.0f} | {r['ms']:.1f} | {rounds} | "
                    f"{r['mfu']:.1%} | {r['peak_allocated_gib']:.1f} GiB |"
                )
    return "\n".join(lines)


def train_phases() -> str:
    """Where the time of a step goes, beside its floors."""
    seen = next(row for row in ROWS if row["way"] == "seen" and row.get("run") == 1)
    parts: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    bounds: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in seen["rows"]:
        key = row["phase"], row["kind"]
        for name in ("launches", "us", "floor_us"):
            parts[key][name] += row[name]
        bounds[key][row["bound"]] += row["us"]
    lines = ["| phase | kind | kernels | ms | floor | bound by |", "|---|---|---:|---:|---:|---|"]
    for phase in dict.fromkeys(("forward", "backward", "update", *(key[0] for key in parts))):
        rest: dict[str, float] = defaultdict(float)
        for key in sorted((key for key in parts if key[0] == phase), key=lambda key: -parts[key]["us"]):
            part = parts[key]
            if part["us"] < SMALL_US:
                for name, value in part.items():
                    rest[name] += value
                continue
            most = max(bounds[key], key=lambda bound: bounds[key][bound])
            lines.append(_line(phase, KINDS.get(key[1], key[1]), part, most))
        if rest["us"]:
            lines.append(_line(phase, "the rest", rest, ""))
    whole = {name: sum(part[name] for part in parts.values()) for name in ("launches", "us", "floor_us")}
    return "\n".join([*lines, _line("", "all", whole, "")])


HOW = {
    "a4": "4 microbatches",
    "eager": "without CUDA graphs",
    "sparing": "`--sparing`",
    "ctas16": "NCCL at 16 blocks",
    "ctas8": "NCCL at 8 blocks",
    "torchs": "products by torch",
}


ROWS_OF_A_GPU = {"gpt2-124m": "32 × 1024", "llama-1b": "4 × 4096"}
BEFORE = """
Rows of {} are of older code: DDP launched kernel by kernel, products under it and FSDP2 were torch's, and FSDP2
gathered blocks twice, with embedding and last layer in one group. What stands above has run in a group of one process,
and not on several GPUs yet."""


def train_gpus() -> str:
    """Tokens a second of several GPUs, what that is of so many times one, and what of a step NCCL has alone."""
    lines = [
        "| UTC | model, tokens a GPU and step | GPUs | tokens/s | of so many times one | ms a step | its kernels "
        "| NCCL's | of it alone | memory |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    timed = [row for row in ROWS if is_one(row["way"]) and "tokens_per_s" in row]
    order = {way: place for place, way in enumerate(dict.fromkeys(partner(row["way"]) for row in timed))}
    for row in sorted(timed, key=lambda row: (order[partner(row["way"])], row["world"], row["way"])):
        share = efficiency(row, ROWS) if row["world"] > 1 else None
        about = "" if row.get("exposed_noted", True) else "about "
        nccl, alone = (row.get(name) for name in ("communication_us", "exposed_communication_us"))
        exposed = "" if nccl is None else "–" if alone is None else f"{about}{alone / 1e3:.1f}"
        lines.append(
            f"| {row['at'][11:16]} | {_way(row['way'])} | {row['world']} | {row['tokens_per_s']:,.0f} | "
            f"{'' if share is None else f'{share:.1%}'} | {row['ms']:.1f} | {row['busy_us'] / 1e3:.1f} | "
            f"{'' if nccl is None else f'{nccl / 1e3:.1f}'} | {exposed} | {row['peak_allocated_gib']:.1f} GiB |"
        )
    before = sorted({row["at"][11:16] for row in timed if row["world"] > 1 and "by_cublaslt" not in row})
    return "\n".join([*lines, *([BEFORE.format(" and ".join(before))] if before else [])])


def _way(way: str) -> str:
    """What it is, in words."""
    found = NAME.fullmatch(way)
    assert found is not None
    model, how = found["model"], found["how"].split("_")[1:]
    rows = "8 × 4096" if "b8" in how else ROWS_OF_A_GPU[model]
    parallel = "FSDP2" if model.startswith("llama") else "DDP"
    said = {"1": "", "N": f", {parallel}", "G": f", {parallel} of one process"}[found["on"]]
    return f"`{model}`{said}, {', '.join([rows, *(HOW[each] for each in how if each != 'b8')])}"


def _line(phase: str, kind: str, part: dict[str, float], bound: str) -> str:
    figures = f"{part['launches']:.0f} | {part['us'] / 1e3:.2f} | {part['floor_us'] / 1e3:.2f}"
    return f"| {phase} | {kind} | {figures} | {bound} |"
