"""An Op: one call into ATen that a step made."""

from collections.abc import Iterator
from dataclasses import dataclass

from undertorch.records.kinds import Phase
from undertorch.records.tensors import TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """One frame of the user's Python."""

    file: str
    """Relative to the directory undertorch was started in where it lies below it, otherwise absolute."""
    line: int
    """Counted from 1: the line that was running, not the `def`."""
    function: str
    """With what it stands in: `Attention.forward`, `main.<locals>.step`, `<module>`."""


LINES = "<lines>"
"""Argument of an Op whose kernel came from so many lines: one Op each, itself the first, the others after it."""

Scalar = bool | int | float | str | None
"""dtypes, devices, layouts and memory formats stand as torch prints them, without `torch.`;
non-finite floats as `inf`, `-inf`, `nan`."""

Value = TensorRef | tuple[TensorRef | Scalar, ...] | Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of an Op under its name in the ATen schema. Arguments left at their default are present too."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One call into ATen that a step made (or one custom kernel it launched, or one undertorch op)."""

    id: int
    """Position in the recording, counted from 0."""
    name: str
    """Such as `aten::addmm`, without the overload."""
    overload: str
    """Such as `default`, `Tensor`, `out`."""
    where: Where | None
    """The line: the innermost frame outside torch. A backward Op has its forward Op's, an update Op that of
    `optimizer.step()`. None where no line is known; the accounting counts these."""
    chain: tuple[Where, ...] = ()
    """The user's frames above `where`, innermost first. Of a backward Op, its forward Op's."""
    module: str | None = None
    """Path of the innermost nn.Module whose forward was running, such as `blocks.0.ln1`;
    of an accumulation, its parameter's."""
    phase: Phase
    microbatch: int | None = None
    """Which forward-backward of the step, counted from 0; None outside of one."""
    rank: int = 0
    arguments: tuple[Argument, ...]
    outputs: tuple[TensorRef | None, ...]
    """Results, lists flattened. An in-place Op returns what it wrote."""
    forward: int | None = None
    """Id of the forward Op that a backward Op belongs to.
    None in other phases, and where the forward lies outside the step."""
    node: str | None = None
    """The autograd node that was running, such as `AddmmBackward0`; None outside backward."""
    torch: str | None = None
    """Version of the torch that made the call, such as `2.13.0+cpu`: its launches follow from it. None: not known."""
    tf32: bool = False
    """Whether torch was allowed to use TF32 for float32 matmuls and convolutions when the call was made:
    torch.backends.cuda.matmul for matmul, torch.backends.cudnn for convolution (and recurrent layers)."""
    assumed: tuple[str, ...] = ()
    """What about this Op was assumed because no value was computed, one sentence each."""

    def arg(self, name: str) -> Value:
        """The value of the argument of that name. Raises KeyError where the Op has none."""
        for argument in self.arguments:
            if argument.name == name:
                return argument.value
        raise KeyError(f"{self.name} has no argument {name!r}")

    def tensor(self, name: str) -> TensorRef:
        """The tensor argument of that name. Raises KeyError where it is absent or no tensor."""
        value = self.arg(name)
        if not isinstance(value, TensorRef):
            raise KeyError(f"argument {name!r} of {self.name} is no tensor")
        return value

    def tensors(self, name: str) -> tuple[TensorRef, ...]:
        """The tensors of a list argument, None left out; a single tensor as one; absent, None or empty as none."""
        value = next((a.value for a in self.arguments if a.name == name), None)
        if isinstance(value, TensorRef):
            return (value,)
        return tuple(v for v in value if isinstance(v, TensorRef)) if isinstance(value, tuple) else ()

    def tensor_bytes(self, *names: str) -> int:
        """Least bytes of the tensors of those arguments together; what is absent or None counts 0."""
        return sum(tensor.bytes for name in names for tensor in self.tensors(name))

    @property
    def inputs(self) -> tuple[TensorRef, ...]:
        """Every tensor among the arguments, in order, lists flattened."""
        return tuple(_tensors(self.arguments))

    @property
    def results(self) -> tuple[TensorRef, ...]:
        """Outputs that are tensors."""
        return tuple(tensor for tensor in self.outputs if tensor is not None)


def _tensors(arguments: tuple[Argument, ...]) -> Iterator[TensorRef]:
    for argument in arguments:
        if isinstance(argument.value, TensorRef):
            yield argument.value
        elif isinstance(argument.value, tuple):
            yield from (value for value in argument.value if isinstance(value, TensorRef))
