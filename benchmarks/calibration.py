"""What the H200 reaches: `undertorch gpus --calibrate` as a result, with what it is held against.

    python benchmarks/calibration.py [CALIBRATION.json]

Measures the GPU that is here; or takes what `undertorch gpus --calibrate --json CALIBRATION.json` wrote on another
machine.
"""

import sys
from pathlib import Path

import msgspec

from results_file import Aim, write
from undertorch import gpus
from undertorch.gpus.calibrating import calibrate
from undertorch.gpus.calibrating.kept import CalibrationFile
from undertorch.gpus.calibrating.on_cuda import OnCuda
from undertorch.records.calibrations import Calibration
from undertorch.reports.terminal.calibration import promise

KNOWN_COPY = 4.27e12
"""Bytes a second that an earlier copy kernel of this project's reached on the same GPU (4.25 to 4.28)."""
MOST_SECONDS = 120


def rows(found: Calibration) -> list[dict[str, object]]:
    sheet = gpus.find(found.gpu) if found.gpu else None
    kept = [
        {
            "ceiling": one.name,
            "value": one.value,
            "unit": str(one.unit),
            "best": one.best,
            "spread": one.spread,
            "samples": one.samples,
            "variant": one.variant,
            "sheet": None if sheet is None else promise(sheet, one.name),
        }
        for one in found.ceilings
    ]
    return kept + [{"failed": name, "why": why} for name, why in found.failed.items()]


def aims(found: Calibration) -> list[Aim]:
    copy = found.ceiling("global copy")
    reached = 0.0 if copy is None else copy.value
    return [
        Aim(
            what="the whole calibration",
            aim=f"at most {MOST_SECONDS} s",
            got=f"{found.seconds:.0f} s",
            holds=found.seconds <= MOST_SECONDS,
        ),
        Aim(
            what="a copy, against an earlier measurement",
            aim="4.27 TB/s within 2 %",
            got=f"{reached / 1e12:.2f} TB/s",
            holds=abs(reached / KNOWN_COPY - 1) <= 0.02,
        ),
        Aim(
            what="probes that could not be run",
            aim="none",
            got=", ".join(found.failed) or "none",
            holds=not found.failed,
        ),
    ]


def main(file: Path | None) -> None:
    if file is None:
        found = calibrate(OnCuda(), print)
    else:
        found = msgspec.json.decode(file.read_bytes(), type=CalibrationFile).calibration
    versions = {**found.versions, "driver": found.driver or "unknown"}
    write("calibration", rows(found), aims(found), versions, machine=found.gpu_name)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
