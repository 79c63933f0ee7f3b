"""Whether there is a GPU to measure on, asked of NVIDIA's driver and of torch's files: torch is not imported for it."""

import ctypes
import importlib.util
import re
from pathlib import Path

DRIVERS = ("libcuda.so.1", "nvcuda.dll")


def has_cuda() -> bool:
    """Whether the driver lends this process a GPU and the torch that is installed was built for CUDA."""
    return _torch_has_cuda() and _gpus() > 0


def _gpus() -> int:
    """As many as CUDA_VISIBLE_DEVICES leaves (cuDeviceGetCount); 0 without a driver."""
    for name in DRIVERS:
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        count = ctypes.c_int(0)
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
            return count.value
    return 0


def _torch_has_cuda() -> bool:
    """By torch/version.py, which a build writes: `cuda = '13.0'`, or None."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    try:
        text = (Path(found.origin).parent / "version.py").read_text()
    except OSError:
        return False
    return re.search(r"^cuda\b[^=]*= *['\"]", text, re.MULTILINE) is not None
