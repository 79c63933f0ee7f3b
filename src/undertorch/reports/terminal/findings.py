"""Findings on a terminal: what is wrong, both lines of source with a caret, what was seen, and what mends it."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from undertorch.records import Checked, Dim3, Finding, Severity
from undertorch.reports.terminal.text import Paragraph, cut

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
LABEL = 12
"""Cells of what stands to the left of evidence and remedy."""


def show_all(checked: Sequence[Checked], console: Console) -> None:
    """Kernels with findings one after the other, then a line for each clean one, then what came of all."""
    for row in drawn_all(checked, console.width):
        console.print(row, highlight=False)


def show_checked(checked: Checked, console: Console) -> None:
    """One kernel; a clean one takes one line."""
    for row in _kernel(checked, console.width):
        console.print(row, highlight=False)


def drawn_all(checked: Sequence[Checked], width: int) -> Iterator[Text | Paragraph]:
    """The same as rows for rich."""
    found = [one for one in checked if one.findings]
    for number, one in enumerate(found):
        if number:
            yield Text("")
        yield from _kernel(one, width)
    clean = [one for one in checked if not one.findings]
    if found and clean:
        yield Text("")
    for one in clean:
        yield from _kernel(one, width)
    if len(checked) > 1:
        yield Text("")
        yield Paragraph(text=Text(summary(checked), style="bold"), indent=0)
    for sentence in skipped(checked):
        yield Paragraph(text=Text(sentence), indent=0)


def skipped(checked: Sequence[Checked]) -> list[str]:
    """A sentence for what was not looked for, and why."""
    return [f"Not looked at: {why}." for why in dict.fromkeys(one.skipped for one in checked) if why is not None]


def summary(checked: Sequence[Checked]) -> str:
    """`3 kernels in 40 launches, 12 of them looked at (the others equal these): 1 error, 2 warnings.`"""
    launches, watched = sum(one.launches for one in checked), sum(one.watched for one in checked)
    of = f" in {_number(launches, 'launch', 'launches')}"
    if watched < launches:
        rest = "could not be" if all(one.missed for one in checked if one.watched < one.launches) else "equal these"
        of += f", {watched:,} of them looked at (the others {rest})"
    found = counted([f for one in checked for f in one.findings]) or "nothing found"
    return f"{_number(len(checked), 'kernel', 'kernels')}{of}: {found}."


def _number(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _kernel(checked: Checked, width: int) -> Iterator[Text | Paragraph]:
    head = f"{checked.kernel} {sizes(checked.grid)} × {sizes(checked.block)}"
    if len(checked.sizes) > 1:
        head += f" and {_number(len(checked.sizes) - 1, 'other size', 'other sizes')}"
    ran = f"{checked.target} code as on {checked.gpu}"
    if checked.runs > 1:
        ran += f", {checked.runs} orders of warps"
    if checked.launches > 1:
        some = f"{checked.watched:,} of " if checked.watched < checked.launches else ""
        ran += f", {some}{checked.launches:,} launches"
    if not checked.findings:
        clean = "nothing found" if checked.watched else "not checked"
        yield Paragraph(text=Text(f"{head}: {clean} ({ran})."), indent=0)
    else:
        yield Paragraph(text=Text(f"{head}: {counted(checked.findings)} ({ran})", style="bold"), indent=0)
    for finding in checked.findings:
        yield Text("")
        yield from _finding(finding, checked, width)
    if checked.missed is not None:
        yield _labelled("missed", f"launches that could not be looked at: {checked.missed}")
    for accepted in checked.suppressed:
        f = accepted.finding
        yield _labelled("accepted", f"{f.kind} at {f.place.file}:{f.place.line}: {accepted.reason}")


def _finding(finding: Finding, checked: Checked, width: int) -> Iterator[Text | Paragraph]:
    place = f"{finding.place.file}:{finding.place.line}"
    yield Paragraph(
        text=Text.assemble(
            (f"{place}: ", "bold"), (f"{finding.severity}: ", STYLES[finding.severity]), (f"{finding.kind}: ", "bold"),
            finding.message,
        ),
        indent=0,
    )  # fmt: skip
    yield from _excerpts(finding, checked, width)
    times = "" if finding.count == 1 else f" ({finding.count:,} times)"
    yield _labelled("seen", f"{finding.evidence}{times}")
    if finding.cost is not None:
        yield _labelled("cost", finding.cost)
    yield _labelled("remedy", finding.remedy)


BETWEEN = 3
"""Lines between two that a finding names which are shown, too; of more, none."""


def _excerpts(finding: Finding, checked: Checked, width: int) -> Iterator[Text]:
    """The lines that a finding names, file by file, a caret below each column; nothing where the text is not known."""
    places = [place for place in (finding.place, finding.other) if place is not None]
    for file in dict.fromkeys(place.file for place in places):
        lines = checked.sources.get(file, "").split("\n")
        columns: dict[int, set[int]] = {}
        for place in places:
            if place.file == file and 0 < place.line <= len(lines) and lines[place.line - 1].strip():
                columns.setdefault(place.line, set()).add(_cell(lines[place.line - 1], place.column))
        if columns and file != finding.place.file:
            yield Text(f"       in {file}", style="dim")
        last = 0
        for line in sorted(columns):
            if last and line - last <= BETWEEN + 1:
                for between in range(last + 1, line):
                    yield _source(between, lines[between - 1], width, "dim")
            elif last:
                yield Text("       ⋮", style="dim")
            yield _source(line, lines[line - 1], width)
            yield from _carets(sorted(columns[line]), width)
            last = line


def _source(number: int, text: str, width: int, style: str = "") -> Text:
    gutter = f"{number:>6} │ "
    row = Text.assemble((gutter, "dim"), (cut(text, width - len(gutter)), style))
    row.rstrip()
    return row


def _cell(source: str, column: int | None) -> int:
    """Where a column, counted from 1, lies on the screen; of none or a wrong one, where the text begins."""
    at = (column or 0) - 1
    if not 0 <= at < len(source):
        at = len(source) - len(source.lstrip())
    return len(source[:at].expandtabs(4))


def _carets(cells: Sequence[int], width: int) -> Iterator[Text]:
    shown = [cell for cell in cells if cell < width - 9]
    if shown:
        marks = "".join("^" if cell in shown else " " for cell in range(shown[-1] + 1))
        yield Text.assemble(("       │ ", "dim"), (marks, "bold"))


def _labelled(label: str, said: str) -> Paragraph:
    return Paragraph(text=Text(said), label=Text(f"  {label}", style="dim"), indent=LABEL)


def counted(findings: Sequence[Finding]) -> str:
    """`2 errors, 1 note`; nothing of none."""
    counts = [(s, sum(f.severity is s for f in findings)) for s in Severity]
    return ", ".join(f"{n} {s}{'' if n == 1 else 's'}" for s, n in counts if n)


def sizes(dim: Dim3) -> str:
    """`[8]`, `[8, 4]`: what is 1 at the end is left out."""
    kept = list(dim)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return "[" + ", ".join(str(n) for n in kept) + "]"
