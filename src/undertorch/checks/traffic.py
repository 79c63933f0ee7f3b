"""What a launch asks of an SM's parts, and so whether a slow line slows the kernel down."""

from dataclasses import dataclass

from undertorch.checks.told import Told
from undertorch.records import Counts
from undertorch.simt.faults import extents

SCHEDULERS = 4
"""Warp instructions that an SM starts a cycle, since sm_70 (CUDA C++ Programming Guide, "Compute Capability 7.x")."""
SECTORS_A_CYCLE = 2
"""That come from L2 to an SM. An estimate: all SMs of an A100 together get 5120 bytes a clock (NVIDIA, "A100 Tensor
Core GPU Architecture"), which is 47 for each of 108, and a single one is taken to get 64."""
SECTOR = 32
MATTERS = 0.1
"""Of the time of the busiest part from which on a line is told of: less is lost among what runs differ by, and whoever
mends it gains nothing that can be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Of a whole launch."""

    warp_instructions: int
    wavefronts: int
    sectors: int
    dram_cycles: float
    """What each SM's share of the memory's bandwidth takes for the bytes that have to come at least once."""

    @property
    def memory_cycles(self) -> float:
        """Of what lies behind L1."""
        return max(self.sectors / SECTORS_A_CYCLE, self.dram_cycles)

    @property
    def cycles(self) -> float:
        """Of the busiest of instructions, shared memory (a wavefront a cycle) and global memory, on one SM."""
        return max(self.warp_instructions / SCHEDULERS, float(self.wavefronts), self.memory_cycles, 1.0)

    def share_of_time(self, *, warp_instructions: float = 0, wavefronts: float = 0, sectors: float = 0) -> float:
        """What so much takes of the busiest part's time, 0 to 1."""
        behind_l1 = self.memory_cycles * sectors / max(1, self.sectors)
        return max(warp_instructions / SCHEDULERS, wavefronts, behind_l1) / self.cycles


def counts(told: Told) -> Counts:
    """Of one launch."""
    shared = [a for a in told.counters.accesses if a.space == "shared"]
    globally = [a for a in told.counters.accesses if a.space == "global"]
    return Counts(
        warp_instructions=told.counters.warp_instructions,
        thread_instructions=told.counters.thread_instructions,
        wavefronts=sum(a.wavefronts or 0 for a in shared),
        ideal_wavefronts=sum(a.ideal for a in shared),
        sectors=sum(a.sectors or 0 for a in globally),
        ideal_sectors=sum(a.ideal for a in globally),
    )


def traffic(told: Told) -> Traffic:
    """Counted (PTX); of bytes from DRAM the least: no more than the arguments have."""
    counted, gpu = told.counters, told.gpu
    sectors = sum(a.sectors or 0 for a in counted.accesses if a.space == "global")
    least = min(sectors * SECTOR, sum(e.bytes for e in extents(told.given.arguments)))
    a_cycle = gpu.memory_bandwidth / gpu.sms / (gpu.boost_clock_mhz * 1e6)
    return Traffic(
        warp_instructions=counted.warp_instructions,
        wavefronts=sum(a.wavefronts or 0 for a in counted.accesses),
        sectors=sectors,
        dram_cycles=least / a_cycle,
    )
