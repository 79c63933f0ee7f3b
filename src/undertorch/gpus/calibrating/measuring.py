"""From probes to ceilings: each is timed, the best variant counts, and what fails is listed by name."""

import datetime
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median, quantiles

from undertorch.gpus.calibrating.backends import Backend, Facts, ProbeFailed
from undertorch.gpus.calibrating.probes import Probe, ProductRun, plan
from undertorch.gpus.catalogue import UnknownGpu, find
from undertorch.records.calibrations import Calibration, Ceiling

MOST_SECONDS = 110.0
"""After so long nothing new is begun: the whole is promised in two minutes, and a probe takes seconds at most."""

SLOW_PRODUCT = 0.1
"""Seconds. Of products that take longer, the next size (eight times the work) is not tried: it would fill no more."""


def calibrate(
    backend: Backend,
    progress: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Calibration:
    """Measures every ceiling of the plan that can be measured. Raises NoGpu."""
    begun = clock()
    facts = backend.facts()
    ceilings: list[Ceiling] = []
    failed: dict[str, str] = {}
    for name, probes in groupby(plan(facts), key=lambda probe: probe.ceiling):
        if progress is not None:
            progress(name)
        found: list[Ceiling] = []
        slow = False
        for probe in probes:
            what = f"{name}, {probe.variant}"
            if clock() - begun > MOST_SECONDS:
                failed[what] = f"{MOST_SECONDS:.0f} seconds were over"
                continue
            if slow:
                continue
            try:
                seconds = backend.seconds(probe)
                found.append(ceiling(probe, seconds))
            except ProbeFailed as error:
                failed[what] = str(error)
                continue
            slow = isinstance(probe.run, ProductRun) and median(seconds) > SLOW_PRODUCT
        if found:
            sign = 1 if found[0].unit.more_is_better else -1
            ceilings.append(max(found, key=lambda one: sign * one.value))
    return Calibration(
        gpu=_sheet(facts),
        gpu_name=facts.gpu_name,
        driver=facts.driver,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions=facts.versions,
        ceilings=tuple(ceilings),
        failed=failed,
        seconds=clock() - begun,
    )


def ceiling(probe: Probe, seconds: Sequence[float]) -> Ceiling:
    """What the runs of a probe tell. Raises ProbeFailed where one took no time: the clock was too coarse for it."""
    if min(seconds) <= 0:
        raise ProbeFailed("a run took no time that could be measured")
    middle = median(seconds)
    tenths = quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else [middle]
    return Ceiling(
        name=probe.ceiling,
        value=probe.figure(middle),
        unit=probe.unit,
        best=probe.figure(min(seconds)),
        spread=(tenths[-1] - tenths[0]) / middle,
        samples=len(seconds),
        variant=probe.variant,
    )


def _sheet(facts: Facts) -> str | None:
    try:
        return find(facts.gpu_name).name
    except UnknownGpu:
        return None
