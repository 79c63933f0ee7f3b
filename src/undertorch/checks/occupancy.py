"""Occupancy: registers, shared memory and barriers that keep warps from an SM; spilled registers; the last wave.

Registers are ptxas's to say, so this needs one that compiles for the GPU's compute capability; how many warps that
leaves is gpus/occupancy.py's. More warps do not always help: a kernel may hide what it waits for within each thread.
Only what few good kernels have is told of.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from undertorch.checks.told import Told, own_name
from undertorch.compilers.ptxas import Resources, resources
from undertorch.gpus.occupancy import Occupancy, occupancy
from undertorch.records import Figures, Finding, FindingKind, Gpu, Limiter, Place, Severity, Unit

FEW = 0.125
"""Of an SM's warps below which there are not two for each scheduler, and nothing runs while one waits. Hand-tuned
matrix products and attention run at 0.125 and more."""
CLIFF = 0.25
"""Of an SM's warps up to which a small change that lifts it is told of: from there on most kernels have warps enough
(V. Volkov, "Understanding Latency Hiding on GPUs", 2016)."""
SMALL = 0.1
"""Of registers or shared memory: a change that fits without another algorithm."""
SPILLED = 32
"""Bytes of a thread: ptxas puts a few registers aside outside of loops, where they cost nothing."""
LONG = 1000
"""Instructions of a warp from which on a wave lasts for microseconds, and the last one shows."""
TAIL = 1.25
"""Waves that are run over those that there is work for."""
TENSOR = {"mma", "wmma"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A kernel on a GPU."""

    used: Resources
    threads: int
    shared: int
    """Bytes of a block, static and dynamic."""
    holds: Occupancy

    def on(self, gpu: Gpu, *, registers: int | None = None, shared: int | None = None) -> Occupancy:
        """With other registers or shared memory."""
        return occupancy(
            gpu,
            self.used.registers if registers is None else registers,
            self.shared if shared is None else shared,
            self.threads,
            self.used.barriers,
        )


def check_occupancy(told: Told) -> Iterator[Finding]:
    """Nothing where no ptxas compiles the kernel for the GPU."""
    fit = fit_of(told)
    if fit is None or not fit.holds.blocks_per_sm:
        return
    if fit.used.spilled_bytes > SPILLED:
        yield _spill(told, fit)
    if not any(site.instruction.name in TENSOR for site in told.program.by_number):
        change = smallest_change(told.gpu, fit, told.words.bounds)
        small = change is not None and change.share <= SMALL
        if fit.holds.share < FEW or (fit.holds.share <= CLIFF and small):
            yield _few_warps(told, fit, change)
    waves = _waves(told, fit)
    length = told.counters.warp_instructions / (math.prod(told.grid) * -(-fit.threads // told.gpu.warp_size))
    if waves > 1 and math.ceil(waves) / waves >= TAIL and length >= LONG:
        yield _tail(told, fit, waves)


def skipped(told: Told) -> str | None:
    """Why nothing is said of what a kernel leaves of an SM, where that is so."""
    if fit_of(told) is not None:
        return None
    return (
        f"occupancy, spilled registers and the last wave: there is no ptxas that compiles for {told.gpu.name} (a CUDA "
        "toolkit's on the path, or Triton's)"
    )


def fit_of(told: Told) -> Fit | None:
    """None where ptxas is not there, or does not know the GPU."""
    gpu = told.gpu
    if gpu.compute_capability is None:
        return None
    used = resources(told.program.text, told.program.name, gpu.compute_capability)
    if used is None:
        return None
    threads, shared = math.prod(told.block), used.static_shared_bytes + told.given.dynamic_shared
    holds = occupancy(gpu, used.registers, shared, threads, used.barriers)
    return Fit(used=used, threads=threads, shared=shared, holds=holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The least that lets one more block onto an SM."""

    what: str
    share: float
    """Of the resource."""
    holds: Occupancy


def smallest_change(gpu: Gpu, fit: Fit, bound: str) -> Change | None:
    """Of the resource that limits; None where the block's size is what does. `bound`: as Words has it."""
    if fit.holds.limiter is Limiter.REGISTERS:
        for registers in range(fit.used.registers - 1, 15, -1):
            holds = fit.on(gpu, registers=registers)
            if holds.blocks_per_sm > fit.holds.blocks_per_sm:
                bounds = bound.format(registers=registers, threads=fit.threads, blocks=holds.blocks_per_sm)
                what = (
                    f"{registers} registers a thread instead of {fit.used.registers} ({bounds} makes ptxas keep to "
                    "that; look that it does not spill then), with smaller tiles or fewer values that live at once"
                )
                return Change(what=what, share=1 - registers / fit.used.registers, holds=holds)
    if fit.holds.limiter is Limiter.SHARED:
        unit = gpu.shared_allocation_unit
        for shared in range(fit.shared // unit * unit, -1, -unit):
            holds = fit.on(gpu, shared=shared)
            if holds.blocks_per_sm > fit.holds.blocks_per_sm:
                what = f"{shared:,} bytes of shared memory a block instead of {fit.shared:,}"
                return Change(what=what, share=1 - shared / fit.shared, holds=holds)
    return None


def _few_warps(told: Told, fit: Fit, change: Change | None) -> Finding:
    gpu, holds = told.gpu, fit.holds
    most = gpu.max_warps_per_sm
    blocks = f"{holds.blocks_per_sm} block" + ("" if holds.blocks_per_sm == 1 else "s")
    lifted = "" if change is None else f": {change.holds.warps_per_sm} of {most} warps then"
    other = "let a block have more threads with the same shared memory and registers in all"
    return told.finding(
        FindingKind.OCCUPANCY,
        Severity.WARNING,
        place_of_kernel(told),
        message=f"an SM holds {holds.warps_per_sm} of {most} warps: {_limit(fit)}.",
        evidence=f"on {gpu.name} {blocks} of {fit.threads} threads with {fit.used.registers} registers and "
        f"{fit.shared:,} bytes of shared memory fit on an SM",
        cost=f"{holds.share:.0%} of the warps that could hide each other's waiting",
        remedy=(change.what if change is not None else other) + lifted,
        figures=Figures(unit=Unit.WARPS, taken=holds.warps_per_sm, ideal=most),
    )


def _limit(fit: Fit) -> str:
    match fit.holds.limiter:
        case Limiter.REGISTERS:
            return f"{fit.used.registers} registers a thread leave no room for more"
        case Limiter.SHARED:
            return f"{fit.shared:,} bytes of shared memory a block leave no room for more"
        case Limiter.BARRIERS:
            return f"{fit.used.barriers} barriers a block leave none for more"
        case _:
            return f"it holds no more blocks, and one has {fit.threads} threads only"


def _spill(told: Told, fit: Fit) -> Finding:
    used = fit.used
    most = told.gpu.max_registers_per_thread
    bound = told.program.flow.function.max_threads
    why = (
        f"__launch_bounds__ leaves {used.registers} registers a thread"
        if used.registers < most - 8 and bound
        else f"a thread has {used.registers} registers"
    )
    return told.finding(
        FindingKind.SPILL,
        Severity.WARNING,
        place_of_kernel(told),
        message=f"registers spill: {why}, and values go through local memory, which is global memory behind L1.",
        evidence=f"ptxas for {told.gpu.name}: {used.spill_store_bytes} bytes of a thread are stored and "
        f"{used.spill_load_bytes} loaded again, {used.stack_bytes} bytes of stack",
        cost=f"{used.spilled_bytes * math.prod(told.grid) * fit.threads:,} bytes through local memory, if each spill "
        "runs once a thread; in a loop more",
        remedy="give a thread less to hold (a smaller tile, more threads for the same one), or more registers (fewer "
        "blocks on an SM)",
    )


def _waves(told: Told, fit: Fit) -> float:
    return math.prod(told.grid) / (fit.holds.blocks_per_sm * told.gpu.sms)


def _tail(told: Told, fit: Fit, waves: float) -> Finding:
    blocks, a_wave = math.prod(told.grid), fit.holds.blocks_per_sm * told.gpu.sms
    runs = math.ceil(waves)
    last = blocks - (runs - 1) * a_wave
    return told.finding(
        FindingKind.TAIL_WAVE,
        Severity.WARNING,
        place_of_kernel(told),
        message=f"the last wave is nearly empty: {blocks:,} blocks run as {runs} waves of {a_wave:,}, the last with "
        f"{last:,}.",
        evidence=f"{told.gpu.name} holds {fit.holds.blocks_per_sm} blocks on each of {told.gpu.sms} SMs at once; the "
        "time is that of whole waves where blocks are alike",
        cost=f"{1 - waves / runs:.0%} of the time of {runs} waves",
        remedy=f"launch a multiple of {a_wave:,} blocks, each in a loop over its share of the work; or smaller blocks "
        "of work, so that a wave is shorter",
        figures=Figures(unit=Unit.WAVES, taken=runs, ideal=waves),
    )


def place_of_kernel(told: Told) -> Place:
    """The line with the kernel's name; without its source the first one that it has."""
    name = re.escape(own_name(told.program.name))
    first = next((told.place(site) for site in told.program.by_number), Place(file="PTX", line=1))
    for file, text in told.given.sources.items():
        for found in re.finditer(rf"\b{name}\s*\(", text):
            line = text.count("\n", 0, found.start()) + 1
            if re.search(r"__global__|\bdef\b", text[max(0, found.start() - 200) : found.start()]):
                return Place(file=file, line=line)
    return first
