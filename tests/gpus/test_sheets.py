"""The figures of the sheets, held against each other and against what NVIDIA and AMD publish about their units."""

import gzip
import json
from dataclasses import fields
from pathlib import Path

import pytest

from undertorch import gpus
from undertorch.gpus.sheet import GROUPS, IDENTITY
from undertorch.records import Gpu, Math

GOLDEN = Path(__file__).parents[1] / "golden"
ALL = [pytest.param(gpu, id=gpu.name) for gpu in gpus.all_gpus()]
GEFORCE = ("RTX3090", "RTX4090", "RTX5090")

TENSOR_FP16_A_CLOCK = {
    # Operations of an SM in a clock, two to a multiply-add, without sparsity, float32 accumulation:
    # V100 whitepaper: 8 tensor cores of 64 FMA. Turing: the same. A100: 4 of 256. GA10x, AD10x: 4 of 128.
    # H100: 4 of 512. B200 has twice that. GeForce accumulates in float32 at half rate, and so does the L40 by its
    # datasheet (181 TFLOP/s, where the L40S has 362). CDNA whitepapers: 1024, 2048.
    "V100-SXM2-16GB": 1024,
    "V100-SXM2-32GB": 1024,
    "T4": 1024,
    "A100-40GB": 2048,
    "A100-80GB": 2048,
    "A10": 1024,
    "A6000": 1024,
    "L4": 1024,
    "L40": 512,
    "L40S": 1024,
    "RTX3090": 512,
    "RTX4090": 512,
    "RTX5090": 512,
    "H100-SXM": 4096,
    "H100-PCIe": 4096,
    "H200": 4096,
    "GH200": 4096,
    "B200": 8192,
    "MI250X": 1024,
    "MI300X": 2048,
}


def a_clock(gpu: Gpu, math: Math) -> float:
    """Operations of an SM in one clock."""
    quoted_at_boost = math is Math.TENSOR_FP64 or not math.startswith("tensor") or gpu.tensor_clock_mhz is None
    clock = gpu.boost_clock_mhz if quoted_at_boost else gpu.tensor_clock_mhz
    return gpu.peaks[math] / (gpu.sms * clock * 1e6)


def test_the_sheets_cover_every_field_of_the_record_once():
    named = [*IDENTITY, *(name for group, names in GROUPS.items() if group != "peaks" for name in names)]
    assert sorted(named) == sorted({field.name for field in fields(Gpu)} - {"peaks", "sources"})


@pytest.mark.parametrize("gpu", ALL)
def test_every_figure_has_a_source(gpu):
    figures = {name for names in GROUPS.values() for name in names if getattr(gpu, name, None) not in (None, ())}
    figures = figures | {f"peaks.{math}" for math in gpu.peaks} | set(IDENTITY)
    assert figures <= gpu.sources.keys()
    assert not [name for name in figures if len(gpu.sources[name]) < 10 or "not given" in gpu.sources[name]]


@pytest.mark.parametrize("gpu", ALL)
def test_the_fp32_peak_is_two_operations_a_core_and_clock(gpu):
    """A multiply-add is two. AMD quotes the MI300X with packed instructions, which do two multiply-adds."""
    packed = 2 if gpu.name == "MI300X" else 1
    assert gpu.peaks[Math.FP32] == pytest.approx(2 * packed * gpu.cuda_cores * gpu.boost_clock_mhz * 1e6, rel=0.01)


@pytest.mark.parametrize("gpu", ALL)
def test_every_peak_is_a_power_of_two_of_operations_an_sm_and_clock(gpu):
    """Units come in powers of two, and within a GPU the rates of dtypes differ by factors of two."""
    for math in gpu.peaks:
        rate = a_clock(gpu, math)
        nearest = 2 ** max(range(20), key=lambda n: -abs(rate - 2**n))
        assert rate == pytest.approx(nearest, rel=0.02), math


@pytest.mark.parametrize("gpu", ALL)
def test_the_half_precision_tensor_peak_is_dense_and_accumulates_in_float32(gpu):
    assert a_clock(gpu, Math.TENSOR_FP16) == pytest.approx(TENSOR_FP16_A_CLOCK[gpu.name], rel=0.02)


@pytest.mark.parametrize("gpu", ALL)
def test_tensor_peaks_of_dtypes_stand_in_the_ratios_of_their_widths(gpu):
    """tf32 half of 16 bits, bf16 as fp16, 8 bits twice that, 4 bits four times (fp4 on GeForce: another twice)."""
    half = gpu.peaks[Math.TENSOR_FP16]
    # On GeForce, int8 has no float32 to accumulate in and fp4 keeps its full rate, so neither is halved.
    whole = 2 if gpu.name in GEFORCE else 1
    ratios = {
        Math.TENSOR_TF32: 0.5,
        Math.TENSOR_BF16: 1,
        Math.TENSOR_FP8: 2,
        Math.TENSOR_INT8: 1 if gpu.name == "MI250X" else 2 * whole,
        Math.TENSOR_FP4: 4 * whole,
    }
    for math in gpu.peaks.keys() & ratios.keys():
        assert gpu.peaks[math] == pytest.approx(ratios[math] * half, rel=0.02), math


@pytest.mark.parametrize("gpu", [gpu for gpu in ALL if gpu.values[0].vendor == "NVIDIA"])
def test_what_an_architecture_lacks_has_no_peak(gpu):
    """bf16 and tf32 came with Ampere (8.0), fp8 with Ada (8.9), fp4 with Blackwell (10.0)."""
    since = {Math.TENSOR_BF16: (8, 0), Math.TENSOR_TF32: (8, 0), Math.TENSOR_FP8: (8, 9), Math.TENSOR_FP4: (10, 0)}
    for math, capability in since.items():
        assert (math in gpu.peaks) == (gpu.compute_capability >= capability), math


@pytest.mark.parametrize("gpu", ALL)
def test_the_bandwidth_is_what_the_bus_moves_on_both_edges_of_the_clock(gpu):
    """Vendors round: the H200's 4.8 TB/s are 2.4 % under its bus."""
    assert gpu.memory_bandwidth == pytest.approx(gpu.memory_bus_bits / 8 * 2 * gpu.memory_clock_mhz * 1e6, rel=0.03)


@pytest.mark.parametrize("gpu", ALL)
def test_nearer_memory_is_faster(gpu):
    distances = [gpu.memory_bandwidth, gpu.l2_bandwidth, gpu.shared_bandwidth]
    known = [rate for rate in distances if rate is not None]
    assert known == sorted(known)


@pytest.mark.parametrize("gpu", ALL)
def test_memory_is_marketed_size_or_a_little_less(gpu):
    marketed = {"A100-40GB": 40, "A100-80GB": 80, "V100-SXM2-16GB": 16, "V100-SXM2-32GB": 32, "T4": 16, "A10": 24}
    marketed |= {"L4": 24, "L40S": 48, "RTX3090": 24, "RTX4090": 24, "RTX5090": 32, "H100-SXM": 80, "H100-PCIe": 80}
    marketed |= {"A6000": 48, "L40": 48, "GH200": 96, "H200": 141, "B200": 180, "MI250X": 64, "MI300X": 192}
    # ECC takes a 16th of GDDR6; HBM's 141 and 180 are counted in powers of 1000 at best.
    assert 0.92 <= gpu.memory_bytes / (marketed[gpu.name] * 2**30) <= 1


def test_the_h200_is_as_its_driver_describes_it():
    trace = json.loads(gzip.decompress((GOLDEN / "h200_gpt2_train.json.gz").read_bytes()))
    said, gpu = trace["deviceProperties"][0], gpus.find("H200")
    assert gpu.verified
    assert (gpu.full_name, gpu.memory_bytes, gpu.sms) == (said["name"], said["totalGlobalMem"], said["numSms"])
    assert gpu.compute_capability == (said["computeMajor"], said["computeMinor"])
    assert gpu.warp_size == said["warpSize"]
    assert gpu.max_threads_per_block == said["maxThreadsPerBlock"]
    assert gpu.max_threads_per_sm == said["maxThreadsPerMultiprocessor"]
    assert gpu.registers_per_block == said["regsPerBlock"]
    assert gpu.registers_per_sm == said["regsPerMultiprocessor"]
    assert gpu.shared_per_block == said["sharedMemPerBlock"]
    assert gpu.shared_per_block_optin == said["sharedMemPerBlockOptin"]
    assert gpu.shared_per_sm == said["sharedMemPerMultiprocessor"]


def test_only_the_h200_is_verified():
    """It is the one GPU that this project has measured times on (tests/golden/README.md)."""
    assert [gpu.name for gpu in gpus.all_gpus() if gpu.verified] == ["H200"]


def test_an_a100s_cores_are_those_of_its_datasheet():
    assert gpus.find("A100-80GB").cuda_cores == 6912
    assert gpus.find("H100-SXM").cuda_cores == 16896
    assert gpus.find("RTX4090").cuda_cores == 16384
    assert gpus.find("A6000").cuda_cores == 10752
    assert gpus.find("L40").cuda_cores == gpus.find("L40S").cuda_cores == 18176


@pytest.mark.parametrize(
    ("name", "fp32", "half", "bandwidth"),
    [("A6000", 38.7, 309.7 / 2, 768e9), ("L40", 90.5, 181.05, 864e9), ("GH200", 67, 1979 / 2, 4e12)],
)
def test_peaks_and_bandwidth_are_those_of_the_datasheets_without_sparsity(name, fp32, half, bandwidth):
    """NVIDIA's datasheets of the RTX A6000 (tensor rate with sparsity), the L40, and the GH200 with HBM3 (bf16 with
    sparsity), in TFLOP/s."""
    gpu = gpus.find(name)
    assert gpu.peaks[Math.FP32] == pytest.approx(fp32 * 1e12, rel=0.002)
    assert gpu.peaks[Math.TENSOR_BF16] == pytest.approx(half * 1e12, rel=0.002)
    assert gpu.memory_bandwidth == bandwidth


def test_a_gh200_is_an_h200s_chip_beside_its_cpu():
    """The limits of an SM are the chip's; CPU and GPU are joined by 900 GB/s in both directions together."""
    gh200, h200 = gpus.find("GH200"), gpus.find("H200")
    for name in (*GROUPS["limits"], *GROUPS["shared"], "peaks", "sms"):
        assert getattr(gh200, name) == getattr(h200, name)
    assert gh200.pcie_bandwidth == 900e9 / 2


def test_turings_shared_memory_is_half_as_wide_as_its_banks():
    """GA102 whitepaper: 128 bytes a clock and SM, Turing's had 64: 40 SMs × 64 bytes × 1.59 GHz = 4.07 TB/s."""
    assert gpus.find("T4").shared_bandwidth == pytest.approx(40 * 64 * 1.59e9)
    assert gpus.find("H200").shared_bandwidth == pytest.approx(132 * 128 * 1.98e9)
