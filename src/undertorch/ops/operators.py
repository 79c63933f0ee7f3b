"""One op as PyTorch wants it: an operator of torch.library where something traces, the bare function where not.

A call through torch.library costs tens of µs of the CPU's time, so eager code takes the bare function in an
autograd.Function. torch.compile and fake tensors take the operator, which has a rule for shapes and the same rule for
gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from undertorch.ops.calls import are_bare, is_fake, refuse_functorch

LIBRARY = torch.library.Library("undertorch", "FRAGMENT")  # operators live as long as the process

Body = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Operator:
    """A function on tensors that launches kernels. Where it returns None for an output nobody asked for, the operator
    of torch returns a tensor without elements, since a schema knows no absent results.
    """

    name: str
    body: Body
    overload: Any

    def __call__(self, *arguments: Any) -> Any:
        """The bare function; on tensors that a tracer has wrapped, or without values, the operator."""
        return self.body(*arguments) if are_bare(*arguments) else self.overload(*arguments)


def operator(name: str, schema: str, body: Body, fake: Body) -> Operator:
    """Registers `undertorch::name` with a schema such as `(Tensor x, float eps) -> (Tensor, Tensor)`.

    `fake` answers the outputs' shapes, dtypes and strides on tensors without values.
    """
    # Any strides are taken, so a compiler need not restore those of the traced run.
    LIBRARY.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))

    def run(*arguments: Any) -> Any:
        if is_fake(*arguments):
            raise NotImplementedError(f"undertorch::{name} computes nothing on fake tensors.")
        return _present(body(*arguments), arguments)

    LIBRARY.impl(name, run, "CUDA")
    LIBRARY.impl(name, run, "CPU")
    torch.library.register_fake(f"undertorch::{name}", lambda *a: _present(fake(*a), a), lib=LIBRARY)
    return Operator(name, body, getattr(torch.ops.undertorch, name).default)


def differentiable(forward_op: Operator, setup: Body, gradients: Body) -> Callable[..., Any]:
    """A function with gradients. `setup(ctx, inputs, output)` keeps what `gradients(ctx, *those of outputs)` needs.

    It has first derivatives only; asking for second ones raises.
    """

    node: Any = type(
        "".join(part.title() for part in forward_op.name.split("_")),
        (torch.autograd.Function,),
        {
            "forward": staticmethod(forward_op.__call__),
            "setup_context": staticmethod(setup),
            "backward": staticmethod(once_differentiable(gradients)),
        },
    )
    torch.library.register_autograd(f"undertorch::{forward_op.name}", gradients, setup_context=setup, lib=LIBRARY)

    def call(*arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return forward_op.overload(*arguments)
        refuse_functorch(forward_op.name.removesuffix("_forward"))
        return node.apply(*arguments)

    return call


def _present(outputs: Any, arguments: tuple[Any, ...]) -> Any:
    if outputs is None or isinstance(outputs, Tensor):
        return outputs
    device = next(argument.device for argument in arguments if isinstance(argument, Tensor))
    return tuple(torch.empty(0, device=device) if output is None else output for output in outputs)
