"""What every op asks of its arguments, and who may run its kernels."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import triton
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
"""What own kernels read and write. They compute in float32; float64 goes to the reference."""

BARE = (Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""Classes of tensors that are what they look like: memory, and nothing that watches."""

PLAIN = (*BARE, FakeTensor)
"""Classes of tensors without a word of their own on ops. Others (DTensor) go through the reference, op by op."""

_ON_HOST: ContextVar[bool] = ContextVar("on_host", default=False)


class BadCall(ValueError):
    """The arguments break the op's contract. The message says which, and what to pass."""


@contextmanager
def on_host() -> Iterator[None]:
    """Inside, own Triton kernels run on CPU tensors too: something that runs them there (a GPU in software, or
    Triton's interpreter) is Triton's active driver.
    """
    token = _ON_HOST.set(True)
    try:
        yield
    finally:
        _ON_HOST.reset(token)


def on_machine() -> bool:
    """Whether `with undertorch.machine()` stands for a GPU: tensors say that they are on it, and time means nothing."""
    frontend = sys.modules.get("undertorch.simt.frontends.kernels")  # not imported: never entered
    return frontend is not None and frontend.CURRENT.get(None) is not None


def runs_own(*tensors: Tensor | None) -> bool:
    """Whether own kernels can serve a call: floats of at most 32 bits, all on one GPU, no subclasses."""
    given = [tensor for tensor in tensors if tensor is not None]
    first = given[0]
    if not (first.is_cuda or (first.device.type == "cpu" and not torch.compiler.is_compiling() and _ON_HOST.get())):
        return False
    return all(tensor.device == first.device and _plain(tensor) and tensor.dtype in FLOATS for tensor in given)


def _plain(tensor: Tensor) -> bool:
    return type(tensor) in PLAIN


def is_fake(*values: object) -> bool:
    """Whether a tensor among them has a shape and nothing to compute with."""
    return any(
        is_fake(*value) if isinstance(value, list | tuple) else isinstance(value, FakeTensor) for value in values
    )


def are_bare(*values: object) -> bool:
    """Whether every tensor among them is memory, and none is fake or wrapped by a tracer."""
    return all(
        are_bare(*value) if isinstance(value, list | tuple) else type(value) in BARE
        for value in values
        if isinstance(value, Tensor | list | tuple)
    )


def refuse_functorch(name: str) -> None:
    """Raises BadCall under torch.func's transforms, which own kernels cannot be seen through."""
    if torch._C._are_functorch_transforms_active():
        raise BadCall(
            f"undertorch.ops.{name} cannot be transformed by torch.func (vmap, grad, jvp); "
            f"call the reference of undertorch/ops/{name}.py there."
        )


def rows_of(tensor: Tensor, width: int) -> Tensor:
    """The tensor as a matrix of rows whose elements lie side by side: a view where strides allow, otherwise a copy.

    Rows may lie any distance apart, 0 included (an expanded tensor).
    """
    if tensor.dim() == 2 and (width <= 1 or tensor.stride(1) == 1):
        return tensor
    if tensor.numel() == 0:
        return tensor.new_empty((rows_in(tensor, width), width))
    if width > 1 and tensor.stride(-1) != 1:
        return tensor.contiguous().view(-1, width)
    try:
        return tensor.view(-1, width)
    except RuntimeError:
        return tensor.contiguous().view(-1, width)


def rows_in(tensor: Tensor, width: int) -> int:
    """Rows of `width` elements; of a tensor without elements, the product of its leading sizes."""
    if width:
        return tensor.numel() // width
    rows = 1
    for size in tensor.shape[:-1]:
        rows *= size
    return rows


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Makes the tensor's GPU the current one, which is where Triton launches, in the current stream there."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)


def multiprocessors(tensor: Tensor) -> int:
    """SMs of the tensor's GPU; on the host, where time means nothing, two."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 2


MOST_SHARED = 227 * 1024
"""Bytes of shared memory that a block of compute capability 9.0 can get (CUDA C++ Programming Guide, table of technical
specifications)."""


def shared_memory(tensor: Tensor) -> int:
    """Bytes of shared memory that a block can get on the tensor's GPU; on the host, as an H200's. AMD's is not used."""
    if compiles_for_amd():
        return 0
    if not tensor.is_cuda or torch.version.cuda is None:
        return MOST_SHARED
    properties: Any = torch.cuda.get_device_properties(tensor.device)  # torch's stubs lack this one
    return int(properties.shared_memory_per_block_optin)


def compiles_for_amd() -> bool:
    """Whether Triton compiles for an AMD GPU: warps of 64 lanes, and 64 KB of shared memory."""
    if triton.knobs.runtime.interpret:
        return False
    return bool(triton.runtime.driver.active.get_current_target().backend == "hip")


def most_warps(warps: int) -> int:
    """As many, but not more than make up a block of 1024 threads."""
    return warps if warps <= 16 or not compiles_for_amd() else 16
