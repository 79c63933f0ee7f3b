"""Puts sessions of `undertorch check` and `pytest --undertorch` into docs/check.md: `make outputs`.

A session stands between `<!-- session NAME -->` and `<!-- end -->`; it runs in a copy of examples/check/.
"""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).parent / "check.md"
MEND = "sed -i 's/tl.store(out, tl.load(out) + part)/tl.atomic_add(out, part)/' kernels.py"
SESSIONS = {
    "kernel": ["undertorch check reverse.cu --block 64 --arg f32[64] --arg f32[64]=empty"],
    "function": ["undertorch check kernels.py::sum_kernel"],
    "tests": ["pytest -q --undertorch", MEND, "pytest -q --undertorch"],
}
REVERSE = """__global__ void reverse(const float* x, float* y) {
    __shared__ float tile[64];

    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


def command(line: str) -> list[str]:
    """As it is run here: with this Python, and with the plugin named where the package was installed without it."""
    words = shlex.split(line)
    if words[0] == "undertorch":
        return [sys.executable, "-m", *words]
    if words[0] != "pytest":
        return words
    installed = "undertorch" in importlib.metadata.entry_points(group="pytest11").names
    return [
        sys.executable,
        "-m",
        *words,
        "-p",
        "no:cacheprovider",
        *([] if installed else ["-p", "undertorch.pytest_plugin"]),
    ]


def session(lines: list[str], folder: Path) -> str:
    """The commands with what they print."""
    shown = []
    for line in lines:
        environment = {**os.environ, "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command(line), cwd=folder, env=environment, capture_output=True, text=True, check=False)
        printed = re.sub(r"(\d (?:passed|failed)) in [\d.]+s.*", r"\1", done.stdout + done.stderr)
        shown += [f"$ {line}", *(row.rstrip() for row in printed.splitlines())]
    return "\n".join(shown)


def main() -> None:
    """Makes all sessions anew."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in SESSIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "examples" / "check", folder, dirs_exist_ok=True)
            (Path(folder) / "reverse.cu").write_text(REVERSE)
            made = f"```console\n{session(lines, Path(folder))}\n```\n"
        block = rf"(<!-- session {name} -->\n).*?(<!-- end -->)"
        text, found = re.subn(block, lambda m, made=made: m[1] + made + m[2], text, flags=re.DOTALL)
        if found != 1:
            raise SystemExit(f"{PAGE} has {found} places for the session {name}; one is needed.")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
