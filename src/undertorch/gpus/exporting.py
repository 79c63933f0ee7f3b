"""Sheets as JSON: the layout of `undertorch gpus --json`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from undertorch.gpus.roofline import Distance, bandwidth, ridge
from undertorch.records import Gpu

SCHEMA = 1
"""Version of the layout. It grows when a field changes its meaning or goes; new fields do not change it."""


def to_json(gpus: Sequence[Gpu], as_list: bool) -> bytes:
    """The GPUs as a list, or the one there is as an object. Unknown is null; units are those of `records.Gpu`."""
    entries = [_entry(gpu) for gpu in gpus]
    return msgspec.json.format(msgspec.json.encode(entries if as_list else entries[0]))


def _entry(gpu: Gpu) -> dict[str, Any]:
    """A Gpu's fields, and what follows from them."""
    return {
        "schema": SCHEMA,
        **msgspec.to_builtins(gpu),
        "cuda_cores": gpu.cuda_cores,
        "max_warps_per_sm": gpu.max_warps_per_sm,
        "bandwidths": {distance: bandwidth(gpu, distance) for distance in Distance},
        "ridges": {math: {distance: ridge(gpu, math, distance) for distance in Distance} for math in gpu.peaks},
    }
