"""A run that was stopped and resumed on a GPU, against the one that was left alone: to the last bit.

    PYTHONPATH=src python3 benchmarks/train_resumed.py OUT [--limit SECONDS] [--on cuda]

A small model with --deterministic: a run of 30 steps, then a process of its own that finds the same folder as it was
after 15 and resumes. Losses, norms, weights and moments are held against each other. Writes OUT/train_resumed.json, and
with --publish benchmarks/results/train_resumed.json from it. (Kills at random moments: train_kill.py.)
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from results_file import Aim, write

STEPS, EVERY = 30, 15
SMALL = ("--preset", "nano", "--layers", "1", "--batch", "2", "--steps", str(STEPS), "--checkpoint-every", str(EVERY),
         "--evaluate-every", "100", "--keep", "9", "--sample", "def ", "--no-see", "--deterministic")  # fmt: skip


def train(folder: Path, text: Path, on: str, limit: float, *options: str) -> tuple[int | str, str]:
    """Exit status and what was told."""
    command = [
        sys.executable,
        "-m",
        "undertorch",
        "train",
        str(text),
        *SMALL,
        "--on",
        on,
        "--out",
        str(folder),
        *options,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(limit, 1.0), check=False)
    except subprocess.TimeoutExpired as error:
        return "not done within the limit", str(error.stdout)[-1500:]
    return done.returncode, (done.stdout + done.stderr)[-1500:]


def outcome(folder: Path) -> tuple[list[tuple[Any, ...]], dict[str, str]]:
    """Losses and norms by step, and checksums of the last checkpoint's files."""
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    last = max((folder / "checkpoints").glob("step-*"), default=None)
    files = {} if last is None else json.loads((last / "checkpoint.json").read_text())["files"]
    return (
        [(row["step"], row["loss"], row["norm"]) for row in rows if "loss" in row],
        {name: each["blake2b"] for name, each in files.items()},
    )


def both(out: Path, on: str, ends: float) -> dict[str, Any]:
    """The two runs."""
    work = out / "runs"
    work.mkdir(exist_ok=True)
    os.environ["UNDERTORCH_CACHE"] = str(work / "cache")
    text = work / "text.txt"
    text.write_text("".join(Path(module.__file__).read_text() for module in (argparse, json, shutil, subprocess)))
    status, told = train(work / "alone", text, on, ends - time.monotonic())
    result: dict[str, Any] = {"on": on, "steps": STEPS, "alone": status, "alone_told": told}
    if status == 0:
        shutil.copytree(work / "alone", work / "resumed")
        shutil.rmtree(work / "resumed" / "checkpoints" / f"step-{STEPS:08}")
        status, told = train(work / "resumed", text, on, ends - time.monotonic(), "--resume")
        (left, its), (again, others) = outcome(work / "alone"), outcome(work / "resumed")
        result |= {
            "resumed": status, "resumed_told": told, "losses": [len(left), len(again)],
            "same_losses_and_norms": sum(a == b for a, b in zip(left, again, strict=False)),
            "same_weights_and_moments": bool(its) and its == others,
        }  # fmt: skip
    shutil.rmtree(work)
    return result


def publish(out: Path) -> None:
    found = json.loads((out / "train_resumed.json").read_text())
    same = found.get("same_losses_and_norms", 0)
    exact = same == STEPS and found.get("same_weights_and_moments") is True
    aim = Aim(
        what="resumed on a GPU with --deterministic", aim="losses, norms, weights and moments, bit for bit",
        got=f"{same} of {STEPS} steps; the last checkpoint {'the same' if exact else 'another'}", holds=exact,
    )  # fmt: skip
    row = {key: value for key, value in found.items() if not key.endswith("told")}
    write("train_resumed", [row], [aim], {"torch": "2.11.0+cu130", "triton": "3.6.0"}, "NVIDIA H200")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds, after which it has ended")
    parser.add_argument("--on", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--publish", action="store_true", help="only write benchmarks/results/ from OUT")
    asked = parser.parse_args()
    if asked.publish:
        publish(asked.out)
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    result = both(asked.out, asked.on, time.monotonic() + asked.limit - 2)
    (asked.out / "train_resumed.json").write_text(json.dumps(result, indent=1))
    print({key: value for key, value in result.items() if not key.endswith("told")})


if __name__ == "__main__":
    main()
