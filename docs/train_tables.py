"""The tables of docs/train.md, from benchmarks/results/train.json."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "benchmarks" / "results" / "train.json").read_text()
)["rows"]

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
    for run in sorted({row["run"] for row in ROWS if row["run"] <= 2}):
        for way, words in WAYS.items():
            for r in (row for row in ROWS if row["run"] == run and row["way"] == way):
                rounds = ", ".join(f"{ms:.1f}" for ms in r["rounds_ms"])
                lines.append(
                    f"| {r['at'][11:16]} | {words} | {r['tokens_per_s']:,.0f} | {r['ms']:.1f} | {rounds} | "
                    f"{r['mfu']:.1%} | {r['peak_allocated_gib']:.1f} GiB |"
                )
    return "\n".join(lines)


def train_phases() -> str:
    """Where the time of a step goes, beside its floors."""
    seen = next(row for row in ROWS if row["way"] == "seen" and row["run"] == 1)
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


def _line(phase: str, kind: str, part: dict[str, float], bound: str) -> str:
    figures = f"{part['launches']:.0f} | {part['us'] / 1e3:.2f} | {part['floor_us'] / 1e3:.2f}"
    return f"| {phase} | {kind} | {figures} | {bound} |"
