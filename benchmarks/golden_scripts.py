"""Asks a real GPU what whole training scripts need: memory of a step, time of a step.

    python benchmarks/golden_scripts.py OUT.json          (needs CUDA; a minute on an H200)

Each script runs unchanged; the optimizer's hook reads the allocator's statistics and places a CUDA event after each
step, so that nothing waits. The step is the one that `see` records: the second.
"""

import json
import runpy
import statistics
import subprocess
import sys
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from golden_ops import machine

ROOT = Path(__file__).parent.parent
STEPS = 12
SCRIPTS = (
    ("tests/steps/record/scripts/gpt2.py", ()),
    ("examples/train_gpt.py", ("--steps", str(STEPS), "--print-every", "1000")),
    ("examples/train_gpt.py", ("--steps", str(STEPS), "--print-every", "1000", "--batch", "1", "--context", "64")),
)


class Hook:
    """What was seen after each optimizer step."""

    def __init__(self) -> None:
        self.events: list[torch.cuda.Event] = []
        self.held: list[int] = []
        self.peaks: list[int] = []

    def __call__(self, *_: object) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.events.append(event)
        self.held.append(torch.cuda.memory_allocated())
        self.peaks.append(torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()


def run(script: str, arguments: tuple[str, ...]) -> dict[str, object]:
    hook = Hook()
    handle = register_optimizer_step_post_hook(hook)
    sys.argv = [script, *arguments]
    runpy.run_path(str(ROOT / script), run_name="__main__")
    torch.cuda.synchronize()
    handle.remove()
    times = [a.elapsed_time(b) * 1e3 for a, b in zip(hook.events, hook.events[1:], strict=False)]
    return {
        "script": script,
        "arguments": arguments,
        "held_after_step_1": hook.held[0],
        "peak_of_step_2": hook.peaks[1],
        "step_us": round(statistics.median(times[2:]), 1),
        "fastest_us": round(min(times[2:]), 1),
        "slowest_us": round(max(times[2:]), 1),
    }


def main(out: str) -> None:
    """Each script in a process of its own: what one leaves alive would count for the next."""
    answers = []
    for script, arguments in SCRIPTS:
        done = subprocess.run(
            [sys.executable, __file__, ONE, script, *arguments], check=True, stdout=subprocess.PIPE, text=True
        )
        answers.append(json.loads(done.stdout.splitlines()[-1]))
        print(answers[-1], flush=True)
    Path(out).write_text(json.dumps({"machine": machine(), "scripts": answers}, indent=1) + "\n")


ONE = "--one"

if __name__ == "__main__":
    if sys.argv[1] == ONE:
        print(json.dumps(run(sys.argv[2], tuple(sys.argv[3:]))))
    else:
        main(sys.argv[1])
