"""Records a step of undertorch's own training as `undertorch see` measures it: GPT-2 124M, 32 x 1024 tokens.

    python benchmarks/golden_train.py OUT/train [--limit SECONDS]                  (needs CUDA; a minute on an H200)
    python benchmarks/measured_goldens.py OUT tests/golden/measured                (no GPU)

The first leaves the measurement, unread; the second makes a golden of it.
"""

import argparse
import json
import signal
import time
from dataclasses import asdict
from pathlib import Path

from train import settings
from undertorch.steps.measure.spawn import run_measured
from undertorch.train.seen import SCRIPT

PRESET = "gpt2-124m"


def record(folder: Path, limit: float) -> None:
    """Runs the step's script in a process of its own, which is killed where it takes longer."""

    def ended(*_: object) -> None:
        raise TimeoutError(f"it took longer than {limit:.0f} s")

    folder.mkdir(parents=True, exist_ok=True)
    given = folder / "settings.json"
    given.write_text(json.dumps(asdict(settings(PRESET, "cuda"))))
    begun = time.monotonic()
    signal.signal(signal.SIGALRM, ended)
    signal.alarm(max(1, int(limit)))
    measured = run_measured(
        SCRIPT,
        [str(given)],
        folder,
        progress=lambda said: print(f"{time.monotonic() - begun:.0f} s {said}", flush=True),
    )
    signal.alarm(0)
    print(f"{time.monotonic() - begun:.1f} s: {[round(step) for step in measured.timed_us]} µs a step")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=float, default=120)
    record(**vars(parser.parse_args()))
