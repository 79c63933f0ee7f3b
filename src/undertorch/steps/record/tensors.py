"""How fake tensors behave where torch's own would touch memory: as parameters, moved, turned into lists, arrays or
text.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import _tensor_str, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import parameter as parameters

from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.patching import put, undone_by
from undertorch.steps.record.places import Places
from undertorch.steps.record.values import Values

UninitializedTensorMixin: Any = vars(parameters)["UninitializedTensorMixin"]
"""What a lazy module's parameters and buffers are of."""
LARGEST_ARRAY = 1 << 26
"""Bytes from which an array of made-up values is a read-only view of a single one."""


def install(fakes: Fakes, values: Values, places: Places) -> None:
    """Parameters become fake, and fake tensors answer what real ones do."""
    put(nn.Parameter, "__new__", _parameter(fakes, nn.Parameter.__new__))
    put(nn.Module, "_apply", _apply)
    put(FakeTensor, "data", property(_get_data, _set_data))
    put(FakeTensor, "as_subclass", _as_subclass)
    put(torch.Tensor, "_make_subclass", staticmethod(_make_subclass(torch.Tensor._make_subclass)))
    put(UninitializedTensorMixin, "materialize", _materialize)
    put(FakeTensor, "data_ptr", _address)
    for home in (torch.Tensor, FakeTensor):
        put(home, "record_stream", lambda tensor, stream: None)
    for name in ("pin_memory", "share_memory_"):
        put(FakeTensor, name, lambda tensor, *settings, **named: tensor)
    _turn_into_values(values, places)


def _turn_into_values(values: Values, places: Places) -> None:
    def number(tensor: torch.Tensor, how: str) -> Any:
        return values.each(tensor, places.look(sys._getframe(1)).where, how)

    def listed(tensor: torch.Tensor) -> Any:
        if tensor.dim() == 0:
            return tensor.item()
        _to_host(tensor)
        return _nested(tensor.shape, number(tensor, "tolist()"))

    def array(tensor: torch.Tensor, *, force: bool = False) -> Any:
        if tensor.device.type != "cpu" and not force:
            raise TypeError(
                f"can't convert {tensor.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )  # torch's own words, here and below
        if tensor.requires_grad and not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        _to_host(tensor)
        one = torch.full((), number(tensor, "numpy()"), dtype=tensor.dtype)
        spread = one.expand(tensor.shape)
        large = tensor.numel() * tensor.element_size() >= LARGEST_ARRAY
        return torch.Tensor.numpy(spread if large else spread.clone())

    def array_of(tensor: torch.Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
        found = array(tensor)
        return found if dtype is None else found.astype(dtype)

    def text(tensor: torch.Tensor) -> str:
        """What `print` shows: everything but the values, which do not exist."""
        if tensor.device.type == "cuda" and tensor.numel() and tensor.layout == torch.strided:
            values.shown(places.look(sys._getframe(1)).where)
            with torch.no_grad():
                shown = tensor.detach()
                summarized = shown.numel() > _tensor_str.PRINT_OPTS.threshold
                _to_host(_tensor_str.get_summarized_data(shown) if summarized else shown)
        return f"tensor(..., device='{tensor.device}', size={tuple(tensor.shape)}, dtype={tensor.dtype})"

    def formatted(tensor: torch.Tensor, spec: str) -> str:
        """As torch has it: a scalar is asked for its value, which a parameter is not."""
        if tensor.dim() == 0 and (spec or not isinstance(tensor, nn.Parameter)):
            return format(tensor.item(), spec)
        return object.__format__(tensor, spec)

    put(FakeTensor, "__repr__", text)
    put(FakeTensor, "__format__", formatted)
    put(FakeTensor, "tolist", listed)
    put(FakeTensor, "numpy", array)
    put(FakeTensor, "__array__", array_of)


def _to_host(tensor: torch.Tensor) -> None:
    """A GPU's is copied to the host first, which the CPU waits for."""
    if tensor.device.type == "cuda":
        with torch.no_grad():
            tensor.detach().cpu()


def _nested(shape: Sequence[int], value: Any) -> Any:
    return [_nested(shape[1:], value) for _ in range(shape[0])] if shape else value


def _parameter(fakes: Fakes, make: Any) -> Any:
    """`nn.Parameter(data)`: over a fake of the data."""

    def made(cls: type, data: torch.Tensor | None = None, requires_grad: bool = True) -> Any:
        real = data is not None and not isinstance(data, FakeTensor) and data.device.type == "cpu"
        return make(cls, fakes.of(data.detach()) if real and data is not None else data, requires_grad)

    return staticmethod(made)


def _get_data(tensor: torch.Tensor) -> Any:
    return DATA.__get__(tensor)


def _set_data(tensor: Any, data: Any) -> None:
    """torch moves a tensor to another device in place so; a fake one keeps its device in Python besides."""
    DATA.__set__(tensor, data)
    tensor.fake_device = data.device


DATA: Any = torch.Tensor.data


def _apply(module: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
    """`Module.to`, `.cuda()`, `.half()` and the like: every parameter keeps its identity, as torch does it for real
    tensors.

    torch itself would swap fake tensors, which fails for those that somebody holds a weak reference to.
    """
    if recurse:
        for child in module.children():
            _apply_to_child(child, fn)
    for parameter in module._parameters.values():
        if parameter is None or _moved_later(parameter, fn):
            continue
        with torch.no_grad():
            data = fn(parameter.data)
            moves = isinstance(data, FakeTensor) or data.device != parameter.device  # off the meta device
            if moves and not isinstance(parameter, FakeTensor):
                _become(parameter, nn.Parameter(data, parameter.requires_grad))
                continue
            parameter.data = data
            if parameter.grad is not None:
                parameter.grad.data = fn(parameter.grad.data)
    for name, buffer in module._buffers.items():
        if buffer is not None and not _moved_later(buffer, fn):
            module._buffers[name] = fn(buffer)
            if not isinstance(buffer, FakeTensor):
                undone_by(partial(module._buffers.__setitem__, name, buffer))
    return module


def _become(parameter: nn.Parameter, fake: torch.Tensor) -> None:
    """A parameter that was made with values (before recording began, or by a loader) turns into a fake one, and back
    when all is undone: it stays the object that it is.
    """
    _swap(parameter, fake)
    undone_by(lambda: _swap(parameter, fake))


def _swap(first: torch.Tensor, second: torch.Tensor) -> None:
    """As torch.utils.swap_tensors, which refuses where somebody holds a weak reference: who does here means the object,
    whatever its values.
    """
    first.__class__, second.__class__ = second.__class__, first.__class__
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    torch._C._swap_tensor_impl(first, second)


WILL_BE = "_undertorch_will_be"
"""Attribute of a parameter without a shape yet: an empty tensor of the dtype and the device that it will have."""


def _moved_later(tensor: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Of a lazy module, whose parameters have no shape before the first call: what it will be is kept."""
    if not isinstance(tensor, UninitializedTensorMixin):
        return False
    tensor.__dict__[WILL_BE] = fn(_will_be(tensor))
    return True


def _will_be(tensor: torch.Tensor) -> torch.Tensor:
    given: torch.Tensor | None = tensor.__dict__.get(WILL_BE)
    return torch.empty(0, dtype=tensor.data.dtype, device=tensor.data.device) if given is None else given


def _materialize(tensor: Any, shape: Sequence[int], device: Any = None, dtype: torch.dtype | None = None) -> None:
    """Gives a parameter or a buffer of a lazy module its shape."""
    like = _will_be(tensor)
    made = torch.empty(shape, dtype=dtype or like.dtype, device=device or like.device)
    if isinstance(tensor, nn.Parameter):
        _become(tensor, nn.Parameter(made, tensor.requires_grad))
    elif isinstance(made, FakeTensor):
        _become(tensor, made)
    else:
        tensor.data = made
        tensor.__class__ = tensor.cls_to_become


@cache
def _fake_of(kind: type) -> type:
    """A class of tensors, of tensors without values. What it says of functions goes before what those say."""
    if issubclass(kind, FakeTensor):
        return kind
    own = next(vars(base)["__torch_function__"] for base in kind.__mro__ if "__torch_function__" in vars(base))

    # Wrapped: torch switches its own off in a class that has a say on ops, as FakeTensor has.
    def function(cls: type, *arguments: Any, **named: Any) -> Any:
        return own.__get__(None, cls)(*arguments, **named)

    made = {"__torch_function__": classmethod(function), "__module__": kind.__module__}
    return type(kind.__name__, (kind, FakeTensor), made)


def _as_subclass(tensor: torch.Tensor, kind: type) -> torch.Tensor:
    same = tensor.view_as(tensor)
    same.__class__ = _fake_of(kind)
    return same


def _make_subclass(make: Any) -> Any:
    def made(kind: type, data: torch.Tensor, require_grad: bool = False, **settings: Any) -> Any:
        if not isinstance(data, FakeTensor) or issubclass(kind, FakeTensor | UninitializedTensorMixin):
            return make(kind, data, require_grad, **settings)
        with torch.no_grad():
            return _as_subclass(data.detach(), kind).requires_grad_(require_grad)

    return made


def _apply_to_child(child: Any, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    child._apply(fn)  # a class may have its own


def _address(tensor: torch.Tensor) -> int:
    """Different for what lies apart, the same for what is shared: what scripts compare addresses for."""
    return int(tensor.untyped_storage()._cdata + tensor.storage_offset() * tensor.element_size())
