"""Puts what undertorch really prints into README.md, docs/see.md and examples/see.ipynb: `make outputs`.

A block of output begins with its command, `$ undertorch see …`; what follows in it is replaced by an excerpt.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
COMMAND = "undertorch see --gpu H200 examples/train_gpt.py"
HEAD = f"```\n$ {COMMAND}\n"
PARTS = ("Lines", "Modules", "Advice", "Kernels", "Phases", "Totals", "Accounting", "Assumptions")

README = {"": None, "Lines": 24, "Advice": None, "Phases": None, "sentence": None}
PAGE = {"": None, "Lines": 44, "Advice": None, "Kernels": 13, **dict.fromkeys(PARTS[4:]), "sentence": None}
"""Parts of the report that a page shows, each with how many of its rows; None: all."""


def parts(report: str) -> dict[str, list[str]]:
    """The report's rows by part; the head is called "", and what stands last "sentence"."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    *rows, sentence = re.split(r"\n\n(?=[^\n])", report.rstrip())
    for row in "\n\n".join(rows).splitlines():
        if row.split("  ")[0] in PARTS:
            name = row.split("  ")[0]
        found.setdefault(name, []).append(row)
    return {**found, "sentence": sentence.splitlines()}


def excerpt(report: str, wanted: dict[str, int | None]) -> Iterator[str]:
    """The wanted parts; `…` where rows are left out, which is done before a line's or a kernel's first row."""
    for name, rows in parts(report).items():
        if name not in wanted:
            continue
        end = wanted[name] or len(rows)
        while end < len(rows) and not re.match(r" {0,4}\d", rows[end]):
            end -= 1
        yield "\n".join([*rows[:end], *(["…"] if end < len(rows) else [])]).rstrip()


def filled(text: str, report: str, wanted: dict[str, int | None]) -> str:
    """A page with the excerpt in its block of output. Raises ValueError where it has none."""
    begin = text.index(HEAD) + len(HEAD)
    end = text.index("\n```", begin)
    return text[:begin] + "\n\n".join(excerpt(report, wanted)) + text[end:]


def executed(path: Path) -> None:
    """Runs a notebook and keeps what its cells show."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, record_timing=False).execute()
    nbformat.write(notebook, path)


def main() -> None:
    """Runs the command once and fills both pages; then the notebook."""
    command = [sys.executable, "-m", *COMMAND.split()]
    report = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    for page, wanted in ((ROOT / "README.md", README), (ROOT / "docs" / "see.md", PAGE)):
        page.write_text(filled(page.read_text(encoding="utf-8"), report, wanted), encoding="utf-8")
    executed(ROOT / "examples" / "see.ipynb")


if __name__ == "__main__":
    main()
