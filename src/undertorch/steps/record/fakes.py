"""Which tensors are fake, and how a fake one behaves in a script's hands.

What lives on the GPU is fake: it has a shape, strides, a dtype and a device, no memory and no values. So are
parameters, wherever they live (an 8-billion-parameter model made on the CPU must not take 32 GB), and large tensors
that a script makes out of nothing (`torch.randn`, `torch.empty`). Every other tensor in host memory is a real one with
real values: what a script reads, tokenizes, shuffles and indexes on its way to the GPU works as it always does. A fake
tensor copied to the host stays fake.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from undertorch.steps.record.patching import put, undone_by
from undertorch.steps.record.schemas import makes_a_tensor

LARGE_FLOATS = 1 << 20
"""Bytes from which floating-point tensors made out of nothing are fake: such values decide nothing in a script."""
LARGE_INTEGERS = 1 << 26
"""Bytes from which integers and booleans made out of nothing are fake. They get more: they are indices and tokens."""

DEVICE_MISMATCH: tuple[type[Exception], ...] = tuple(
    kind for name in ("FakeTensorDeviceMismatchError",) if (kind := getattr(fake_tensor, name, None)) is not None
)
"""What torch 2.13 raises where tensors are on several devices; 2.11 raises a RuntimeError."""


class DeviceFreeMode(FakeTensorMode):
    """torch's fake tensor mode, told that there is no device, whatever `torch.cuda.is_available()` answers, and fit for
    several threads.
    """

    _inside = threading.local()

    @property
    def in_kernel_invocation(self) -> bool:
        """Whether this thread runs an op on the bare tensors under the fake ones, which then say what they are."""
        return getattr(self._inside, "kernel", False)

    @in_kernel_invocation.setter
    def in_kernel_invocation(self, whether: bool) -> None:
        self._inside.kernel = whether

    @property
    def avoid_device_init(self) -> bool:
        """There is no device to make constants on."""
        return True


class _Thread(threading.local):
    """What has to be told to torch on each thread, autograd's own too. torch.tensor(…, device="cuda") has to make its
    tensor on the CPU and move it: there is no CUDA to make it on.
    """

    def __init__(self) -> None:
        torch._C._set_only_lift_cpu_tensors(True)


class Fakes:
    """Makes tensors fake, and runs ops on them."""

    def __init__(self) -> None:
        undone_by(lambda: torch._C._set_only_lift_cpu_tensors(False))
        # Before a fake tensor is made on a device, torch would make a real one there.
        put(fake_tensor, "init_gpu_context", lambda device: None)
        log = logging.getLogger(fake_tensor.__name__)
        log.addFilter(_own_failure)
        undone_by(lambda: log.removeFilter(_own_failure))
        self.mode = DeviceFreeMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self._one_at_a_time = threading.RLock()
        self._thread = _Thread()
        self.begin_thread()

    def begin_thread(self) -> None:
        """Makes a thread ready; what it does on each but the first time is nothing."""
        vars(self._thread)

    def wanted(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        values: Sequence[Any],
        named: Mapping[str, Any],
        tensors: Sequence[torch.Tensor],
    ) -> bool:
        """Whether an op is to run on fake tensors: it works on some, makes one on the GPU, or makes a large one."""
        if any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return True
        device = named.get("device")
        if device is not None and torch.device(device).type != "cpu":
            return torch.device(device).type == "cuda"
        return not tensors and makes_a_tensor(func) and is_large(self.run(func, types, values, named))

    def of_others(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether an op belongs to a fake tensor mode that is none of this: the script's own, or DTensor's, which asks
        so what shape an op answers. It does nothing on a GPU.
        """
        active: Any = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
        if active is not None and active is not self.mode:
            return True
        return any(isinstance(tensor, FakeTensor) and tensor.fake_mode is not self.mode for tensor in tensors)

    def run(
        self, func: torch._ops.OpOverload, types: Sequence[type], values: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """What an op returns by torch's own rules for shapes, strides and dtypes. Real arguments count as fake.

        Raises RuntimeError, as a GPU does, where its tensors are on several devices.
        """
        self.begin_thread()
        device = named.get("device")
        if device is not None:
            only_gpu(torch.device(device))
        with self._one_at_a_time:
            try:
                return self.mode.dispatch(func, types, values, named)
            except DEVICE_MISMATCH as mismatch:
                raise RuntimeError(str(mismatch)) from None  # in CUDA's own words; only the class is another there

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A new fake tensor."""
        with self._one_at_a_time, self.mode:
            return torch.empty(tuple(shape), dtype=dtype, device=device)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake of a real tensor, on the same device."""
        with self._one_at_a_time:
            return self.mode.from_tensor(tensor)


def _own_failure(record: logging.LogRecord) -> bool:
    """What torch logs of shapes that do not fit together is the script's error, which it shows by itself."""
    return not str(record.msg).startswith("failed while attempting to run meta for")


def only_gpu(device: torch.device) -> None:
    """Raises torch.AcceleratorError, in CUDA's own words, for a second GPU."""
    if device.type == "cuda" and device.index:
        raise torch.AcceleratorError(
            f"CUDA error: invalid device ordinal ({device}; the machine that is seen has one GPU, cuda:0)"
        )


def is_large(tensor: torch.Tensor) -> bool:
    """Whether a tensor made out of nothing is fake for its size."""
    bound = LARGE_FLOATS if tensor.is_floating_point() or tensor.is_complex() else LARGE_INTEGERS
    return tensor.numel() * tensor.element_size() >= bound
