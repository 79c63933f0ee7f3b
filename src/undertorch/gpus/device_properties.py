"""What CUDA says of a device, from a spec sheet: for where there is none to ask."""

from types import SimpleNamespace

from undertorch.records import Gpu


def device_properties(gpu: Gpu, capability: tuple[int, int]) -> SimpleNamespace:
    """The fields of cudaDeviceProp that torch shows."""
    return SimpleNamespace(
        name=gpu.full_name,
        major=capability[0],
        minor=capability[1],
        total_memory=gpu.memory_bytes,
        multi_processor_count=gpu.sms,
        warp_size=gpu.warp_size,
        max_threads_per_multi_processor=gpu.max_threads_per_sm,
        max_threads_per_block=gpu.max_threads_per_block,
        regs_per_multiprocessor=gpu.registers_per_sm,
        shared_memory_per_block=gpu.shared_per_block,
        shared_memory_per_block_optin=gpu.shared_per_block_optin,
        shared_memory_per_multiprocessor=gpu.shared_per_sm,
        L2_cache_size=gpu.l2_bytes,
        clock_rate=int(gpu.boost_clock_mhz * 1000),
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName=gpu.architecture,
    )
