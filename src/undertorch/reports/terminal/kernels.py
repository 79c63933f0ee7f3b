"""The kernels that take the most time, each with the geometry of its longest launch and how near the peak it comes."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.records import Bound, Gpu, Launch, Origin
from undertorch.reports.terminal.bounds import bound
from undertorch.reports.terminal.names import Named
from undertorch.reports.terminal.numbers import count, flops, geometry, percent, ratio, size, time
from undertorch.reports.terminal.runs import Run, bounds, busy, by_kernel, longest
from undertorch.reports.terminal.text import Paragraph, title

SHOWN = 12
"""Kernels that get a row of their own."""
INDENT = 26


def top_kernels(all_runs: Sequence[Run], gpu: Gpu | None) -> RenderableType:
    """Two rows a kernel: time and name; then kind, library, geometry, occupancy, rate, bound."""
    whole = busy(all_runs)
    groups = by_kernel(all_runs)
    rows: list[RenderableType] = [title("Kernels", "the longest first; geometry and occupancy of the longest launch")]
    if not groups:
        return Group(*rows, Paragraph(text=Text("none", style="dim")))
    rows.append(_row("time", "%", "launches", "name", style="dim"))
    for group in groups[:SHOWN]:
        share = percent(ratio(busy(group), whole)).removesuffix(" %")
        figures = _figures(time(busy(group)), share, count(len(group)))
        rows.append(Named(name=longest(group).kernel.name, label=figures, indent=INDENT))
        rows.append(Paragraph(text=Text(" · ".join(_details(group, gpu)), style="dim"), indent=INDENT))
    rest = groups[SHOWN:]
    if rest:
        spent = sum(busy(group) for group in rest)
        share = percent(ratio(spent, whole)).removesuffix(" %")
        launches = count(sum(len(group) for group in rest))
        rows.append(_row(time(spent), share, launches, count(len(rest), "more kernel"), style="dim"))
    return Group(*rows)


def _row(spent: str, share: str, launches: str, name: str, style: str) -> RenderableType:
    return Paragraph(text=Text(name, style=style), label=_figures(spent, share, launches, style), indent=INDENT)


def _figures(spent: str, share: str, launches: str, style: str = "") -> Text:
    return Text(f"{spent:>8} {share:>6} {launches:>8}", style=style)


def _details(group: Sequence[Run], gpu: Gpu | None) -> list[str]:
    launch = longest(group)
    kernel = launch.kernel
    guess = launch.time_origin is Origin.PREDICTED and "guess" in (kernel.note or "")
    said = [f"{kernel.kind}, {kernel.library}", geometry(kernel), _occupancy(launch), *rates(group, gpu), bound(group)]
    return [*said, "a guess"] if guess else said


def _occupancy(launch: Launch) -> str:
    limiter = "" if launch.limiter is None else f" ({launch.limiter})"
    return f"occupancy {percent(launch.occupancy)}{limiter}"


def rates(group: Sequence[Run], gpu: Gpu | None) -> list[str]:
    """What the kernel reaches, bytes or FLOPs a second: of the two the one that comes nearer to the GPU's peak.

    Without the GPU's sheet: FLOPs where arithmetic bounds it, otherwise bytes. Empty where neither is known.
    """
    launches = [run.launch for run in group]
    over_link = launches[0].kernel.over_link
    moved = _a_second([(launch.kernel.min_bytes, launch.time_us) for launch in launches])
    done = _a_second([(launch.kernel.flops, launch.time_us) for launch in launches])
    math = longest(group).kernel.math
    moved_share = None if gpu is None else ratio(moved, gpu.pcie_bandwidth if over_link else gpu.memory_bandwidth)
    done_share = None if gpu is None or math is None else ratio(done, gpu.peaks.get(math))
    (first, _), *_ = bounds(group)
    if done and (first is Bound.COMPUTE if gpu is None else (done_share or 0) > (moved_share or 0)):
        return [_reached(flops(done), done_share)]
    return [] if moved is None else [_reached(size(moved), moved_share, "the link's peak" if over_link else "peak")]


def _a_second(figures: Sequence[tuple[int | None, float]]) -> float | None:
    """The sum of the figures that are known, over the time of the launches that have them."""
    known = [(figure, spent) for figure, spent in figures if figure is not None]
    return ratio(sum(figure for figure, _ in known), sum(spent for _, spent in known) * 1e-6)


def _reached(rate: str, share: float | None, peak: str = "peak") -> str:
    return f"{rate}/s" + ("" if share is None else f", {percent(share)} of {peak}")
