"""Bytes, FLOPs and launch geometry of ATen's Ops, one file an op family. Importing this registers every family."""

from importlib import import_module
from pkgutil import iter_modules

from undertorch.costs.registry import COSTS, Cost, cost, kernels, ways

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["COSTS", "Cost", "cost", "kernels", "ways"]
