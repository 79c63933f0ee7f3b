"""Findings in a notebook: a sentence, and of each what is wrong, its lines, what was seen, what mends it."""

from collections.abc import Iterator, Sequence
from html import escape

from undertorch.records import Checked, Finding
from undertorch.reports.terminal.findings import counted, sizes, skipped, summary

PRE = "margin: 0.3em 0; padding: 0.3em 0.7em; line-height: 1.4; overflow-x: auto; background: rgba(128, 128, 128, 0.12)"
FINDING = "margin: 0.8em 0; padding-left: 0.8em; border-left: 3px solid currentColor"


def cell(checked: Sequence[Checked]) -> str:
    """HTML that takes its colours and font from the page it is put in."""
    if not checked:
        return "<p>No Triton or CUDA kernel was launched: nothing was checked.</p>"
    targets = ", ".join(sorted({f"{one.target} code as on {one.gpu}" for one in checked}))
    parts = [f"<p><b>{escape(summary(checked))}</b> ({escape(targets)})</p>"]
    parts += [f"<p>{escape(sentence)}</p>" for sentence in skipped(checked)]
    for one in checked:
        said = counted(one.findings) or "nothing found"
        head = f"{sizes(one.grid)} × {sizes(one.block)}: {said}"
        parts.append(f"<p><code>{escape(one.kernel)}</code> {escape(head)}</p>")
        parts += [_finding(finding, one) for finding in one.findings]
        if one.missed is not None:
            parts.append(f"<p>Could not be looked at: {escape(one.missed)}</p>")
    return "".join(parts)


def _finding(finding: Finding, checked: Checked) -> str:
    rows = "\n".join(escape(row) for row in _lines(finding, checked))
    said = (("seen", finding.evidence), ("cost", finding.cost), ("remedy", finding.remedy))
    facts = "".join(f"<div><i>{name}</i> {escape(text)}</div>" for name, text in said if text)
    place = f"{finding.place.file}:{finding.place.line}"
    return (
        f'<div style="{FINDING}"><div><b>{finding.severity}: {finding.kind}</b> {escape(place)}</div>'
        f"<div>{escape(finding.message)}</div>{f'<pre style={PRE!r}>{rows}</pre>' if rows else ''}{facts}</div>"
    )


def _lines(finding: Finding, checked: Checked) -> Iterator[str]:
    named = {(p.file, p.line) for p in (finding.place, finding.other) if p is not None}
    for file, line in sorted(named):
        rows = checked.sources.get(file, "").split("\n")
        if 0 < line <= len(rows):
            yield f"{line:>4}  {rows[line - 1]}"
