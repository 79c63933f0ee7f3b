"""What an op's schema tells about its arguments."""

from functools import cache

import torch


@cache
def written(func: torch._ops.OpOverload) -> tuple[int, ...]:
    """Positions of the arguments that an op writes into."""
    return tuple(
        index
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


@cache
def makes_a_tensor(func: torch._ops.OpOverload) -> bool:
    """Whether an op has a device to make its result on."""
    return any(argument.name == "device" for argument in func._schema.arguments)


@cache
def composed(func: torch._ops.OpOverload) -> bool:
    """Whether CUDA takes an op apart into others."""
    name = func.name()
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    return composite and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")


def python_kernel(func: torch._ops.OpOverload) -> torch._C.DispatchKey | None:
    """Under which key CUDA runs a kernel that somebody wrote in Python (torch.library); None where it runs none."""
    if func.namespace == "aten":
        return None
    name = func.name()
    for key in ("CUDA", "CompositeExplicitAutograd"):
        if f"{name.replace('::', '/')}/{key}" in torch.library._impls:
            return getattr(torch._C.DispatchKey, key)  # type: ignore[no-any-return]
    return None


def declared(func: torch._ops.OpOverload) -> bool:
    """Whether somebody told torch what a custom op returns (torch.library.register_fake)."""
    entry = torch._library.simple_registry.singleton.find(func.name())
    return entry.fake_impl.kernel is not None
