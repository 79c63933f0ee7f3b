"""The page: one HTML text that asks nobody for anything, and has no script."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from undertorch import __version__
from undertorch.records import Checked, Finding, Severity
from undertorch.reports.findings_page.pictures import Picture, picture
from undertorch.reports.page.highlight import highlighted
from undertorch.reports.page.text import shown
from undertorch.reports.terminal.findings import counted, sizes, skipped, summary

AROUND = 3
"""Lines of source above and below those that a finding names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of source."""

    number: int
    text: Markup
    named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Lines of a file."""

    file: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """A finding as the page shows it."""

    finding: Finding
    excerpts: tuple[Excerpt, ...]
    picture: Picture | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelView:
    """A kernel as the page shows it."""

    checked: Checked
    number: int
    head: str
    counted: str
    findings: tuple[FindingView, ...]


def findings_page(checked: Sequence[Checked]) -> bytes:
    """The page's HTML, in UTF-8."""
    environment = Environment(
        loader=PackageLoader("undertorch.reports.findings_page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    views = [_kernel(one, number) for number, one in enumerate(checked)]
    text = environment.get_template("findings.html").render(
        views=sorted(views, key=lambda view: not view.findings),
        summary=summary(checked),
        skipped=skipped(checked),
        targets=", ".join(sorted({one.target for one in checked})),
        gpus=", ".join(sorted({one.gpu for one in checked})),
        kinds=sorted({view.finding.kind for kernel in views for view in kernel.findings}),
        style=Markup(_style()),
        severities=list(Severity),
        version=__version__,
    )
    return text.encode("utf-8")


def _style() -> str:
    pages = Path(__file__).parents[1] / "page" / "css"
    own = Path(__file__).parent / "css" / "findings.css"
    return "\n".join(path.read_text(encoding="utf-8") for path in (pages / "colours.css", pages / "base.css", own))


def _kernel(checked: Checked, number: int) -> KernelView:
    return KernelView(
        checked=checked,
        number=number,
        head=f"{sizes(checked.grid)} × {sizes(checked.block)}",
        counted=counted(checked.findings),
        findings=tuple(_finding(finding, checked) for finding in checked.findings),
    )


def _finding(finding: Finding, checked: Checked) -> FindingView:
    places = [place for place in (finding.place, finding.other) if place is not None]
    excerpts = []
    for file in dict.fromkeys(place.file for place in places):
        text = checked.sources.get(file)
        if text is not None:
            named = sorted({place.line for place in places if place.file == file})
            excerpts.append(Excerpt(file=file, rows=tuple(_rows(file, text, named))))
    return FindingView(finding=finding, excerpts=tuple(excerpts), picture=picture(finding))


def _rows(file: str, text: str, named: Sequence[int]) -> list[Row]:
    """The named lines and some around each."""
    lines = highlighted(file, text)
    wanted = sorted({n for line in named for n in range(line - AROUND, line + AROUND + 1) if 0 < n <= len(lines)})
    return [Row(number=n, text=lines[n - 1], named=n in named) for n in wanted]
