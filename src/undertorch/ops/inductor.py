"""How the code that torch.compile's Inductor makes calls our operators: the bare function, as eager code does.

Left to itself Inductor takes an operator that it does not know as a fallback when it first meets it. Two things stand
against that. torch 2.11 writes the operator's whole history into a message as it does so, whether or not anybody reads
it: every tensor with all that it was computed from, each as often as there are ways to it, so that a model of a dozen
residual layers never ends (mended in torch 2.13). And what it makes calls the operator through torch's dispatcher and
the rule for gradients, which no longer apply: about 20 µs a call.

What is used of Inductor is not promised by torch. Where it is not there, the operator is called as any other.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

ATTRIBUTE = "directly"
"""Of the operator: the function. Generated code reaches it by the operator's name, also when it comes from a cache."""


def take(overload: Any, function: Callable[..., Tensor | tuple[Tensor, ...] | None]) -> None:
    """Has Inductor, if it is loaded, call `function` for the operator. Called whenever one is traced, before Inductor
    sees it; again and again to no effect.
    """
    if not hasattr(overload, ATTRIBUTE):
        setattr(overload, ATTRIBUTE, function)
    lowering: Any = sys.modules.get("torch._inductor.lowering")  # not imported: nothing compiles for it
    lowerings = getattr(lowering, "lowerings", None)
    if lowerings is None or overload in lowerings or not hasattr(lowering, "make_fallback"):
        return
    lowering.make_fallback(overload, warn=False, override_decomp=True)
    through = lowerings[overload]

    def direct(*args: Any, **kwargs: Any) -> Any:
        outputs = through(*args, **kwargs)
        for output in pytree.tree_leaves(outputs):
            # A box of a box of one output of the kernel: what is not built so stays as it is.
            with suppress(AttributeError, IndexError, TypeError):
                kernel = output.data.data.inputs[0]
                if kernel.op_overload is overload:
                    kernel.set_python_kernel_name(f"torch.ops.{overload}.{ATTRIBUTE}")
        return outputs

    lowerings[overload] = direct
