"""Writes the JSON Schemas of `undertorch see`, `compare` and `check --json` beside this file: `make schema`."""

import json
from pathlib import Path
from typing import Any

from undertorch.records import checked_files, comparison_files, files

FOLDER = Path(__file__).parent


def write(command: str, version: int, described: str, schema: dict[str, Any]) -> None:
    """One schema, with its head."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"undertorch {command} --json, schema {version}",
        "description": f"{described} Unknown is null. Generated from the records: make schema.",
    }
    path = FOLDER / f"{command}-{version}.schema.json"
    path.write_text(json.dumps(head | schema, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write("see", files.SCHEMA, "One step, or a list with one a GPU.", files.schema())
    write("compare", comparison_files.SCHEMA, "What changed, a GPU each.", comparison_files.schema())
    write("check", checked_files.SCHEMA, "Kernels that were checked, with their findings.", checked_files.schema())
