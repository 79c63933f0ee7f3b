"""Puts an `nvidia-smi` into a run's folder that answers for the GPU that was named."""

import json
import shlex
import sys
from pathlib import Path

from undertorch.records import Gpu

PROGRAM = Path(__file__).with_name("nvidia_smi.py")
CUDA_VERSION = "13.0"
"""As torch.cuda answers (record/cuda.py)."""


def put_nvidia_smi(folder: Path, gpu: Gpu) -> None:
    """`folder` is made, to stand first in PATH. Of a GPU of another vendor it stays empty."""
    folder.mkdir()
    if gpu.vendor != "NVIDIA":
        return
    answering = folder / "answers.json"
    answering.write_text(json.dumps(answers(gpu)), encoding="utf-8")
    program = folder / "nvidia-smi"
    command = shlex.join((sys.executable, "-I", "-S", str(PROGRAM), str(answering)))
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    program.chmod(0o755)


def answers(gpu: Gpu) -> dict[str, str]:
    """By the name of nvidia-smi's fields (`nvidia-smi --help-query-gpu`). The GPU is idle, and there is no driver."""
    total = gpu.memory_bytes >> 20
    return {
        "name": gpu.full_name,
        "gpu_name": gpu.full_name,
        "count": "1",
        "index": "0",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "cuda": CUDA_VERSION,
        "memory.total": str(total),
        "memory.used": "0",
        "memory.free": str(total),
        "utilization.gpu": "0",
        "utilization.memory": "0",
        **({} if gpu.compute_capability is None else {"compute_cap": ".".join(map(str, gpu.compute_capability))}),
    }
