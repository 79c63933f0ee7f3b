"""Runs one op on fake tensors: by torch's own rules for shapes where they do, by an answer where values are needed."""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, UnsupportedOperatorException

from undertorch.steps.record.attention import AttentionChoice
from undertorch.steps.record.calls import Answer, Call
from undertorch.steps.record.dynamic import DYNAMIC
from undertorch.steps.record.facts import Facts
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.missing import MISSING, declare_kernels
from undertorch.steps.record.refs import tensors_in
from undertorch.steps.record.schemas import written
from undertorch.steps.record.values import UNCOMPUTED, Values

aten = torch.ops.aten


class Execution:
    """Runs ops."""

    def __init__(self, fakes: Fakes, facts: Facts, values: Values, attention: AttentionChoice) -> None:
        self._fakes = fakes
        self._facts = facts
        self._values = values
        self._attention = attention
        self._kernels = declare_kernels()

    def run(self, call: Call) -> Answer:
        """Runs an op, or answers it."""
        if call.func is aten._local_scalar_dense.default:
            return self._values.scalar(call)
        if call.func is aten._fused_sdp_choice.default:
            return Answer(result=self._attention.choose(*call.args, **call.named))
        dynamic = DYNAMIC.get(call.func)
        if dynamic is not None:
            return dynamic(call, self._values, self._fakes)
        shape = MISSING.get(call.func)
        if shape is not None:
            return Answer(result=shape(call, self._fakes))
        if call.func is aten.convolution.default:
            _on_one_device(*call.args[:2])
        if _writes_real(call):
            return self._write_real(call)
        try:
            result = self._fakes.run(call.func, call.types, call.args, call.named)
        except UnsupportedOperatorException:
            if not call.func._schema.returns:  # it only writes into what it is given, as fused optimizers do
                return Answer(result=None)
            sparse = any(tensor.layout != torch.strided for tensor in tensors_in(call.args, call.named))
            what = f"{call.func} of a sparse tensor" if sparse else f"{call.func}"
            raise NotImplementedError(
                f"There is no GPU to run {what} on, and torch has no rule for the shape of what it returns."
            ) from None
        self._facts.learn(call.func, call.args, call.named, result)
        return Answer(result=result)

    def _write_real(self, call: Call) -> Answer:
        """Fake values written into a tensor that has memory: what stands for them is written."""
        args = [self._stand_in(value) for value in call.args]
        named = {name: self._stand_in(value) for name, value in call.named.items()}
        what = f"values are copied into a tensor of the host, and {UNCOMPUTED}; what they are taken to be was written"
        return Answer(result=call.func(*args, **named), assumed=(self._values.assume(what, None, call),))

    def _stand_in(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._stand_in(item) for item in value]
        if not isinstance(value, FakeTensor):
            return value
        return torch.full((), self._facts.value(value), dtype=value.dtype).expand(value.shape)


def _on_one_device(source: torch.Tensor, weight: torch.Tensor) -> None:
    """torch's rule for the shape of a convolution does not ask. Raises RuntimeError in ATen's words
    (native/Convolution.cpp, check_input_same_type_as_parameters).
    """
    if source.device != weight.device:
        types = f"Input type ({source.type()}) and weight type ({weight.type()})"
        either = (
            " or input should be a MKLDNN tensor and weight is a dense tensor" if source.device.type == "cpu" else ""
        )
        raise RuntimeError(f"{types} should be the same{either}")


def _writes_real(call: Call) -> bool:
    """Whether an op writes into a tensor that has memory."""
    targets = (call.args[position] for position in written(call.func) if position < len(call.args))
    return any(isinstance(target, torch.Tensor) and not isinstance(target, FakeTensor) for target in targets)
