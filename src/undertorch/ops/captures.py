"""Work that is not to be captured, while a CUDA graph is."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CDLL, byref, c_int

import torch
from torch import Tensor

RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED (cuda.h), and HIP's of the same name."""


def captures(tensor: Tensor) -> bool:
    """Whether what is launched on the tensor's GPU, which is the current one, goes into a graph now."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


@contextmanager
def beside_capture() -> Iterator[None]:
    """Inside, the current stream is one that nothing is captured on. What is put there has run when this ends.

    A capture forbids its thread, or all, calls that could disturb it (allocation, waiting), wherever they go, until the
    thread takes the risk on itself (CUDA driver API, cuThreadExchangeStreamCaptureMode).
    """
    mode = c_int(RELAXED)
    exchange = _exchange()
    exchange(byref(mode))  # leaves what it was
    try:
        stream = _free_stream()
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()
    finally:
        exchange(byref(mode))


def _free_stream() -> torch.cuda.Stream:
    """torch hands its streams out in turn, the one of the capture among them."""
    while True:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            if not torch.cuda.is_current_stream_capturing():
                return stream


def _exchange() -> Callable[..., int]:
    if torch.version.hip:
        found: Callable[..., int] = CDLL("libamdhip64.so").hipThreadExchangeStreamCaptureMode
    else:
        driver = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
        found = CDLL(driver).cuThreadExchangeStreamCaptureMode
    return found
