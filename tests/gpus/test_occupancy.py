"""Occupancy against NVIDIA's own header (recorded, and alive where it is installed), the profiler, AMD's table."""

import gzip
import importlib.util
import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertorch import gpus
from undertorch.gpus.occupancy import occupancy
from undertorch.records import Limiter

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"

spec = importlib.util.spec_from_file_location("golden_occupancy", ROOT / "benchmarks" / "golden_occupancy.py")
oracle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle)

NVIDIA = [gpu for gpu in gpus.all_gpus() if gpu.vendor == "NVIDIA"]
CAPABILITIES = sorted(oracle.DEVICES, key=float)
ORDER = (Limiter.THREADS, Limiter.BLOCKS, Limiter.REGISTERS, Limiter.SHARED, Limiter.BARRIERS)
"""Of the limits in an answer of the header."""
BITS = {1: Limiter.THREADS, 2: Limiter.REGISTERS, 4: Limiter.SHARED, 8: Limiter.BLOCKS, 16: Limiter.BARRIERS}
"""cudaOccLimitingFactor."""

alive = pytest.mark.skipif(
    oracle.header() is None or shutil.which("gcc") is None,
    reason=f"needs {oracle.PACKAGE} (NVIDIA's header) and gcc",
)


def gpu_of(capability):
    return next(gpu for gpu in NVIDIA if gpu.compute_capability == tuple(map(int, capability.split("."))))


@cache
def recorded():
    return json.loads(gzip.decompress((GOLDEN / "occupancy.json.gz").read_bytes()))


def ours(gpu, launch):
    registers, shared, threads, barriers, carveout = launch
    return occupancy(gpu, registers, shared, threads, barriers, None if carveout == -1 else carveout)


def differences(gpu, launches, answers):
    """Launches where blocks, a limit, or what limits differ from the header's answer."""
    for launch, (blocks, bits, *limits) in zip(launches, answers, strict=True):
        found = ours(gpu, launch)
        allowed = {
            limiter: None if limit == oracle.NO_LIMIT else limit for limiter, limit in zip(ORDER, limits, strict=True)
        }
        named = {limiter for bit, limiter in BITS.items() if bits & bit}
        # The header looks at barriers last, and forgets to take back what it named before.
        right = set(found.limiters) == named or (found.limiters == (Limiter.BARRIERS,) and Limiter.BARRIERS in named)
        if found.blocks_per_sm != blocks or found.allowed != allowed or not right or found.limiter not in named:
            yield launch, (blocks, named, allowed), found


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_it_is_what_nvidias_header_answered(capability):
    """Recorded: every register count, odd blocks, sizes of shared memory round every edge, carve-outs, barriers."""
    launches = list(zip(*recorded()["launches"], strict=True))
    answers = list(zip(*recorded()["answers"][capability], strict=True))
    assert len(launches) > 10_000
    assert next(differences(gpu_of(capability), launches, answers), None) is None


@alive
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_it_is_what_nvidias_header_answers(capability):
    launches = list(oracle.anything(3000, seed=int(float(capability) * 10)))
    answers = oracle.ask(oracle.header(), capability, launches)
    assert next(differences(gpu_of(capability), launches, answers), None) is None


@alive
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_header_still_answers_what_was_recorded(capability):
    launches = list(zip(*recorded()["launches"], strict=True))
    assert oracle.ask(oracle.header(), capability, launches) == list(
        zip(*recorded()["answers"][capability], strict=True)
    )


def test_every_nvidia_sheet_was_compared():
    """GPUs of one compute capability have the same limits, so that one of each was enough."""
    rules = ("max_threads_per_block", "max_threads_per_sm", "max_blocks_per_sm", "registers_per_sm", "barriers_per_sm")
    rules += ("registers_per_block", "max_registers_per_thread", "register_allocation_unit", "warp_size")
    rules += ("warp_allocation_granularity", "shared_per_sm", "shared_per_block", "shared_per_block_optin")
    rules += ("shared_reserved_per_block", "shared_allocation_unit", "shared_carveouts")
    for gpu in NVIDIA:
        capability = ".".join(map(str, gpu.compute_capability))
        assert capability in CAPABILITIES
        first = gpu_of(capability)
        assert [getattr(gpu, rule) for rule in rules] == [getattr(first, rule) for rule in rules]


def test_it_is_what_the_profiler_estimated_for_every_launch_of_a_training_step():
    """torch's profiler asks the header too: resident blocks, or what the grid gives an SM if that is less, × threads.

    It does not know that a kernel opted in: with more than 48 KB of shared memory it answers 0.
    """
    trace = json.loads(gzip.decompress((GOLDEN / "h200_gpt2_train.json.gz").read_bytes()))
    launches = [event["args"] for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    launches = [launch for launch in launches if launch["shared memory"] <= 48 * 1024]
    h200 = gpus.find("H200")
    assert len(launches) > 500
    for launch in launches:
        x, y, z = launch["block"]
        resident = occupancy(h200, launch["registers per thread"], launch["shared memory"], x * y * z).blocks_per_sm
        percent = min(resident, launch["blocks per SM"]) * x * y * z / h200.max_threads_per_sm * 100
        assert abs(percent - launch["est. achieved occupancy %"]) <= 1, launch


def test_a_block_of_192_threads_with_32_registers_on_an_h200():
    """6 warps; 64 warps hold 10 blocks; a warp takes 1024 registers, so 64 warps fit too: 60 of 64 warps."""
    found = occupancy(gpus.find("H200"), 32, 0, 192)
    assert (found.blocks_per_sm, found.warps_per_sm, found.share) == (10, 60, 0.9375)
    assert found.limiters == (Limiter.THREADS, Limiter.REGISTERS)
    assert found.registers_per_block == 6 * 1024
    assert found.shared_per_block == 1024  # what the driver takes


def test_a_full_sm_is_limited_by_its_threads():
    assert occupancy(gpus.find("H200"), 32, 0, 1024).limiter is Limiter.THREADS


def test_small_blocks_run_out_of_blocks_first():
    """32 blocks of one warp fill half of an H200's 64 warps."""
    found = occupancy(gpus.find("H200"), 16, 0, 32)
    assert (found.blocks_per_sm, found.share, found.limiters) == (32, 0.5, (Limiter.BLOCKS,))


def test_barriers_limit_from_hopper_on():
    """64 barriers of an SM for blocks of 5: 12 blocks. Before, they were not counted."""
    found = occupancy(gpus.find("H100-SXM"), 16, 0, 64, barriers=5)
    assert (found.blocks_per_sm, found.limiter) == (12, Limiter.BARRIERS)
    assert occupancy(gpus.find("A100-40GB"), 16, 0, 64, barriers=5).allowed[Limiter.BARRIERS] is None


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "limiter", "said"),
    [
        (32, 0, 1025, Limiter.THREADS, "A block of 1025 threads is more than the 1024 that H200 allows."),
        (255, 0, 1024, Limiter.REGISTERS, "1024 threads of 255 registers need more than the 65536 registers that H200"),
        (256, 0, 32, Limiter.REGISTERS, "256 registers a thread are more than the 255 that there can be."),
        (32, 232_449, 32, Limiter.SHARED, "232449 bytes of shared memory are more than the 232448 that H200"),
    ],
)
def test_what_cannot_be_launched_is_an_answer_with_a_reason(registers, shared, threads, limiter, said):
    found = occupancy(gpus.find("H200"), registers, shared, threads)
    assert (found.blocks_per_sm, found.warps_per_sm, found.share, found.limiter) == (0, 0, 0.0, limiter)
    assert found.reason is not None
    assert found.reason.startswith(said)


def test_too_many_barriers_cannot_be_launched():
    found = occupancy(gpus.find("RTX5090"), 32, 0, 64, barriers=25)
    assert (found.blocks_per_sm, found.limiter) == (0, Limiter.BARRIERS)
    assert found.reason == "25 barriers are more than the 24 of an SM of RTX5090."


def test_what_can_be_launched_has_no_reason():
    assert occupancy(gpus.find("H200"), 255, 232_448, 256).reason is None


def test_the_launch_check_counts_registers_as_if_all_sub_partitions_were_as_full_as_the_fullest():
    """Shows only where a block gets fewer registers than an SM has: 5 warps of 5120 count as 8, 40960 of 32768."""
    gpu = replace(gpus.find("H200"), registers_per_block=32_768)
    assert occupancy(gpu, 160, 0, 4 * 32).blocks_per_sm == 3
    assert (occupancy(gpu, 160, 0, 5 * 32).blocks_per_sm, occupancy(gpu, 160, 0, 5 * 32).limiter) == (0, "registers")


def test_a_block_gets_no_more_shared_memory_than_it_can_opt_into_though_the_sm_has_more():
    gpu = replace(gpus.find("H200"), shared_per_block_optin=99 * 1024)
    assert occupancy(gpu, 32, 99 * 1024, 128).blocks_per_sm == 2
    assert occupancy(gpu, 32, 99 * 1024 + 1, 128).blocks_per_sm == 0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"registers": -1}, "registers is -1"),
        ({"shared_bytes": -1}, "shared_bytes is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": -32}, "threads is -32"),
        ({"barriers": -1}, "barriers is -1"),
        ({"carveout": 101}, "carveout is 101"),
        ({"carveout": -1}, "carveout is -1"),
    ],
)
def test_what_is_no_launch_is_refused(values, said):
    with pytest.raises(ValueError, match=said):
        occupancy(gpus.find("H200"), **{"registers": 32, "shared_bytes": 0, "threads": 32, **values})


@pytest.mark.parametrize("name", ["MI250X", "MI300X"])
def test_amds_waves_are_those_of_its_register_table(name):
    """AMD lab notes, Register pressure in AMD CDNA2 GPUs: registers a lane up to which a SIMD holds so many waves."""
    waves_up_to = {64: 8, 72: 7, 80: 6, 96: 5, 128: 4, 168: 3, 256: 2, 512: 1}
    gpu = gpus.find(name)
    for registers in range(1, 513):
        waves = next(waves for most, waves in waves_up_to.items() if registers <= most)
        assert occupancy(gpu, registers, 0, 64).warps_per_sm == 4 * waves, registers


def test_amds_workgroups_take_one_of_16_barriers_unless_they_are_one_wave():
    """LLVM, getMaxWorkGroupsPerCU: min(waves / waves of a group, 16), and all 32 waves for groups of one."""
    gpu = gpus.find("MI300X")
    assert occupancy(gpu, 32, 0, 64).blocks_per_sm == 32
    assert occupancy(gpu, 32, 0, 65).blocks_per_sm == 16
    assert occupancy(gpu, 32, 0, 1024).blocks_per_sm == 2


def test_amds_local_memory_is_given_out_in_512_bytes():
    gpu = gpus.find("MI250X")
    assert occupancy(gpu, 32, 4096, 64).blocks_per_sm == 16
    assert occupancy(gpu, 32, 4097, 64).blocks_per_sm == 14  # 65536 // 4608
    assert occupancy(gpu, 32, 65_537, 64).limiter is Limiter.SHARED


kernels = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from(gpus.all_gpus()),
        "registers": st.integers(0, 255),
        "shared_bytes": st.integers(0, 240_000),
        "threads": st.integers(1, 1024),
        "barriers": st.integers(0, 16),
        "carveout": st.none() | st.integers(0, 100),
    }
)


@given(kernel=kernels)
@settings(max_examples=300)
def test_an_sm_is_never_overfull(kernel):
    gpu, found = kernel["gpu"], occupancy(**kernel)
    blocks = found.blocks_per_sm
    assert found.warps_per_sm == blocks * -(-kernel["threads"] // gpu.warp_size) <= gpu.max_warps_per_sm
    assert blocks <= gpu.max_blocks_per_sm
    assert blocks * found.registers_per_block <= gpu.registers_per_sm
    assert blocks * found.shared_per_block <= gpu.shared_per_sm
    assert 0 <= found.share <= 1
    assert found.limiter in found.limiters
    assert (found.reason is None) == (blocks > 0)


@given(
    kernel=kernels, what=st.sampled_from(("registers", "shared_bytes", "threads", "barriers")), more=st.integers(1, 99)
)
@settings(max_examples=500)
def test_a_hungrier_kernel_never_has_more_blocks(kernel, what, more):
    """With the driver's choice of the carve-out: a preference may be passed over for a block that does not fit it."""
    kernel = {**kernel, "carveout": None}
    assert occupancy(**{**kernel, what: kernel[what] + more}).blocks_per_sm <= occupancy(**kernel).blocks_per_sm


@given(kernel=kernels)
@settings(max_examples=300)
def test_no_carve_out_beats_the_drivers_choice(kernel):
    assert occupancy(**kernel).blocks_per_sm <= occupancy(**{**kernel, "carveout": None}).blocks_per_sm
