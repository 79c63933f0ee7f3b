"""One op as PyTorch wants it: an operator of torch.library where something traces, the bare function where not.

A call through torch.library costs tens of µs of the CPU's time, so eager code takes the bare function, in an
autograd.Function where a gradient is wanted. torch.compile and fake tensors take the operator, which has a rule for
shapes and the same rule for gradients; what Inductor makes of it calls the function directly again (inductor.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undertorch.ops import inductor
from undertorch.ops.calls import BadCall, are_bare, as_compiled_code, is_fake, need_gradients, refuse_functorch

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
    overload = getattr(torch.ops.undertorch, name).default

    def directly(*arguments: Any) -> Any:
        return _present(as_compiled_code(body, arguments), arguments)

    def run(*arguments: Any) -> Any:
        if is_fake(*arguments):
            raise NotImplementedError(f"undertorch::{name} computes nothing on fake tensors.")
        return directly(*arguments)

    def answer(*arguments: Any) -> Any:
        inductor.take(overload, directly)
        return _present(fake(*arguments), arguments)

    LIBRARY.impl(name, run, "CUDA")
    LIBRARY.impl(name, run, "CPU")
    torch.library.register_fake(f"undertorch::{name}", answer, lib=LIBRARY)
    return Operator(name, body, overload)


def differentiable(
    forward_op: Operator, setup: Body, gradients: Body, *, shown: int | None = None
) -> Callable[..., Any]:
    """A function with gradients. `setup(ctx, inputs, output)` keeps what `gradients(ctx, *those of outputs)` needs.

    `shown`: how many of the operator's outputs, its first, the function answers: the one itself, or a tuple. The others
    are kept for the backward, and have no gradients. None: all that there are. The function has first derivatives only;
    asking for second ones raises BadCall.
    """
    name = forward_op.name.removesuffix("_forward")
    once = _once(gradients, name)

    def seen(outputs: Any) -> Any:
        return outputs if shown is None else outputs[0] if shown == 1 else outputs[:shown]

    def forward(ctx: Any, *arguments: Any) -> Any:
        # Not by setup_context, for which torch binds the arguments to forward's signature in every call.
        outputs = forward_op(*arguments)
        setup(ctx, arguments, outputs)
        return seen(outputs)

    def setup_traced(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        setup(ctx, inputs, output)
        if shown is not None:
            ctx.mark_non_differentiable(*output[shown:])

    node: Any = type(
        "".join(part.title() for part in forward_op.name.split("_")),
        (torch.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(once)},
    )
    operator_name = f"undertorch::{forward_op.name}"
    torch.library.register_autograd(operator_name, once, setup_context=setup_traced, lib=LIBRARY)

    def call(*arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return seen(forward_op.overload(*arguments))
        refuse_functorch(name)
        return node.apply(*arguments) if need_gradients(*arguments) else seen(forward_op(*arguments))

    return call


def _once(gradients: Body, name: str) -> Body:
    """The backward, which raises where its results are to be differentiated (create_graph=True). At once: torch's
    once_differentiable raises later, but only where an incoming gradient asks for it, or where the way to the inputs
    leads past it. A penalty on the gradients of a loss, whose incoming one is a plain 1, would silently lack its own.
    """

    def backward(ctx: Any, *incoming: Any) -> Any:
        if torch.is_grad_enabled():
            raise BadCall(
                f"undertorch.ops.{name} has first derivatives only, and create_graph=True asks for second ones; "
                f"call the reference of undertorch/ops/{name}.py there."
            )
        return gradients(ctx, *incoming)

    return backward


def _present(outputs: Any, arguments: tuple[Any, ...]) -> Any:
    if outputs is None or isinstance(outputs, Tensor):
        return outputs
    device = next(argument.device for argument in arguments if isinstance(argument, Tensor))
    return tuple(torch.empty(0, device=device) if output is None else output for output in outputs)
