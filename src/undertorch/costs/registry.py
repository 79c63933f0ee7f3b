"""Which function knows the kernels of which Op. The registry is the only coupling between families."""

from collections.abc import Callable

from undertorch.records import Gpu, Kernel, Op

Cost = Callable[[Op, Gpu], tuple[Kernel, ...]]
"""The kernels that an Op launches on a GPU, in order. Empty: it launches none (a view, or nothing to do)."""

COSTS: dict[str, Cost] = {}
"""By Op name, such as `aten::addmm`; the overload is the function's business."""


Ways = Callable[[Op, Gpu], tuple[tuple[Kernel, ...], ...]]
"""What else an Op may launch on a GPU: of each way its kernels, all that it launches, in order."""

OTHER_WAYS: dict[str, Ways] = {}
"""By Op name. A cost answers the usual way, which is predicted; what ran may be one of these."""


LAUNCHED: dict[str, Cost] = {}
"""By namespace, the cost of kernels that scripts launch by themselves, whatever their name: `triton::…`."""


class NoCost(LookupError):
    """Raised by a cost that cannot tell for this call: its kernels follow from values, or from sources unknown."""


def cost(*names: str) -> Callable[[Cost], Cost]:
    """Registers a function as the cost of the Ops of those names. Raises ValueError for a name that has one."""

    def register(function: Cost) -> Cost:
        for name in names:
            if name in COSTS:
                raise ValueError(f"{name} has a cost already: {COSTS[name].__module__}.{COSTS[name].__name__}")
            COSTS[name] = function
        return function

    return register


def other_ways(*names: str) -> Callable[[Ways], Ways]:
    """Registers a function that answers what else the Ops of those names may launch, beside what their cost says."""

    def register(function: Ways) -> Ways:
        OTHER_WAYS.update(dict.fromkeys(names, function))
        return function

    return register


def launched_by_scripts(namespace: str) -> Callable[[Cost], Cost]:
    """Registers a function as the cost of every Op of a namespace that holds kernels and no ops."""

    def register(function: Cost) -> Cost:
        LAUNCHED[namespace] = function
        return function

    return register


def kernels(op: Op, gpu: Gpu) -> tuple[Kernel, ...] | None:
    """The kernels of an Op; None where no cost is known for it or this call of it; the accounting lists those.

    An Op whose tensors all lie on the CPU, or nowhere (`meta`), launches none, whatever it is.
    """
    tensors = (*op.inputs, *op.results)
    if tensors and all(tensor.device.startswith(("cpu", "meta")) for tensor in tensors):
        return ()
    found = COSTS.get(op.name) or LAUNCHED.get(op.name.partition("::")[0])
    if found is None:
        return None
    try:
        return found(op, gpu)
    except NoCost:
        return None


def ways(op: Op, gpu: Gpu) -> tuple[tuple[Kernel, ...], ...]:
    """All that an Op may launch, the usual way first; none where no cost is known for it."""
    usual = kernels(op, gpu)
    if usual is None:
        return ()
    others = OTHER_WAYS.get(op.name)
    return (usual,) if others is None or not usual else (usual, *others(op, gpu))
