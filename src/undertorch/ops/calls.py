"""What every op asks of its arguments, and who may run its kernels."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any

import torch
import triton
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
"""What own kernels read and write. They compute in float32; float64 goes to the reference."""

BARE = (Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""Classes of tensors that are what they look like: memory, and nothing that watches."""

PLAIN = (*BARE, FakeTensor)
"""Classes of tensors without a word of their own on ops. Others (DTensor) go through the reference, op by op."""

_ON_HOST: ContextVar[bool] = ContextVar("on_host", default=False)
_COMPILED: ContextVar[bool] = ContextVar("in_compiled_code", default=False)


class BadCall(ValueError):
    """The arguments break the op's contract. The message says which, and what to pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What an op takes, as docs/ops.md tells it and whoever passed something else is told."""

    layout: str
    """Shapes and layouts."""
    unlike_torch: str
    """Where the call or a default differs from that of torch's function, and which that is."""


def call_of(function: Callable[..., Any]) -> str:
    """Its arguments with their defaults, such as `(x, weight=None, eps=1e-06)`."""
    empty = inspect.Parameter.empty
    signature = inspect.signature(function)
    bare = [parameter.replace(annotation=empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def no_tensor(op: str, **given: object) -> BadCall:
    """What to raise where not all of an op's tensors are tensors: which one is none, and what the op takes.

    Not a check of its own: who calls an op with tensors pays for a type test and no more.
    """
    others = [name for name, value in given.items() if not isinstance(value, Tensor)]
    name = next((name for name in others if given[name] is not None), others[0])
    file = sys.modules[f"undertorch.ops.{op}"]
    layer = "; pass its weight" if isinstance(given[name], torch.nn.Module) else ""
    return BadCall(
        f"{op}: {name} is of type {type(given[name]).__name__} and not a tensor{layer}; "
        f"{op} takes {call_of(getattr(file, op))}: {file.ARGUMENTS.layout}."
    )


def is_number(value: object) -> bool:
    """Whether it is a real number, or stands for one while torch.compile traces; a whole one of 64 bits, as torch's."""
    if isinstance(value, int):
        return is_int64(value)
    return isinstance(value, (float, Real, torch.SymFloat, torch.SymInt))


def is_int64(value: object) -> bool:
    """Whether it is a whole number that torch has room for, and neither True nor False."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


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


def in_compiled_code() -> bool:
    """Whether code that torch.compile made is running the call."""
    return _COMPILED.get()


def as_compiled_code(body: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """body(*arguments), which finds itself in compiled code."""
    token = _COMPILED.set(True)
    try:
        return body(*arguments)
    finally:
        _COMPILED.reset(token)


def runs_own(*tensors: Tensor | None) -> bool:
    """Whether own kernels can serve a call: floats of at most 32 bits, all on one GPU, no subclasses."""
    device = None
    for tensor in tensors:  # a loop, since every call pays for it
        if tensor is None:
            continue
        if type(tensor) not in PLAIN or tensor.dtype not in FLOATS:
            return False
        if device is None:
            device = tensor.device
        elif tensor.device != device:
            return False
    return device is not None and (
        device.type == "cuda" or (device.type == "cpu" and not torch.compiler.is_compiling() and _ON_HOST.get())
    )


def is_fake(*values: object) -> bool:
    """Whether a tensor among them has a shape and nothing to compute with."""
    return any(
        is_fake(*value) if isinstance(value, list | tuple) else isinstance(value, FakeTensor) for value in values
    )


def are_bare(*values: object) -> bool:
    """Whether every tensor among them is memory, and none is fake or wrapped by a tracer."""
    for value in values:
        if type(value) in BARE:
            continue
        if isinstance(value, Tensor) or (isinstance(value, list | tuple) and not are_bare(*value)):
            return False
    return True


def need_gradients(*values: object) -> bool:
    """Whether autograd watches one of the tensors among them."""
    if forward_ad._current_level >= 0:  # a call in forward mode is refused by autograd itself
        return True
    return torch.is_grad_enabled() and _require_gradients(values)


def _require_gradients(values: Iterable[object]) -> bool:
    for value in values:
        if isinstance(value, Tensor):
            if value.requires_grad:
                return True
        elif isinstance(value, list | tuple) and _require_gradients(value):
            return True
    return False


def refuse_functorch(name: str) -> None:
    """Raises BadCall under torch.func's transforms, which own kernels cannot be seen through."""
    if torch._C._are_functorch_transforms_active():
        raise BadCall(
            f"undertorch.ops.{name} cannot be transformed by torch.func (vmap, grad, jvp); "
            f"call the reference of undertorch/ops/{name}.py there."
        )


def row_major_like(tensor: Tensor) -> Tensor:
    """A new tensor of its shape and dtype, row-major."""
    # empty_like takes a third of new_empty's time, but keeps the order of strides.
    return torch.empty_like(tensor) if tensor.is_contiguous() else tensor.new_empty(tensor.shape)


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


VECTOR_BYTES = 16
"""That a thread moves at once, between addresses that are multiples of it."""


def begin_at_vectors(*matrices: Tensor) -> bool:
    """Whether all rows begin where a vector may, which is what copies into shared memory want."""
    return not any(m.data_ptr() % VECTOR_BYTES or m.stride(0) * m.element_size() % VECTOR_BYTES for m in matrices)


def rows_in(tensor: Tensor, width: int) -> int:
    """Rows of `width` elements; of a tensor without elements, the product of its leading sizes."""
    if width:
        return tensor.numel() // width
    rows = 1
    for size in tensor.shape[:-1]:
        rows *= size
    return rows


def autocasts(tensor: Tensor) -> bool:
    """Whether autocast is on for the tensor's device; tensors of `meta` have none."""
    kind = tensor.device.type
    # torch 2.11's compiler does not know the first question; what it traces is on a CPU or a GPU, which have autocast.
    known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(kind)
    return known and torch.is_autocast_enabled(kind)


def as_autocast_hands_them(*tensors: Tensor | None) -> tuple[Any, ...]:
    """What a matmul of torch's is given under autocast of the first one's device: floats in its dtype, all but those of
    float64, which stay (at::autocast::cached_cast). Without autocast the tensors themselves.
    """
    like = next(tensor for tensor in tensors if tensor is not None)
    if not autocasts(like):
        return tensors
    dtype = torch.get_autocast_dtype(like.device.type)
    return tuple(
        tensor.to(dtype)
        if tensor is not None and tensor.is_floating_point() and tensor.dtype != torch.float64
        else tensor
        for tensor in tensors
    )


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Inside, operators on the tensor's device take their arguments as they come."""
    return torch.autocast(tensor.device.type, enabled=False) if autocasts(tensor) else nullcontext()


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Makes the tensor's GPU the current one, which is where Triton launches, in the current stream there."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)


def multiprocessors(tensor: Tensor) -> int:
    """SMs of the tensor's GPU; on the host, where time means nothing, two."""
    return _multiprocessors(tensor.device) if tensor.is_cuda else 2


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


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
