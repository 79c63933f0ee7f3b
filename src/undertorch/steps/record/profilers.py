"""torch's profilers in a script: they see the host, and no GPU that they could time."""

from typing import Any

from torch.autograd import profiler

from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put

HOST_ALONE = "torch's profiler was asked for the GPU's times; no GPU runs, and it profiles the host alone."


def install(notes: Notes) -> None:
    """Leaves the GPU out of what is profiled, which torch would fail to do at every op. Call once."""
    make: Any = profiler.profile.__init__

    def made(profile: Any, *settings: Any, use_cuda: bool = False, use_device: str | None = None, **named: Any) -> None:
        if use_cuda or use_device == "cuda":
            notes.note(HOST_ALONE)
            make(profile, *settings, **(named | {"use_cpu": True}))
        else:
            make(profile, *settings, use_device=use_device, **named)

    put(profiler.profile, "__init__", made)
    # Marks each op for a profiler of NVIDIA's, through a part of torch that a CPU build lacks.
    put(profiler.emit_nvtx, "__enter__", lambda ranges: ranges)
    put(profiler.emit_nvtx, "__exit__", lambda ranges, *error: None)
