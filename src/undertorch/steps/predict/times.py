"""The time of one Kernel on a GPU that is not there: the largest of three terms, after the start of the kernel.

- memory: bytes over the bandwidth that copies reach;
- compute: FLOPs over the share of the peak that such kernels reach, or instructions over issue slots;
- latency: the waves of resident blocks, each as long as one block lives: its dependent trips to memory cannot be
  hidden where too few blocks, or too short ones, are there to hide them.
"""

from dataclasses import dataclass
from math import ceil

from undertorch.records import Bound, Gpu, Kernel, Kind, Math
from undertorch.steps.predict import shares

SECTOR = 32
"""Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The terms in microseconds, and what they come to."""

    memory_us: float
    compute_us: float
    latency_us: float
    time_us: float
    """The start of the kernel, the largest term, and what comes after the last block."""
    bound: Bound


def timing(kernel: Kernel, gpu: Gpu, blocks_per_sm: int | None) -> Timing:
    """Predicts one launch. `blocks_per_sm` is what occupancy allows, None where that is unknown."""
    if kernel.kind in (Kind.MEMCPY, Kind.MEMSET):
        return _copy_engine(kernel, gpu)
    memory = _memory_us(kernel, gpu)
    compute = max(_flops_us(kernel, gpu) + _drawing_us(kernel, gpu), _issue_us(kernel, gpu))
    latency = _latency_us(kernel, gpu, blocks_per_sm)
    largest = max(memory, compute, latency)
    if largest <= shares.START_US or (largest == latency and not fills(kernel, gpu, blocks_per_sm)):
        bound = Bound.LATENCY
    else:
        # Blocks that are long in coming back from memory, on a GPU that holds no more of them, wait for memory too.
        bound = Bound.COMPUTE if compute >= max(memory, latency) else Bound.MEMORY
    return Timing(
        memory_us=memory,
        compute_us=compute,
        latency_us=latency,
        time_us=shares.START_US + largest + _tail_us(kernel),
        bound=bound,
    )


def bandwidth(gpu: Gpu) -> float:
    """Bytes a second that a large copy reaches: as measured on this GPU, otherwise the H200's share of the spec."""
    return gpu.achieved_bandwidth or gpu.memory_bandwidth * shares.BANDWIDTH


def _memory_us(kernel: Kernel, gpu: Gpu) -> float:
    moved = _moved(kernel) / (bandwidth(gpu) * shares.bandwidth_share(kernel)) * 1e6
    sectors = (kernel.sector_bytes or 0) / SECTOR / (gpu.sms * shares.SECTORS_A_CLOCK * gpu.boost_clock_mhz)
    return max(moved, sectors)


def _flops_us(kernel: Kernel, gpu: Gpu) -> float:
    """At the peak of its unit; where the GPU has no such unit, at that of plain float32, which then does the work."""
    peak = None if kernel.math is None else gpu.peaks.get(kernel.math, gpu.peaks[Math.FP32])
    done = kernel.done_flops or kernel.flops
    if not done or peak is None:
        return 0.0
    share = shares.peak_share(kernel)
    arithmetic = done / (_reached(kernel, gpu, peak, share) * _filled(kernel, gpu)) * 1e6
    return arithmetic + share.memory * _memory_us(kernel, gpu)


def _reached(kernel: Kernel, gpu: Gpu, peak: float, share: shares.PeakShare) -> float:
    """Operations a second that a full GPU does: a share of its peak, or what a kernel built for older GPUs does in the
    clocks of its SMs.

    So 119 TFLOP/s of Turing's instructions on an H200 are 75 on an A100; and flash attention 2, which does 42 % of an
    H200's peak, does 76 % of an A100's, where its author measured up to 73 % (Dao 2023).
    """
    a_clock = None if kernel.math is None else shares.H200_A_CLOCK.get(kernel.math)
    if not share.older or a_clock is None:
        return peak * share.value
    clock = (gpu.tensor_clock_mhz or gpu.boost_clock_mhz) * 1e6
    return min(share.value * a_clock * gpu.sms * clock, shares.OLDER_AT_MOST * peak)


def _filled(kernel: Kernel, gpu: Gpu) -> float:
    """Share of the SMs that a tiled kernel keeps busy over its waves, one block an SM (tiles fill shared memory)."""
    if kernel.blocks is None or kernel.kind not in (Kind.MATMUL, Kind.ATTENTION):
        return 1.0
    waves = ceil(kernel.blocks / gpu.sms)
    return min(1.0, kernel.blocks / (waves * gpu.sms))


def _issue_us(kernel: Kernel, gpu: Gpu) -> float:
    instructions = shares.instructions_per_thread(kernel)
    if instructions is None or kernel.blocks is None or kernel.threads is None:
        return 0.0
    return kernel.blocks * kernel.threads * instructions / _slots(gpu)


def _drawing_us(kernel: Kernel, gpu: Gpu) -> float:
    """The warps that draw random numbers do the rest of the work, too: it comes on top."""
    return (kernel.random_numbers or 0) * shares.INSTRUCTIONS_PER_NUMBER / (_slots(gpu) * _filled(kernel, gpu))


def _slots(gpu: Gpu) -> float:
    """Instructions of single lanes that the GPU starts in a microsecond."""
    return gpu.sms * shares.ISSUE_SLOTS * gpu.warp_size * gpu.boost_clock_mhz


def _resident(kernel: Kernel, gpu: Gpu, blocks_per_sm: int | None) -> int:
    """Blocks that the GPU holds at once; by threads alone where the occupancy is not known."""
    return gpu.sms * (blocks_per_sm or max(1, gpu.max_threads_per_sm // max(1, kernel.threads or 1)))


def fills(kernel: Kernel, gpu: Gpu, blocks_per_sm: int | None) -> bool:
    """Whether there are as many blocks as the GPU holds."""
    return (kernel.blocks or 0) >= _resident(kernel, gpu, blocks_per_sm)


def _latency_us(kernel: Kernel, gpu: Gpu, blocks_per_sm: int | None) -> float:
    """Waves of resident blocks, each as long as a block lives when the memory keeps up with it."""
    if not kernel.blocks or not kernel.threads:
        return 0.0
    resident = _resident(kernel, gpu, blocks_per_sm)
    life = shares.block_life(kernel)
    threads = kernel.blocks * kernel.threads
    waves = kernel.blocks / resident
    lasts = life.first_us + life.byte_us * _moved(kernel) / threads + life.flop_us * (kernel.flops or 0) / threads
    latency = (ceil(waves) if life.whole else max(1.0, waves)) * lasts
    return latency if life.over_memory_us is None else min(latency, _memory_us(kernel, gpu) + life.over_memory_us)


def _tail_us(kernel: Kernel) -> float:
    """Of a reduction over several blocks an output (grid.y of them): the last block adds up what the others left.

    The block's threads share the partial sums where the block lies along the reduction (one row of threads), only its
    rows do otherwise (Reduce.cuh, global_reduce).
    """
    if (
        not kernel.name.startswith("reduce_kernel")
        or kernel.grid is None
        or kernel.block is None
        or kernel.grid[1] == 1
    ):
        return 0.0
    sharing = kernel.block[1] if kernel.block[1] > 1 else kernel.block[0]
    return shares.REDUCE_TAIL_US + shares.REDUCE_ROUND_US * kernel.grid[1] / sharing


def _moved(kernel: Kernel) -> int:
    return kernel.traffic_bytes or kernel.min_bytes or 0


def _copy_engine(kernel: Kernel, gpu: Gpu) -> Timing:
    """Memsets and copies on the device run at memory speed; to and from the host each byte crosses PCIe once.

    From pageable memory the driver copies through a buffer of its own, at the speed of the CPU and not of PCIe.
    """
    across = kernel.kind is Kind.MEMCPY and "DtoD" not in kernel.name
    rate = _host_rate(kernel, gpu) if across else bandwidth(gpu)
    moved = (kernel.min_bytes_written or 0) if across else (kernel.min_bytes or 0)
    memory = moved / rate * 1e6
    return Timing(
        memory_us=memory,
        compute_us=0.0,
        latency_us=0.0,
        time_us=shares.COPY_START_US + memory,
        bound=Bound.LATENCY if memory <= shares.COPY_START_US else Bound.LINK if kernel.over_link else Bound.MEMORY,
    )


def _host_rate(kernel: Kernel, gpu: Gpu) -> float:
    pcie = (gpu.pcie_bandwidth or shares.PCIE_BANDWIDTH) * shares.PCIE_SHARE
    if "Pageable" not in kernel.name:
        return pcie
    return min(pcie, shares.PAGEABLE_TO_HOST if "DtoH" in kernel.name else shares.PAGEABLE_TO_DEVICE)
