"""Every benchmark's result as one JSON file under benchmarks/results/: what the tables in the docs are made from."""

import datetime
import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What was aimed at, and what came of it."""

    what: str
    aim: str
    got: str
    holds: bool


def write(
    name: str,
    rows: list[dict[str, object]],
    aims: list[Aim],
    versions: dict[str, str],
    machine: str | None = None,
) -> Path:
    """Writes benchmarks/results/NAME.json and prints the aims."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {
        "name": name,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine or f"{platform.machine()}, no GPU",
        "versions": versions,
        "rows": rows,
        "aims": [asdict(aim) for aim in aims],
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    for aim in aims:
        print(f"{'holds' if aim.holds else 'FALLS SHORT'}: {aim.what}: aim {aim.aim}, got {aim.got}")
    return path
