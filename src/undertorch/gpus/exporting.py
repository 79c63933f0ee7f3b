"""Sheets as JSON: the layout of `undertorch gpus --json`."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from undertorch.gpus.roofline import Distance, bandwidth, ridge
from undertorch.records import Gpu
from undertorch.records.calibrations import Calibration

SCHEMA = 1
"""Version of the layout. It grows when a field changes its meaning or goes; new fields do not change it."""


def to_json(gpus: Sequence[Gpu], measured: Mapping[str, Calibration | None], as_list: bool) -> bytes:
    """The GPUs as a list, or the one there is as an object. Unknown is null; units are those of `records.Gpu`.

    `measured`: the last calibration on this machine, by the GPU's name.
    """
    entries = [_entry(gpu, measured.get(gpu.name)) for gpu in gpus]
    return msgspec.json.format(msgspec.json.encode(entries if as_list else entries[0]))


def _entry(gpu: Gpu, measured: Calibration | None) -> dict[str, Any]:
    """A Gpu's fields, and what follows from them."""
    return {
        "schema": SCHEMA,
        **msgspec.to_builtins(gpu),
        "cuda_cores": gpu.cuda_cores,
        "max_warps_per_sm": gpu.max_warps_per_sm,
        "bandwidths": {distance: bandwidth(gpu, distance) for distance in Distance},
        "ridges": {math: {distance: ridge(gpu, math, distance) for distance in Distance} for math in gpu.peaks},
        "calibration": None if measured is None else msgspec.to_builtins(measured),
    }
