"""What torch declares of its functions: which of them autograd takes apart."""

from functools import cache
from importlib.util import find_spec


@cache
def is_composite(name: str) -> bool:
    """Whether autograd takes a function of ATen apart before it is dispatched (CompositeImplicitAutograd).

    Without torch, and of functions that this torch has not, nothing is known to be one.
    """
    if find_spec("torch") is None:
        return False
    import torch

    found = torch._C._jit_get_schemas_for_operator(name)
    if not found:
        return False
    overload = found[0].overload_name
    return torch._C._dispatch_has_kernel_for_dispatch_key(
        f"{name}.{overload}" if overload else name, "CompositeImplicitAutograd"
    )
