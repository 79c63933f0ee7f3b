"""What the tables leave out, by name and count, and where their figures come from."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.records import Origin, Step
from undertorch.reports.terminal.bounds import bound_origin
from undertorch.reports.terminal.missing import amount, missing, named, of
from undertorch.reports.terminal.numbers import count, percent
from undertorch.reports.terminal.runs import Run
from undertorch.reports.terminal.text import Paragraph, title


def accounting(step: Step, all_runs: Sequence[Run]) -> RenderableType:
    """One sentence each: lines, costs, figures that are not known, what a profiler lost, origins."""
    sentences = [
        _lines(step, all_runs),
        *_ops_without_cost(step),
        *_not_known(all_runs),
        *_damage(step),
        *_origins(step, all_runs),
    ]
    return Group(title("Accounting"), *(Paragraph(text=Text(sentence)) for sentence in sentences))


def _lines(step: Step, all_runs: Sequence[Run]) -> str:
    without = [run for run in all_runs if run.where is None]
    if without and len(without) == len(all_runs):
        return "No launch has a source line."
    share = f"{percent(step.accounting.time_with_line)} of the launches' time has a source line"
    if not without:
        return f"{share}."
    lack = of(without, all_runs)
    return f"{share}; {amount(lack)} without one: {named(lack)}."


def _ops_without_cost(step: Step) -> list[str]:
    account = step.accounting
    if not account.ops_without_cost_count and not account.ops_without_cost:
        # Of a measured step they are what ran.
        return [] if step.time_origin is Origin.MEASURED else ["Every op's kernels are known."]
    ops = count(account.ops_without_cost_count, "op")
    return [f"No kernels are known for {ops}, which the times leave out: {', '.join(account.ops_without_cost)}."]


def _not_known(all_runs: Sequence[Run]) -> list[str]:
    said = []
    for one in missing(all_runs):
        *first, last = one.what
        what = f"{', '.join(first)} and {last}" if first else last
        verb = "is" if one.what == ("bound",) else "are"
        said.append(f"The {what} of {amount(one)} {verb} not known: {named(one)}.")
    return said


def _damage(step: Step) -> list[str]:
    account = step.accounting
    said = []
    if account.lost_launches:
        said.append(f"The profiler lost {count(account.lost_launches, 'launch', 'launches')}.")
    if account.repaired:
        said.append(f"{count(account.repaired, 'damaged event')} mended in reading.")
    return said


def _origins(step: Step, all_runs: Sequence[Run]) -> list[str]:
    """Each group of figures with its origins, by launch."""
    groups = by_launch(step, all_runs)
    said = [f"{what} {counted}" for what, origins in groups.items() if (counted := _counted(origins))]
    return [f"Origins, by launch: {'; '.join(said)}."] if said else []


def by_launch(step: Step, all_runs: Sequence[Run]) -> dict[str, list[Origin | None]]:
    """Groups of figures, each with every launch's origin of them; None: it has no such figure, or an unknown one."""
    launches = [run.launch for run in all_runs]
    times: list[Origin | None] = [launch.time_origin for launch in launches]
    bounds = [bound_origin(launch) for launch in launches]
    both = {"times": times, "bounds": bounds} if step.time_origin is Origin.MEASURED else {"times and bounds": times}
    return {
        **both,
        "bytes and FLOPs": [launch.kernel.bytes_origin for launch in launches],
        "grid and block": [launch.kernel.geometry_origin for launch in launches],
        "registers": [launch.kernel.resources_origin for launch in launches],
        "occupancy": [launch.occupancy_origin for launch in launches],
    }


def _counted(origins: Sequence[Origin | None]) -> str:
    counts = Counter(origin for origin in origins if origin is not None)
    if len(counts) == 1 and counts.total() == len(origins):
        return str(next(iter(counts)))
    none = len(origins) - counts.total()
    parts = [f"{origin} {counts[origin]:,}" for origin in Origin if origin in counts]
    return ", ".join([*parts, f"none {none:,}"] if none and parts else parts)
