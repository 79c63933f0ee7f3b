"""What the tables leave out, by name and count, and where their figures come from."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from undertorch.records import Origin, Step
from undertorch.reports.terminal.numbers import count, percent, time
from undertorch.reports.terminal.runs import Run, busy
from undertorch.reports.terminal.text import Paragraph, title


def accounting(step: Step, all_runs: Sequence[Run]) -> RenderableType:
    """One sentence each: lines, costs, figures that are not known, what a profiler lost, origins."""
    sentences = [
        _lines(step, all_runs),
        *_ops_without_cost(step),
        *_not_known(all_runs),
        *_damage(step),
        *_origins(all_runs),
    ]
    return Group(title("Accounting"), *(Paragraph(text=Text(sentence)) for sentence in sentences))


def _lines(step: Step, all_runs: Sequence[Run]) -> str:
    without = [run for run in all_runs if run.where is None]
    share = f"{percent(step.accounting.time_with_line)} of the launches' time has a source line"
    if not without:
        return f"{share}."
    names = _names(run.launch.kernel.name for run in without)
    return f"{share}; {count(len(without), 'launch', 'launches')} ({time(busy(without))}) without one: {names}."


def _ops_without_cost(step: Step) -> list[str]:
    account = step.accounting
    if not account.ops_without_cost_count and not account.ops_without_cost:
        return ["Every op's kernels are known."]
    ops = count(account.ops_without_cost_count, "op")
    return [f"No kernels are known for {ops}, which the times leave out: {', '.join(account.ops_without_cost)}."]


def _not_known(all_runs: Sequence[Run]) -> list[str]:
    kernels = {
        "bytes": [run for run in all_runs if run.launch.kernel.min_bytes is None],
        "FLOPs": [run for run in all_runs if run.launch.kernel.flops is None],
        "bound": [run for run in all_runs if run.launch.bound is None],
    }
    return [
        f"The {what} of {count(len(some), 'launch', 'launches')} ({time(busy(some))}) "
        f"{'is' if what == 'bound' else 'are'} not known: {_names(run.launch.kernel.name for run in some)}."
        for what, some in kernels.items()
        if some
    ]


def _damage(step: Step) -> list[str]:
    account = step.accounting
    said = []
    if account.lost_launches:
        said.append(f"The profiler lost {count(account.lost_launches, 'launch', 'launches')}.")
    if account.repaired:
        said.append(f"{count(account.repaired, 'damaged event')} mended in reading.")
    return said


def _origins(all_runs: Sequence[Run]) -> list[str]:
    """Each group of figures with its origins, by launch."""
    launches = [run.launch for run in all_runs]
    groups: dict[str, list[Origin | None]] = {
        "times and bounds": [launch.time_origin for launch in launches],
        "bytes and FLOPs": [launch.kernel.bytes_origin for launch in launches],
        "grid and block": [launch.kernel.geometry_origin for launch in launches],
        "registers": [launch.kernel.resources_origin for launch in launches],
        "occupancy": [launch.occupancy_origin for launch in launches],
    }
    said = [f"{what} {counted}" for what, origins in groups.items() if (counted := _counted(origins))]
    return [f"Origins, by launch: {'; '.join(said)}."] if said else []


def _counted(origins: Sequence[Origin | None]) -> str:
    counts = Counter(origin for origin in origins if origin is not None)
    if len(counts) == 1 and counts.total() == len(origins):
        return str(next(iter(counts)))
    none = len(origins) - counts.total()
    parts = [f"{origin} {counts[origin]:,}" for origin in Origin if origin in counts]
    return ", ".join([*parts, f"none {none:,}"] if none and parts else parts)


def _names(names: Iterable[str]) -> str:
    """Each name once, with how often where that is more than once."""
    return ", ".join(f"{name} ({times}×)" if times > 1 else name for name, times in Counter(names).most_common())
