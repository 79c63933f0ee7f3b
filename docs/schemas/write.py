"""Writes the JSON Schema of `undertorch see --json` beside this file: `make schema`."""

import json
from pathlib import Path

from undertorch.records.files import SCHEMA, schema

PATH = Path(__file__).with_name(f"see-{SCHEMA}.schema.json")

if __name__ == "__main__":
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"undertorch see --json, schema {SCHEMA}",
        "description": "One step, or a list with one a GPU. Unknown is null. Generated from the records: make schema.",
    }
    PATH.write_text(json.dumps(head | schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
