"""Where tensors really lie. Inside `undertorch.machine()` they answer as if they lay on the GPU that it stands for."""

import sys
from contextlib import AbstractContextManager, nullcontext


def true_devices() -> AbstractContextManager[object]:
    """Inside, a tensor's device is the one that its memory lies on."""
    if "torch" not in sys.modules:
        return nullcontext()
    import torch

    guard: AbstractContextManager[object] = torch._C.DisableTorchFunction()
    return guard
