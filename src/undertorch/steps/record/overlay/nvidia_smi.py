"""The `nvidia-smi` that a script finds: it answers for the GPU that was named, which is idle.

A program of its own, run as `nvidia_smi.py ANSWERS ARGUMENTS…`; ANSWERS is a JSON file (named_gpu.py). It knows what
scripts ask: `--query-gpu=FIELDS --format=csv[,noheader][,nounits]`, `-L`, and the table without arguments. What it has
no answer for is `[N/A]`, as nvidia-smi itself says.
"""

import json
import sys
from pathlib import Path

UNKNOWN = "[N/A]"
UNITS = {
    **dict.fromkeys(("memory.total", "memory.used", "memory.free"), "MiB"),
    **dict.fromkeys(("utilization.gpu", "utilization.memory"), "%"),
}
"""Of fields that have one, which a header names and each value repeats."""


def main(answers: dict[str, str], arguments: list[str]) -> str:
    """What it prints."""
    options = dict(argument.lstrip("-").partition("=")[::2] for argument in arguments)
    fields = options.get("query-gpu")
    if fields is not None:
        return "\n".join(queried(answers, [field.strip() for field in fields.split(",")], options.get("format", "csv")))
    if "L" in options or "list-gpus" in options:
        return f"GPU 0: {answers['name']} (UUID: {answers['uuid']})"
    return "\n".join(
        (
            f"NVIDIA-SMI, answered by undertorch   CUDA Version: {answers['cuda']}",
            f"0  {answers['name']}  {answers['memory.used']}MiB / {answers['memory.total']}MiB  0%  Default",
            "No running processes found",
        )
    )


def queried(answers: dict[str, str], fields: list[str], form: str) -> list[str]:
    """The header, unless it is not wanted, and the GPU's row."""
    wishes = form.split(",")

    def header(field: str) -> str:
        return f"{field} [{UNITS[field]}]" if field in UNITS else field

    def value(field: str) -> str:
        known = answers.get(field, UNKNOWN)
        return f"{known} {UNITS[field]}" if field in UNITS and "nounits" not in wishes else known

    rows = [", ".join(map(value, fields))]
    return rows if "noheader" in wishes else [", ".join(map(header, fields)), *rows]


if __name__ == "__main__":
    print(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), sys.argv[2:]))
