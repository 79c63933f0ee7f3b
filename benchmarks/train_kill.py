"""Kills a training run at random moments and resumes it; every loss has to be that of the run that was left alone.

    PYTHONPATH=src python3 benchmarks/train_kill.py [--kills 20] [--seed N] [--steps N] [--folder DIR]

A third of the kills (SIGKILL) wait until a checkpoint is being written, a third until one was just finished or removed,
the rest come at any moment after the process has begun. Each start is a process of its own with `--resume-or-begin`. At
the end metrics.jsonl must have every step once, with the losses and norms of the reference to the last bit, and the
last checkpoint's weights and moments must be the reference's. Writes benchmarks/results/train_kill.json.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results_file import Aim, write

SETTINGS = {
    "layers": 2, "width": 192, "heads": 4, "context": 32, "vocabulary": 400, "batch": 4, "checkpoint_every": 3,
    "evaluate_every": 10, "keep": 2,
}  # fmt: skip
MOMENTS = ("writing", "written", "any")
LONGEST = 120.0
"""Seconds that a kill waits for its moment at most."""


def start(folder: Path, text: Path, steps: int, resume: bool, log: Path) -> int:
    """A process that trains; its number. Forked, so that torch is imported once for all."""
    child = os.fork()
    if child:
        return child
    output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    import torch

    from undertorch.train import start as training

    torch.set_num_threads(1)
    asked = training.Asked(
        texts=[str(text)], preset="nano", on="cpu", out=folder, resume=resume, or_begin=resume, sample=["def "],
        see=None, look=False, gpu=None, export=None, changes={**SETTINGS, "steps": steps},
    )  # fmt: skip
    try:
        training.start(asked, None)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(1)
    os._exit(0)


def wait_for(moment: str, folder: Path, process: int, chance: random.Random) -> bool:
    """Returns at the moment; False where the process has ended by itself."""
    checkpoints, began = folder / "checkpoints", time.monotonic()
    seen, pause = names(checkpoints), chance.uniform(0, 2.5)
    while time.monotonic() - began < LONGEST:
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return False
        now = names(checkpoints)
        if moment == "writing" and any(name.startswith(".writing") for name in now):
            time.sleep(chance.uniform(0, 0.02))
            return True
        if moment == "written" and now - seen and not any(name.startswith(".writing") for name in now):
            return True
        if moment == "any" and time.monotonic() - began > pause:
            return True
        time.sleep(0.0005)
    return True


def names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return set()


def outcome(folder: Path) -> tuple[list[tuple[Any, ...]], dict[str, str]]:
    """Losses and norms by step, and the checksums of the last checkpoint's files."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = max((folder / "checkpoints").glob("step-*"))
    files = json.loads((last / "checkpoint.json").read_text())["files"]
    keys = ("step", "loss", "norm", "validation_bits_per_byte")
    return [tuple(row.get(key) for key in keys) for row in rows], {
        name: each["blake2b"] for name, each in files.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=None, help="where to work, such as a file system to be tried")
    asked = parser.parse_args()
    import undertorch.train.start  # noqa: F401 - before the forks

    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        work = Path(made)
        os.environ["UNDERTORCH_CACHE"] = str(work / "cache")
        text, log = work / "text.txt", work / "log"
        text.write_text("".join(Path(file).read_text() for file in (json.__file__, random.__file__, tempfile.__file__)))
        os.waitpid(start(work / "reference", text, asked.steps, False, log), 0)
        expected = outcome(work / "reference")
        killed: list[dict[str, Any]] = []
        while len(killed) < asked.kills:
            process = start(work / "killed", text, asked.steps, True, log)
            moment = MOMENTS[len(killed) % 3]
            if not wait_for(moment, work / "killed", process, chance):
                os.waitpid(process, 0)
                print(f"it was done after {len(killed)} kills; pass more --steps")
                break
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            there = names(work / "killed" / "checkpoints")
            last = max((name for name in there if name.startswith("step-")), default="none")
            killed.append({"moment": moment, "last": last, "unfinished": sorted(n for n in there if n[0] == ".")})
            print(f"kill {len(killed)}: {moment}, {last}, unfinished: {killed[-1]['unfinished']}", flush=True)
        _, status = os.waitpid(start(work / "killed", text, asked.steps, True, log), 0)
        got = outcome(work / "killed")
        said = log.read_text()
    exact = status == 0 and got == expected
    if not exact:
        print(said[-3000:])
        print([(a, b) for a, b in zip(got[0], expected[0], strict=False) if a != b][:5], got[1], expected[1])
    caught = sum(bool(each["unfinished"]) for each in killed)
    import torch

    from undertorch import __version__

    write(
        "train_kill",
        [dict(each) for each in killed],
        [
            Aim(
                what=f"{len(killed)} kills at random moments, {caught} with a checkpoint half-written or half-removed",
                aim="losses, norms, weights and moments of the run that was left alone, bit for bit",
                got="so they are" if exact else "they differ",
                holds=exact and len(killed) >= asked.kills,
            )
        ],
        {"undertorch": __version__, "torch": torch.__version__},
    )
    sys.exit(not exact)


if __name__ == "__main__":
    main()
