"""Calibrations on this machine's disk: one file each, by GPU, driver and date; and as a sheet to predict with."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from undertorch.gpus import find
from undertorch.records import Gpu
from undertorch.records.calibrations import Calibration
from undertorch.records.files import write_whole

SCHEMA = 1
"""Version of the layout. It grows when a field changes its meaning or goes; new fields do not change it."""


class CalibrationFile(msgspec.Struct, kw_only=True):
    """A Calibration as it stands in a file."""

    schema: int
    calibration: Calibration


def folder() -> Path:
    """In the user's cache, like everything else that undertorch can make anew."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undertorch" / "calibrations"


def to_json(calibration: Calibration) -> bytes:
    """The file's bytes."""
    return msgspec.json.format(msgspec.json.encode(CalibrationFile(schema=SCHEMA, calibration=calibration)))


def keep(calibration: Calibration) -> Path:
    """Writes it whole or not at all. Raises OSError where it cannot be written."""
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{_stem(calibration)}.json"
    write_whole(path, to_json(calibration))
    return path


def newest(gpu: str) -> Calibration | None:
    """The last one of the GPU of that sheet, kept on this machine; None where there is none that can be read."""
    return max((one for one in _all() if one.gpu == gpu), key=lambda one: one.date, default=None)


def _all() -> Iterator[Calibration]:
    """What cannot be read is passed over: another version's file, or half of a disk's."""
    for path in sorted(folder().glob("*.json")) if folder().is_dir() else ():
        try:
            found = msgspec.json.decode(path.read_bytes(), type=CalibrationFile)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue
        if found.schema == SCHEMA:
            yield found.calibration


def sheet(calibration: Calibration) -> str | None:
    """A sheet, as TOML, like that of its GPU with what was measured in place of what is published, for `--gpu`.

    The bandwidth that copies achieve, and that of the L2. Not the peaks: predictions take a share of what a vendor
    promises, and that share was fitted to promised peaks. None where the GPU has no sheet or neither was measured.
    """
    if calibration.gpu is None:
        return None
    like = find(calibration.gpu)
    source = f"measured on this machine by `undertorch gpus --calibrate`, {calibration.date}"
    sections = {
        "memory": _figure("l2_bandwidth", calibration, "l2 read"),
        "measured": _achieved(like, calibration),
    }
    if not any(sections.values()):
        return None
    lines = [f"like = {_text(like.name)}", f"name = {_text(f'{like.name}, calibrated {calibration.date[:10]}')}"]
    for section, line in sections.items():
        if line is not None:
            lines += ["", f"[{section}]", f"source = {_text(source)}", line]
    return "\n".join(lines) + "\n"


def keep_sheet(calibration: Calibration) -> Path | None:
    """Beside the calibration. None where there is none to be made. Raises OSError where it cannot be written."""
    text = sheet(calibration)
    if text is None:
        return None
    path = folder() / f"{_stem(calibration)}.toml"
    write_whole(path, text.encode())
    return path


def _achieved(like: Gpu, calibration: Calibration) -> str | None:
    """A sheet refuses one above the bandwidth that it promises, which is then the better guess."""
    copy = calibration.ceiling("global copy")
    if copy is None or copy.value > like.memory_bandwidth:
        return None
    return _figure("achieved_bandwidth", calibration, "global copy")


def _figure(name: str, calibration: Calibration, ceiling: str) -> str | None:
    found = calibration.ceiling(ceiling)
    return None if found is None else f"{name} = {found.value:.4g}"


def _stem(calibration: Calibration) -> str:
    parts = (calibration.gpu or calibration.gpu_name, calibration.driver or "unknown-driver", calibration.date)
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", part) for part in parts)


def _text(value: str) -> str:
    """As TOML writes it: JSON's rules are within TOML's for one line."""
    return msgspec.json.encode(value).decode()
