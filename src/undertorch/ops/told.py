"""What the cross-entropies' kernels tell the host: a wrong label, and an incoming gradient that was not 1.

They write it into the host's memory, where it is read at the next call: nothing waits for the GPU.
"""

from contextlib import nullcontext

import torch
from torch import Tensor

from undertorch.ops.captures import beside_capture, captures


class BadLabel(IndexError):
    """A label lies outside of the classes."""


_TOLD: dict[torch.device, Tensor] = {}
"""Of each GPU, two numbers in the host's memory that kernels write to: a wrong label, and whether an incoming gradient
was not 1. Process-wide, as CUDA's own errors are; reading it waits for nothing.
"""

NONE_WRONG = -(2**63)


def told(like: Tensor) -> Tensor:
    """What kernels on this tensor's GPU write to."""
    if like.device not in _TOLD:
        flags = torch.tensor([NONE_WRONG, 0], dtype=torch.int64, device="cpu")
        with beside_capture() if captures(like) else nullcontext():
            _TOLD[like.device] = flags.pin_memory() if like.is_cuda else flags
    return _TOLD[like.device]


def check_labels() -> None:
    """Waits for the GPU and raises BadLabel where a label of an earlier call was wrong."""
    for device, flags in _TOLD.items():
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        _raise_wrong(flags)


def raise_told(like: Tensor) -> None:
    """Raises BadLabel where a kernel on this tensor's GPU has told of one. Waits for nothing."""
    if not torch.compiler.is_compiling() and like.device in _TOLD:
        _raise_wrong(_TOLD[like.device])


def saw_another_than_one(like: Tensor) -> bool:
    """Whether a kernel on this tensor's GPU was given an incoming gradient that is not 1. Waits for nothing."""
    flags = _TOLD.get(like.device)
    return flags is not None and int(flags[1]) != 0


def _raise_wrong(flags: Tensor) -> None:
    label = int(flags[0])
    if label != NONE_WRONG:
        flags[0] = NONE_WRONG
        raise BadLabel(
            f"cross_entropy: an earlier call was given the label {label}, which is neither one of its classes nor its "
            "ignore_index; the losses of such rows were nan."
        )
