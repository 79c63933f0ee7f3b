"""Findings as annotations of GitHub Actions: lines of output that GitHub shows beside the source of a pull request.

Format and escapes: docs.github.com, "Workflow commands for GitHub Actions", and actions/toolkit's core/command.ts.
"""

from collections.abc import Iterator, Sequence

from undertorch.records import Checked, Finding, Severity

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def annotations(checked: Sequence[Checked]) -> Iterator[str]:
    """A line for each finding that has a source file."""
    for one in checked:
        for finding in one.findings:
            if finding.place.file != "PTX":
                yield _annotation(finding, one.kernel)


def _annotation(finding: Finding, kernel: str) -> str:
    fields = {"file": finding.place.file, "line": finding.place.line, "col": finding.place.column,
              "title": f"{finding.kind} in {kernel}"}  # fmt: skip
    named = ",".join(f"{name}={_field(str(value))}" for name, value in fields.items() if value is not None)
    parts = (finding.message, f"Seen: {finding.evidence}.", finding.cost, f"Remedy: {finding.remedy}.")
    return f"::{COMMANDS[finding.severity]} {named}::{_text(chr(10).join(part for part in parts if part))}"


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _field(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
