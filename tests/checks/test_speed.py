"""Findings about speed: what is slow by a count made by hand, what is not told of, and what is said to mend it."""

import numpy as np
import pytest

import undertorch
from undertorch.checks import banks, coalescing
from undertorch.checks.occupancy import Fit, smallest_change
from undertorch.checks.regions import meetings
from undertorch.checks.requests import stride_of
from undertorch.compilers.nvrtc import nvrtc_version
from undertorch.compilers.ptxas import Resources
from undertorch.gpus import find
from undertorch.gpus.occupancy import occupancy
from undertorch.records import FindingKind, Severity, Unit

needs_nvrtc = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")
LANES = range(32)


def found(source, grid, block, *arguments, **options):
    """What is found in a file's only kernel."""
    file = undertorch.cuda(source)
    return undertorch.check(file[file.kernels[0]], grid, block, *arguments, **options).findings


@pytest.mark.parametrize(
    ("offsets", "width", "wavefronts", "ideal"),
    [
        ([4 * n for n in LANES], 4, 1, 1),
        ([128 * n for n in LANES], 4, 32, 1),
        ([132 * n for n in LANES], 4, 1, 1),
        ([4 * (n // 2) for n in LANES], 2, 1, 1),
        ([0] * 32, 16, 2, 2),
        ([16 * n for n in LANES], 16, 4, 4),
        ([128 * n for n in LANES], 16, 32, 4),
        ([8 * (n // 2) for n in LANES], 8, 1, 1),
        ([8 * (n % 4) for n in LANES], 8, 2, 2),
        ([None] * 31 + [5], 1, 1, 1),
        ([None] * 32, 4, 0, 0),
    ],
)
def test_wavefronts_by_hand(offsets, width, wavefronts, ideal):
    assert (banks.wavefronts(offsets, width), banks.ideal(offsets, width)) == (wavefronts, ideal)


def test_sectors_by_hand():
    """32 floats are 4 sectors; begun at byte 4 they touch 5; 32 rows are 32; what all read is one, and ideal."""
    for start, step, taken, ideal in ((0, 4, 4, 4), (4, 4, 5, 4), (0, 512, 32, 4), (64, 0, 1, 1)):
        lanes = [start + step * n for n in LANES]
        assert (coalescing.sectors(lanes, 4), coalescing.ideal(lanes, 4)) == (taken, ideal)


def test_strides():
    assert stride_of([12 * n for n in LANES]) == 12
    assert stride_of([None, 8, None, 16, *[None] * 28]) == 4
    assert stride_of([0, 4, 12, *[None] * 29]) is None
    assert stride_of([7, *[None] * 31]) is None


def test_where_ways_meet_again():
    """0 parts to 1 and 2, which meet at 3; 3 loops over 4 and ends at 5; 6 is never left."""
    after = [[1, 2], [3], [3], [4, 5], [3], [], [6]]
    assert meetings(after)[:6] == [3, 3, 3, 5, 3, None]


@needs_nvrtc
def test_a_warp_that_walks_both_arms_costs_half_its_instructions():
    """Each arm is a loop of as many instructions, by 16 lanes each: about half of the kernel's would do."""
    source = """__global__ void k(float* x) {
    float v = x[threadIdx.x];
    if (threadIdx.x % 2) {
        #pragma unroll 1
        for (int k = 0; k < 200; k++) v = v * 0.5f + 1;
        ((volatile float*)x)[threadIdx.x] = v;
    } else {
        #pragma unroll 1
        for (int k = 0; k < 200; k++) v = v * 0.25f + 2;
        ((volatile float*)x)[threadIdx.x] = v;
    }
}"""
    (one,) = found(source, 1, 64, np.zeros(64, np.float32))
    assert (one.kind, one.severity, one.place.line) == (FindingKind.DIVERGENCE, Severity.WARNING, 3)
    assert one.figures.unit is Unit.INSTRUCTIONS
    assert 1.9 < one.figures.taken / one.figures.ideal < 2.1
    assert one.figures.share > 0.9
    assert {line.thread_instructions / line.warp_instructions for line in one.figures.lines} == {16}
    assert "every 2 lanes" in one.remedy


@needs_nvrtc
@pytest.mark.parametrize("n", [1, 5, 33, 63])
def test_the_end_of_an_array_is_no_divergence(n):
    """However short the array: no other order of the work would take fewer warps."""
    source = """__global__ void k(float* x, int n) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    #pragma unroll 1
    for (int k = 0; k < 100; k++) v = v * 0.5f + 1;
    x[i] = v;
}"""
    assert found(source, 1, 64, np.zeros(n, np.float32), n) == ()


@needs_nvrtc
@pytest.mark.parametrize("first", [0, 1, 3, 8])
def test_rows_that_begin_anywhere_are_coalesced(first):
    """5 sectors instead of 4, and the next warp uses the rest of the fifth."""
    source = "__global__ void k(const float* x, float* y, int first) { int i = blockIdx.x * 64 + threadIdx.x;\n" \
             "    y[i] = x[i + first]; }"  # fmt: skip
    assert found(source, 4, 64, np.zeros(264, np.float32), np.zeros(256, np.float32), first) == ()


@needs_nvrtc
def test_what_hardly_happens_is_not_told_of():
    """One conflict of 32 wavefronts in a kernel that takes 4 of 64 warps a thousand instructions each."""
    source = """__global__ void k(float* x) {
    __shared__ float tile[32][32];
    float v = x[threadIdx.x];
    #pragma unroll 1
    for (int k = 0; k < 400; k++) v = v * 0.5f + 1;
    tile[threadIdx.x][0] = v;
    x[threadIdx.x] = tile[threadIdx.x][0];
}"""
    assert found(source, 1, 32, np.zeros(32, np.float32)) == ()


@needs_nvrtc
def test_a_finding_about_speed_shows_one_request():
    source = """__global__ void k(const float* x, float* y) {
    __shared__ float tile[32][32];
    int a = threadIdx.x, b = threadIdx.y;
    tile[b][a] = x[b * 32 + a];
    __syncthreads();
    y[b * 32 + a] = tile[a][b];
}"""
    x = np.zeros(1024, np.float32)
    (one,) = found(source, 1, (32, 32), x, x.copy())
    example = one.figures.example
    assert (one.figures.taken, one.figures.ideal, one.figures.requests) == (32 * 32, 32, 32)
    assert sorted(example.banks)[-1] == 32
    assert sum(example.banks) == 32
    assert {b - a for a, b in zip(example.addresses, example.addresses[1:], strict=False)} == {128}
    assert "132 bytes instead of 128" in one.remedy
    assert "XOR" in one.remedy


@needs_nvrtc
def test_the_remedy_names_the_order_that_the_kernel_has():
    swapped = "__global__ void k(float* x) { x[(blockIdx.x * 32 + threadIdx.x) * 64 + threadIdx.y] = 1; }"
    assert "swap threadIdx.x and threadIdx.y" in found(swapped, 2, (32, 8), np.zeros(4096, np.float32))[0].remedy
    by_row = "__global__ void k(const float* x, float* y) { float s = 0;\n" \
             "    for (int k = 0; k < 64; k++) s += x[threadIdx.x * 64 + k];\n    y[threadIdx.x] = s; }"  # fmt: skip
    (one,) = found(by_row, 1, 64, np.zeros(4096, np.float32), np.zeros(64, np.float32))
    assert "each thread walks through x by itself" in one.remedy
    at_random = "__global__ void k(const int* at, const float* x, float* y) {\n" \
                "    int i = blockIdx.x * 64 + threadIdx.x;\n    y[i] = x[at[i]]; }"  # fmt: skip
    at = np.random.default_rng(0).permutation(4096).astype(np.int32)
    (one,) = found(at_random, 64, 64, at, np.zeros(4096, np.float32), np.zeros(4096, np.float32))
    assert one.place.line == 3
    assert "follow no rule" in one.evidence
    assert "order the indices" in one.remedy


def test_the_smallest_change_by_hand():
    """H200: 65,536 registers. 256 threads of 129 to 136 registers take 34,816, so one block; of 128 two. 48,128 bytes
    of shared memory, and 1,024 more, fit four times into 228 KB, and a fifth asks for 45,568 (356.2 times 128)."""
    gpu = find("H200")
    used = Resources(registers=131, static_shared_bytes=0, barriers=1)
    fit = Fit(used=used, threads=256, shared=0, holds=occupancy(gpu, 131, 0, 256))
    change = smallest_change(gpu, fit, "bound {registers} {threads} {blocks}")
    assert change.what.startswith("128 registers a thread instead of 131 (bound 128 256 2 ")
    assert (fit.holds.warps_per_sm, change.holds.warps_per_sm) == (8, 16)
    used = Resources(registers=16, static_shared_bytes=48128, barriers=1)
    fit = Fit(used=used, threads=64, shared=48128, holds=occupancy(gpu, 16, 48128, 64))
    change = smallest_change(gpu, fit, "")
    assert "45,568 bytes of shared memory a block instead of 48,128" in change.what
    assert change.holds.blocks_per_sm == 5
