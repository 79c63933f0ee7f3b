"""Runs a script and profiles its step number N with torch.profiler alone: python profiled.py N TRACE SCRIPT [ARGS…]."""

import itertools
import runpy
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

number, trace, script = int(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.argv = sys.argv[3:]
profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
ends = itertools.count(1)


def ended(*_: object) -> None:
    over = next(ends)
    if over == number - 1:
        profiler.start()
    if over == number:
        profiler.stop()
        profiler.export_chrome_trace(trace)


register_optimizer_step_post_hook(ended)
runpy.run_path(script, run_name="__main__")
