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
            if one.standing(finding.place).file != "PTX":
                yield _annotation(finding, one)


def where_lines_count_from(checked: Checked, finding: Finding) -> str | None:
    """A sentence for a source that is a text in a file, since what is said of its lines counts from its first."""
    origin = checked.origins.get(finding.place.file)
    if origin is None or (origin.whole and origin.line == 1):
        return None
    return f"Lines are counted in the source that stands at {origin.file}:{origin.line}."


def _annotation(finding: Finding, checked: Checked) -> str:
    place = checked.standing(finding.place)
    fields = {"file": place.file, "line": place.line, "col": place.column,
              "title": f"{finding.kind} in {checked.kernel}"}  # fmt: skip
    named = ",".join(f"{name}={_field(str(value))}" for name, value in fields.items() if value is not None)
    parts = (finding.message, f"Seen: {finding.evidence}.", finding.cost, f"Remedy: {finding.remedy}.",
             where_lines_count_from(checked, finding))  # fmt: skip
    return f"::{COMMANDS[finding.severity]} {named}::{_text(chr(10).join(part for part in parts if part))}"


def _text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _field(text: str) -> str:
    return _text(text).replace(":", "%3A").replace(",", "%2C")
