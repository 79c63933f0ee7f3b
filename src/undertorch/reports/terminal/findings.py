"""Findings on a terminal: what is wrong, both lines of source with a caret, what was seen, and what mends it."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from undertorch.records import Checked, Finding, Place, Severity
from undertorch.reports.terminal.text import Paragraph, cut

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
LABEL = 10
"""Cells of what stands to the left of evidence and remedy."""


def show_checked(checked: Checked, console: Console) -> None:
    """A clean kernel takes one line."""
    head = f"{checked.kernel} {_sizes(checked.grid)} × {_sizes(checked.block)}"
    runs = f", {checked.runs} orders of warps" if checked.runs > 1 else ""
    if not checked.findings:
        console.print(Text(f"{head}: nothing found ({checked.gpu}{runs})."))
        return
    console.print(Text(f"{head}: {_counted(checked)} ({checked.gpu}{runs})", style="bold"))
    for finding in checked.findings:
        console.print(Text(""))
        for row in _finding(finding, checked, console.width):
            console.print(row, highlight=False)


def _finding(finding: Finding, checked: Checked, width: int) -> Iterator[Text | Paragraph]:
    place = f"{finding.place.file}:{finding.place.line}"
    yield Paragraph(
        text=Text.assemble(
            (f"{place}: ", "bold"), (f"{finding.severity}: ", STYLES[finding.severity]), (f"{finding.kind}: ", "bold"),
            finding.message,
        ),
        indent=0,
    )  # fmt: skip
    yield from _excerpt(finding.place, checked, width)
    if finding.other is not None and finding.other != finding.place:
        yield from _excerpt(finding.other, checked, width)
    times = "" if finding.count == 1 else f" ({finding.count:,} times)"
    yield _labelled("seen", f"{finding.evidence}{times}")
    if finding.cost is not None:
        yield _labelled("cost", finding.cost)
    yield _labelled("remedy", finding.remedy)


def _labelled(label: str, said: str) -> Paragraph:
    return Paragraph(text=Text(said), label=Text(f"  {label}", style="dim"), indent=LABEL)


def _excerpt(place: Place, checked: Checked, width: int) -> Iterator[Text]:
    """The line and a caret below its column; nothing where the text is not known."""
    lines = checked.sources.get(place.file, "").split("\n")
    if not 0 < place.line <= len(lines) or not lines[place.line - 1].strip():
        return
    source = lines[place.line - 1]
    text = source.expandtabs(4)
    number = f"{place.line:>6} │ "
    yield Text.assemble((number, "dim"), cut(text, width - len(number)))
    column = (place.column or 0) - 1
    if not 0 <= column < len(source):
        column = len(source) - len(source.lstrip())
    at = len(source[:column].expandtabs(4))
    if at < width - len(number):
        yield Text.assemble(("       │ ", "dim"), " " * at, ("^", "bold"))


def _counted(checked: Checked) -> str:
    counts = [(s, sum(f.severity is s for f in checked.findings)) for s in Severity]
    return ", ".join(f"{n} {s}{'' if n == 1 else 's'}" for s, n in counts if n)


def _sizes(sizes: tuple[int, int, int]) -> str:
    kept = list(sizes)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return "[" + ", ".join(str(n) for n in kept) + "]"
