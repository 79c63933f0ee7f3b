"""What the measurement holds for: GPU, driver, versions, rank."""

import os
import platform
import re
from pathlib import Path

import torch

import undertorch

DRIVER = Path("/proc/driver/nvidia/version")
"""Written by NVIDIA's kernel module on Linux."""


def gpu_name() -> str:
    """As the driver names the GPU that the script uses."""
    return torch.cuda.get_device_name()


def driver() -> str | None:
    """Version of the driver; None where the machine does not say."""
    try:
        found = re.search(r"Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", DRIVER.read_text())
    except OSError:
        return None
    return None if found is None else found[1]


def versions() -> dict[str, str]:
    """Of what decides which kernels run, and how fast."""
    found = {
        "undertorch": undertorch.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    if torch.cuda.is_initialized() and torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def rank() -> int:
    """Of this process among those that train together; 0 where it is alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


def world_size() -> int | None:
    """How many processes train together; None where it is alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return None
