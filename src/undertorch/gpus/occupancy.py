"""Occupancy: how many blocks of a kernel an SM holds at once, and which resource decides that.

NVIDIA: the rules of NVIDIA's header cuda_occupancy.h (CUDA 12.9), on the limits of the GPU's sheet. The tests hold them
against that header.

AMD (CDNA): the same rules with other units, as LLVM's AMDGPU backend has them (GCNSubtarget, IsaInfo): an SM is a
compute unit, its 4 SIMDs the sub-partitions, with 8 waves each, and 512 vector registers a lane shared out by eights; a
workgroup of more than one wave takes one of 16 barriers. Scalar registers are not counted: above 100 of them a wave is
lost. Nobody compared this with an AMD GPU for undertorch.
"""

from dataclasses import dataclass
from math import ceil

from undertorch.records import Gpu, Limiter


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What an SM holds of one kernel."""

    blocks_per_sm: int
    """Resident blocks; 0: the kernel cannot be launched on this GPU."""
    warps_per_sm: int
    """Resident warps."""
    share: float
    """Resident warps over the most that an SM can hold, 0 to 1."""
    limiter: Limiter
    """The resource that runs out first; of several, the first in the order of `Limiter`."""
    allowed: dict[Limiter, int | None]
    """Blocks that each resource alone would allow; None: it sets no limit."""
    registers_per_block: int
    """Allocated, with rounding."""
    shared_per_block: int
    """Bytes allocated, with rounding and what the driver takes."""
    reason: str | None
    """Why it cannot be launched, one sentence; None where it can."""

    @property
    def limiters(self) -> tuple[Limiter, ...]:
        """Every resource that allows no more than `blocks_per_sm`."""
        return tuple(limiter for limiter, blocks in self.allowed.items() if blocks == self.blocks_per_sm)


def occupancy(
    gpu: Gpu,
    registers: int,
    shared_bytes: int,
    threads: int,
    barriers: int = 1,
    carveout: int | None = None,
) -> Occupancy:
    """The theoretical occupancy of a kernel.

    `registers` per thread; `shared_bytes` and `threads` per block, shared memory static and dynamic together;
    `barriers` as ptxas counts them. Above `gpu.shared_per_block` bytes the kernel is taken to have opted in, as it has
    to. `carveout` is the share of an SM's L1 that the program prefers as shared memory, in percent; None leaves it to
    the driver, which takes the most. Raises ValueError for what is no launch: negative, or no threads.
    """
    _check(registers, shared_bytes, threads, barriers, carveout)
    warps = ceil(threads / gpu.warp_size)
    shared = _up(shared_bytes + gpu.shared_reserved_per_block, gpu.shared_allocation_unit)
    a_warp = _up(registers * gpu.warp_size, gpu.register_allocation_unit)
    allowed: dict[Limiter, int | None] = {
        Limiter.THREADS: 0 if threads > gpu.max_threads_per_block else gpu.max_warps_per_sm // warps,
        Limiter.BLOCKS: gpu.max_blocks_per_sm,
        Limiter.REGISTERS: _by_registers(gpu, registers, a_warp, warps),
        Limiter.SHARED: _by_shared(gpu, shared, carveout),
        Limiter.BARRIERS: _by_barriers(gpu, warps, barriers),
    }
    blocks = min(limit for limit in allowed.values() if limit is not None)
    limiter = next(limiter for limiter, limit in allowed.items() if limit == blocks)
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        share=blocks * warps / gpu.max_warps_per_sm,
        limiter=limiter,
        allowed=allowed,
        registers_per_block=a_warp * warps,
        shared_per_block=shared,
        reason=None if blocks else _reason(gpu, limiter, registers, shared_bytes, threads, barriers),
    )


def _by_registers(gpu: Gpu, registers: int, a_warp: int, warps: int) -> int | None:
    """Registers are given out in each sub-partition by itself, so what is left in one cannot help another.

    The launch check counts as though every sub-partition got as many warps as the fullest, "for historical reasons".
    """
    partitions = gpu.warp_allocation_granularity
    if registers > gpu.max_registers_per_thread or a_warp * _up(warps, partitions) > gpu.registers_per_block:
        return 0
    if a_warp == 0:
        return None
    return gpu.registers_per_sm // partitions // a_warp * partitions // warps


def _by_shared(gpu: Gpu, shared: int, carveout: int | None) -> int | None:
    if shared > gpu.shared_per_block_optin + gpu.shared_reserved_per_block:
        return 0
    if shared == 0:
        return None
    preferred = gpu.shared_per_sm if carveout is None else _carved(gpu, carveout * gpu.shared_per_sm // 100)
    # A preference too small for one block is passed over: the SM is set to the least size that holds one.
    return (preferred if preferred >= shared else _carved(gpu, shared)) // shared


def _carved(gpu: Gpu, size: int) -> int:
    """The least size of an SM's shared memory that holds `size` bytes."""
    return next((carved for carved in gpu.shared_carveouts if carved >= size), gpu.shared_per_sm)


def _by_barriers(gpu: Gpu, warps: int, barriers: int) -> int | None:
    """NVIDIA counts them since compute capability 9.0. On AMD a block has one, and none where it is a single wave."""
    if gpu.vendor == "AMD":
        barriers = 1 if warps > 1 else 0
    return None if gpu.barriers_per_sm is None or barriers == 0 else gpu.barriers_per_sm // barriers


def _check(registers: int, shared_bytes: int, threads: int, barriers: int, carveout: int | None) -> None:
    for name, value in (("registers", registers), ("shared_bytes", shared_bytes), ("barriers", barriers)):
        if value < 0:
            raise ValueError(f"{name} is {value}; a kernel has 0 or more")
    if threads < 1:
        raise ValueError(f"threads is {threads}; a block has at least 1")
    if carveout is not None and not 0 <= carveout <= 100:
        raise ValueError(f"carveout is {carveout}; expected a percentage, 0 to 100")


def _reason(gpu: Gpu, limiter: Limiter, registers: int, shared_bytes: int, threads: int, barriers: int) -> str:
    match limiter:
        case Limiter.THREADS:
            return f"A block of {threads} threads is more than the {gpu.max_threads_per_block} that {gpu.name} allows."
        case Limiter.REGISTERS if registers > gpu.max_registers_per_thread:
            return f"{registers} registers a thread are more than the {gpu.max_registers_per_thread} that there can be."
        case Limiter.REGISTERS:
            return (
                f"{threads} threads of {registers} registers need more than the {gpu.registers_per_block} "
                f"registers that {gpu.name} gives a block."
            )
        case Limiter.SHARED:
            return (
                f"{shared_bytes} bytes of shared memory are more than the {gpu.shared_per_block_optin} "
                f"that {gpu.name} gives a block."
            )
        case _:
            return f"{barriers} barriers are more than the {gpu.barriers_per_sm} of an SM of {gpu.name}."


def _up(size: int, unit: int) -> int:
    """Rounded up to a multiple of the unit."""
    return -(-size // unit) * unit
