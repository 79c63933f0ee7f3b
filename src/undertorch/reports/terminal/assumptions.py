"""What was answered without computing a value, each with its place and how often."""

from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.records import Origin, Step
from undertorch.reports.terminal.text import Paragraph, title


def assumptions(step: Step) -> RenderableType:
    """The run's assumptions, then those of single Ops that are not among them."""
    rows: list[RenderableType] = [title(heading(step))]
    for assumed in step.accounting.assumed:
        place = "" if assumed.where is None else f"{assumed.where.file}:{assumed.where.line}"
        rows.append(_row(place, assumed.what, assumed.count))
    said = [assumed.what for assumed in step.accounting.assumed]
    of_ops: dict[tuple[str, str], int] = {}
    for op in step.ops:
        for sentence in op.assumed:
            place = op.name if op.where is None else f"{op.where.file}:{op.where.line}"
            if not any(what.startswith(sentence) for what in said):  # the run's own goes on with what to do
                of_ops[place, sentence] = of_ops.get((place, sentence), 0) + 1
    rows.extend(_row(place, sentence, times) for (place, sentence), times in of_ops.items())
    if len(rows) == 1:
        rows.append(Paragraph(text=Text("none", style="dim")))
    return Group(*rows)


def heading(step: Step) -> str:
    """Of a measured step nothing is assumed: what is said is how it was read."""
    return "Notes" if step.time_origin is Origin.MEASURED else "Assumptions"


def _row(place: str, sentence: str, times: int) -> RenderableType:
    often = f" ({times:,}×)" if times > 1 else ""
    place = f"{place}{often}: " if place or often else ""
    return Paragraph(text=Text.assemble((place, "bold"), sentence))
