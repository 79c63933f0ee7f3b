"""Asks a real GPU what mending a habit saves: the step of a script with each habit, and without.

    python benchmarks/golden_advice.py OUT.json          (needs CUDA; two minutes on an H200)

The script is tests/steps/advice/habits.py. Times are read as in golden_scripts.py.
"""

import json
import subprocess
import sys
from pathlib import Path

from golden_ops import machine
from golden_scripts import ONE

SCRIPT = "tests/steps/advice/habits.py"
EAGER = ("eager-loss", "eager-norms")
VARIANTS = (
    EAGER,
    *((*EAGER, habit) for habit in ("explicit", "unbind", "odd", "foreach")),
    ("eager-loss",),
    ("eager-norms",),
)
"""All habits of both kernels that only a compiler mends, then each other habit on top, then each of the two alone."""


def main(out: str) -> None:
    """Each variant in a process of its own."""
    answers = []
    for habits in VARIANTS:
        command = [sys.executable, str(Path(__file__).with_name("golden_scripts.py")), ONE, SCRIPT, *habits]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        answer = json.loads(done.stdout.splitlines()[-1])
        answers.append({"habits": habits, "step_us": answer["step_us"]})
        print(answers[-1], flush=True)
        Path(out).write_text(json.dumps({"machine": machine(), "steps": answers}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
