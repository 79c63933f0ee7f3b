"""The sums of the step: launches, FLOPs, least bytes, model FLOP utilisation."""

from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType

from undertorch.records import Gpu, Kind, Math, Phase, Step
from undertorch.reports.terminal.numbers import UNKNOWN, count, flops, percent, size, time
from undertorch.reports.terminal.runs import Run, by_kernel
from undertorch.reports.terminal.text import fact, title

MODEL_KINDS = frozenset({Kind.MATMUL, Kind.ATTENTION, Kind.CONVOLUTION})
"""Kernels whose FLOPs are the model's: what the utilisation counts (Chowdhery et al. 2022, PaLM, appendix B)."""


def totals(step: Step, gpu: Gpu | None, all_runs: Sequence[Run]) -> RenderableType:
    """Sums of what is known; how many launches they leave out is said beside them."""
    kernels = [run.launch.kernel for run in all_runs]
    return Group(
        title("Totals"),
        fact("launches", f"{count(len(kernels))}, of {count(len(by_kernel(all_runs)), 'different kernel')}"),
        # Copies and memsets do none, which says nothing of the others.
        fact("FLOPs", _sum([kernel.flops for kernel in kernels], flops, zero_tells=False)),
        fact("least bytes", _sum([kernel.min_bytes for kernel in kernels], size)),
        fact("utilisation", utilisation(step, gpu)),
    )


def _sum(values: Sequence[int | None], human: Callable[[float | None], str], zero_tells: bool = True) -> str:
    known = [value for value in values if value is not None]
    left_out = len(values) - len(known)
    missing = f", without {count(left_out, 'launch', 'launches')} of which it is not known" if left_out else ""
    tells = bool(known) and (zero_tells or not left_out or any(known))
    return human(sum(known)) + missing if tells else UNKNOWN


def utilisation(step: Step, gpu: Gpu | None) -> str:
    """Model FLOP utilisation: FLOPs of matmuls, attention and convolutions without recomputation, over what the GPUs
    could do in the time of the step at the peak of the unit that does most of them. Unknown FLOPs make it too small.
    """
    model = [
        launch
        for launch in step.launches
        if launch.kernel.kind in MODEL_KINDS and launch.phase is not Phase.RECOMPUTE and launch.kernel.flops is not None
    ]
    by_unit: Counter[Math] = Counter()
    for launch in model:
        if launch.kernel.math is not None:
            by_unit[launch.kernel.math] += launch.kernel.flops or 0
    if gpu is None or not step.step_us or not by_unit:
        return UNKNOWN
    (unit, _), *_ = by_unit.most_common(1)
    peak = gpu.peaks.get(unit)
    if peak is None:
        return UNKNOWN
    done = sum(launch.kernel.flops or 0 for launch in model)
    devices = len({launch.device for launch in step.launches})
    share = done / (peak * devices * step.step_us * 1e-6)
    return (
        f"{percent(share)} (model FLOP utilisation: {flops(done)} of matmuls, attention and convolutions "
        f"in {time(step.step_us)}; peak {flops(peak)}/s, {unit})"
    )
