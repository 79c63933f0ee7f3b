"""Folders whose frames are not the user's: torch's, undertorch's, and those of what runs a loop around a model."""

import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

import undertorch

PLUMBING = ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning", "triton")
"""Packages that call what the user wrote: the loop or the launcher around it, not the model."""


def folders(packages: Iterable[str]) -> Iterator[Path]:
    """Where packages are installed, those that are."""
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is not None:
            yield from map(Path, spec.submodule_search_locations or ())


OWN = tuple(path for path in Path(undertorch.__file__).parent.iterdir() if path.is_dir() and path.name != "train")
"""Undertorch's parts. The model and the loop of `train` are no plumbing: their lines are what a step is made of."""

INSIDE = (Path(torch.__file__).parent, *OWN, *folders(PLUMBING))
"""Folders whose frames are not the user's."""
