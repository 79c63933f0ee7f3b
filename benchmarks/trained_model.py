"""The process of one model: trains it, seen or not, timed with the GPU to itself, and notes its losses and times.

    python benchmarks/trained_model.py FOLDER LOCK seen|unseen MODE SCRIPT [ARGUMENTS…]

MODE: of torch.compile; empty: eager; `deterministic`: eager, by algorithms that give the same bits each time.
"""

import fcntl
import gzip
import json
import os
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from compiled_model import compiled
from seeing_cost import initialize_as_ever, initialize_on_gpu

DETERMINISTIC = "deterministic"
SEED = 20
UNSEEN_WARM, UNSEEN_TIMED, UNSEEN_LAST = 3, 5, 12
"""As many steps as undertorch makes, of which as many are timed. One more is profiled without undertorch."""


def train(folder: str, lock: str, unseen: bool, mode: str, script: str, arguments: list[str]) -> None:
    """Trains a model, and writes its losses (and unseen its times) into the folder."""
    import torch

    if mode == DETERMINISTIC:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # one of the two with which cuBLAS gives the same bits
        torch.use_deterministic_algorithms(True, warn_only=True)
        # Fused attention adds its gradients in any order, and benchmarked convolutions differ from process to process.
        for library in (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.enable_mem_efficient_sdp,
                        torch.backends.cuda.enable_cudnn_sdp):  # fmt: skip
            library(False)
    elif mode:
        import torch._dynamo
    gpu = Gpu(lock)
    torch.manual_seed(SEED)
    if torch.cuda.is_available():
        initialize_on_gpu(torch)
    losses: list[torch.Tensor] = []
    run = torch.autograd.graph._engine_run_backward

    def kept(outputs: Any, *given: Any, **named: Any) -> Any:
        initialize_as_ever(torch)
        losses.append(outputs[0].detach())
        return run(outputs, *given, **named)

    torch.autograd.graph._engine_run_backward = kept
    torch.autograd._engine_run_backward = kept
    watch = Unseen() if unseen else None
    sys.argv = [script, *arguments]
    try:
        if mode and mode != DETERMINISTIC:
            compiled(script, mode)
        else:
            runpy.run_path(script, run_name="__main__")
    finally:
        result = {
            "losses": [loss.double().item().hex() for loss in losses if loss.numel() == 1],
            "times_us": [] if watch is None else watch.times(),
            "peak_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
        }
        Path(folder, "unseen.json" if unseen else "losses.json").write_text(json.dumps(result))
        if watch is not None:
            watch.write_calls(Path(folder))
        gpu.left()


class Gpu:
    """The GPU, for one process at a time while its steps are timed and profiled. What takes longest, and no clock runs
    in it, is done beside others: imports, the first steps (which load libraries and compile), the writing of traces."""

    def __init__(self, lock: str) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        if torch.cuda.is_available():
            torch.zeros(1, device="cuda")  # makes the context
        self._held = Path(lock).open("w")  # noqa: SIM115 - until the process ends
        self._updates = 0
        self._alone = False
        fcntl.flock(self._held, fcntl.LOCK_SH)
        register_optimizer_step_pre_hook(self._update)
        stop = torch.profiler.profile.stop

        def stopped(profiler: Any) -> Any:
            self.left()  # all that was to be profiled has run: what follows makes a trace of it
            return stop(profiler)

        torch.profiler.profile.stop = stopped  # type: ignore[method-assign]

    def _update(self, *_: object) -> None:
        """Called before each update: within the last of the first steps it waits for the others' first steps to end."""
        self._updates += 1
        if self._updates == UNSEEN_WARM:
            fcntl.flock(self._held, fcntl.LOCK_UN)
            fcntl.flock(self._held, fcntl.LOCK_EX)
            self._alone = True

    def left(self) -> None:
        """Lets the next one be timed, if this one was."""
        if self._alone:
            import torch

            if torch.cuda.is_available():
                torch.cuda.synchronize()
            fcntl.flock(self._held, fcntl.LOCK_UN)


class Unseen:
    """Times steps between ends of optimizer steps, as undertorch does, without undertorch."""

    def __init__(self) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._events: list[Any] = []
        self._ends = 0
        self._torch = torch
        self._profiler: Any = None
        register_optimizer_step_post_hook(self._ended)

    def _ended(self, *_: object) -> None:
        self._ends += 1
        if self._ends == UNSEEN_WARM:
            self._torch.cuda.synchronize()
            self._torch.cuda.reset_peak_memory_stats()
        if UNSEEN_WARM <= self._ends <= UNSEEN_WARM + UNSEEN_TIMED:
            event = self._torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        if self._ends == UNSEEN_LAST:
            self._profiler = self._torch.profiler.profile()
            self._profiler.start()
        elif self._ends > UNSEEN_LAST:
            self._profiler.stop()
            sys.exit(0)

    def write_calls(self, folder: Path) -> None:
        """How often the profiled step made each call into ATen, as torch's profiler says without undertorch."""
        trace = folder / "clean" / "trace.json.gz"
        trace.parent.mkdir(exist_ok=True)
        self._profiler.export_chrome_trace(str(trace))
        with gzip.open(trace) as file:
            calls = Counter(event["name"] for event in json.load(file)["traceEvents"] if event.get("cat") == "cpu_op")
        (folder / "calls.json").write_text(json.dumps(calls))

    def times(self) -> list[float]:
        self._torch.cuda.synchronize()
        return [before.elapsed_time(after) * 1e3 for before, after in zip(self._events, self._events[1:], strict=False)]


if __name__ == "__main__":
    folder, lock, how, mode, script, *arguments = sys.argv[1:]
    train(folder, lock, how == "unseen", mode, script, arguments)
