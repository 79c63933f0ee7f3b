"""Budgets: how much a step may grow before a comparison fails. `step+5%,bytes+200MB,launches+10`."""

import re

from undertorch.records import Origin
from undertorch.records.comparisons import Budget, Change, Comparison, Judged, Metric, Verdict
from undertorch.steps.compare import CannotCompare

TIMES = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
UNITS: dict[Metric, dict[str, float]] = {
    Metric.STEP: TIMES,
    Metric.BUSY: TIMES,
    Metric.BYTES: {**SIZES},
    Metric.MEMORY: {**SIZES},
    Metric.LAUNCHES: {"": 1.0},
}
"""What an amount may be given in, each with how many microseconds, bytes or launches it is."""

FORM = re.compile(r"(?P<metric>[a-z]+)\+(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>%|[a-zA-Zµ]*)")

EXACT = 1e-9
"""Share by which a sum of floats may miss the number that was meant: 105 is not over 100 + 5 %."""


class BadBudget(CannotCompare):
    """A budget that makes no sense, said in one sentence."""


def parse_budgets(text: str) -> tuple[Budget, ...]:
    """The budgets of `--fail-on`, separated by commas. Raises BadBudget."""
    return tuple(_budget(part.strip()) for part in text.split(","))


def _budget(text: str) -> Budget:
    known = ", ".join(Metric)
    form = FORM.fullmatch(text)
    if form is None:
        raise BadBudget(f"--fail-on {text!r}: a budget is a figure and how much it may grow, such as step+5%.")
    if form["metric"] not in list(Metric):
        raise BadBudget(f"--fail-on {text!r}: there is no figure {form['metric']!r}; budgets are for {known}.")
    metric, number, unit = Metric(form["metric"]), float(form["number"]), form["unit"]
    if unit == "%":
        return Budget(text=text, metric=metric, percent=number, amount=None)
    units = UNITS[metric]
    if unit not in units:
        named = ", ".join(f"{metric}+{form['number']}{unit}" for unit in ("%", *list(units)[:4]))
        wrong = f"{unit!r} is no unit of {metric}" if unit else f"{metric} needs a unit"
        raise BadBudget(f"--fail-on {text!r}: {wrong}; write {named}.")
    return Budget(text=text, metric=metric, percent=None, amount=number * units[unit])


def judge(budget: Budget, comparison: Comparison) -> Judged:
    """Holds, overrun, or cannot be judged, with why."""
    figure, change = _figure(budget.metric, comparison)
    why = _unknown(budget.metric, figure, change, comparison)
    if why is not None or change.difference is None or change.before is None:
        verdict = Verdict.UNKNOWN
    else:
        allowed = budget.amount if budget.amount is not None else (budget.percent or 0.0) / 100 * change.before
        slack = EXACT * max(abs(change.before), abs(allowed))
        verdict = Verdict.OVERRUN if change.difference > allowed + slack else Verdict.HOLDS
    return Judged(budget=budget, gpu=comparison.after.gpu, verdict=verdict, figure=figure, change=change, why=why)


def not_paired(budget: Budget, gpu: str, side: str) -> Judged:
    """A GPU that only one file has a step of cannot be judged. `side` is the file that lacks it."""
    return Judged(
        budget=budget,
        gpu=gpu,
        verdict=Verdict.UNKNOWN,
        figure=budget.metric,
        change=None,
        why=f"the file {side} has no step of this GPU",
    )


def _figure(metric: Metric, comparison: Comparison) -> tuple[str, Change]:
    match metric:
        case Metric.STEP if comparison.step_us.difference is not None:
            return "step", comparison.step_us
        case Metric.STEP | Metric.BUSY:
            return "busy", comparison.busy_us
        case Metric.BYTES:
            return "bytes", comparison.min_bytes
        case Metric.MEMORY:
            return "memory", comparison.peak_bytes
        case Metric.LAUNCHES:
            return "launches", comparison.launches


def _unknown(metric: Metric, figure: str, change: Change, comparison: Comparison) -> str | None:
    """The end of a sentence; None where the figure can be judged. What the sums leave out is in a clock's wall time."""
    by_the_clock = figure == "step" and comparison.before.time_origin is comparison.after.time_origin is Origin.MEASURED
    if not (comparison.same_left_out or metric is Metric.MEMORY or by_the_clock):
        sides = (("before", comparison.before), ("after", comparison.after))
        lost = [f"{side.lost_launches} launches were lost {name}" for name, side in sides if side.lost_launches]
        ops = [f"{_ops(side.ops_without_cost)} {name}" for name, side in sides if side.ops_without_cost_count]
        return "; ".join([*lost, *([f"it leaves out {' and '.join(ops)}"] if ops else [])])
    if change.difference is not None:
        return None
    if change.before_missing or change.after_missing:
        counts = f"{change.before_missing} launches before and {change.after_missing} after"
        return f"it is not known of {counts}, and they are not the same"
    missing = [name for name, value in (("before", change.before), ("after", change.after)) if value is None]
    return f"it is not known {' and '.join(missing)}"


def _ops(names: tuple[str, ...]) -> str:
    return f"ops whose kernels are not known ({', '.join(names)})"
