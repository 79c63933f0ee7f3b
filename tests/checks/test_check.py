"""What `undertorch.check` says: places, evidence, remedies, fingerprints, and what it refuses."""

import os
import signal
import threading

import numpy as np
import pytest

import undertorch
from undertorch.checks.arguments import BadArgument, arguments
from undertorch.checks.check import watched
from undertorch.checks.told import names_of, plain
from undertorch.compilers.nvrtc import nvrtc_version
from undertorch.records import FindingKind, Severity
from undertorch.records.checked_files import to_json
from undertorch.simt import BadLaunch

needs_nvrtc = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")

REVERSE = """
__global__ void reverse(const float* x, float* y) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    tile[t] = x[t];
    y[t] = tile[63 - t];
}
"""


def reverse(source=REVERSE, **options):
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    return undertorch.check(undertorch.cuda(source)["reverse"], 1, 64, x, y, **options), y


@needs_nvrtc
def test_a_race_names_both_lines_threads_the_variable_and_the_barrier():
    found, _ = reverse()
    (finding,) = found.findings
    assert (finding.kind, finding.severity) == (FindingKind.RACE_SHARED, Severity.ERROR)
    assert (finding.place.line, finding.other.line) == (5, 6)
    assert "shared `tile`" in finding.evidence
    assert finding.evidence.count("thread") == 2
    assert finding.remedy == "put __syncthreads() between line 5 and line 6"


@needs_nvrtc
def test_a_race_is_reported_though_the_result_is_right():
    """One warp after the other, the second half reads what the first has written; the first half reads zeros."""
    source = REVERSE.replace("63 - t", "t < 32 ? t : 63 - t")
    found, y = reverse(source)
    assert np.array_equal(y, [*range(32), *range(31, -1, -1)])
    assert [f.kind for f in found.findings] == [FindingKind.RACE_SHARED]


@needs_nvrtc
def test_a_fingerprint_survives_edits_elsewhere_and_no_edit_of_its_lines():
    (before,) = reverse()[0].findings
    (moved,) = reverse("// a comment\n\n" + REVERSE.replace("    y[t]", "        y[t]"))[0].findings
    (other,) = reverse(REVERSE.replace("63 - t", "62 - t & 63"))[0].findings
    assert before.place.line + 2 == moved.place.line
    assert before.fingerprint == moved.fingerprint != other.fingerprint


@needs_nvrtc
def test_counts_of_several_orders_of_warps_add_up_and_each_starts_from_the_same_contents():
    once, y = reverse()
    twice, z = reverse(seeds=3)
    assert twice.runs == 3
    assert twice.findings[0].count > once.findings[0].count
    assert np.array_equal(np.sort(z[z != 0]), np.unique(z[z != 0]))
    assert y.shape == z.shape


@needs_nvrtc
def test_another_blocks_element_is_named_by_its_argument():
    source = "__global__ void k(int* counts) { counts[3] = blockIdx.x; }"
    found = undertorch.check(undertorch.cuda(source)["k"], 2, 1, np.zeros(8, np.int32))
    assert "counts[3]" in found.findings[0].evidence
    assert "block 0" in found.findings[0].evidence
    assert "block 1" in found.findings[0].evidence


@needs_nvrtc
def test_views_of_one_array_are_the_same_bytes():
    """The second argument starts in the middle of the first."""
    source = """__global__ void k(int* x, int* y) {
    if (threadIdx.x < 32) x[32 + threadIdx.x] = 1; else y[threadIdx.x - 32] = 2;
}"""
    memory = np.zeros(64, np.int32)
    found = undertorch.check(undertorch.cuda(source)["k"], 1, 64, memory, memory[32:])
    assert [f.kind for f in found.findings] == [FindingKind.RACE_GLOBAL]


@needs_nvrtc
def test_two_launches_of_one_kernel_do_not_race_with_each_other():
    kernel = undertorch.cuda("__global__ void k(int* x) { x[threadIdx.x] += 1; }")["k"]
    x = np.zeros(64, np.int32)
    for _ in range(2):
        assert undertorch.check(kernel, 1, 64, x).findings == ()
    assert np.all(x == 2)


@needs_nvrtc
def test_a_hundred_thousand_blocks_and_a_buffer_that_is_hardly_touched():
    """Shadow memory comes as it is touched: that of 1 GB would take 8 GB."""
    source = "__global__ void k(float* x) { if (threadIdx.x == 0) x[(size_t)blockIdx.x * 4 % (1 << 20)] = 1; }"
    found = undertorch.check(undertorch.cuda(source)["k"], 100_000, 32, np.zeros(1 << 28, np.float32))
    assert {f.kind for f in found.findings} == set()


def test_what_is_no_launch_is_refused_in_one_sentence():
    file = undertorch.ptx(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a) { ret; }")
    x = np.zeros(4)
    with pytest.raises(BadLaunch, match="seeds=0: it is a number of orders of warps to try"):
        undertorch.check(file["k"], 1, 1, x, seeds=0)
    with pytest.raises(BadLaunch, match="argument 1 is no array or tensor"):
        undertorch.check(file["k"], 1, 1, x, empty=[1])
    with pytest.raises(BadLaunch, match="block=0"):
        undertorch.check(file["k"], 1, 0, x)


def test_arguments_in_words():
    given = arguments(["f32[4,2]", "i32[6]=arange", "u8[3]=zeros", "f64[2]=empty", "12", "0x10", "0.5", "none", "true"])
    x, counted, zeros, empty, *values = given.values
    assert (x.shape, x.dtype, np.unique(x).size) == ((4, 2), np.float32, 8)
    assert counted.tolist() == [0, 1, 2, 3, 4, 5]
    assert (zeros.dtype, zeros.tolist(), empty.shape) == (np.uint8, [0, 0, 0], (2,))
    assert values == [12, 16, 0.5, None, True]
    assert given.empty == (3,)
    assert np.array_equal(x, arguments(["f32[4,2]"]).values[0])


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("f33[4]", "there is no type f33; types are f16, f32"),
        ("f32[x]", r"\[x\] is no shape"),
        ("f32[4]=sideways", "=sideways is none of random, zeros"),
        ("f32[4]=none.npy", "none.npy cannot be read"),
        ("struct{1,2}", "structs by value cannot be written here"),
        ("one", "it is no array"),
        ("f32[99999999999]", "more than this machine's memory"),
    ],
)
def test_arguments_that_are_none(spec, said):
    with pytest.raises(BadArgument, match=f"^--arg .*{said}"):
        arguments([spec])


def test_names_of_parameters_are_read_off_the_source():
    source = "template <int N> __global__ void f(int);\nextern \"C\" __global__ void __launch_bounds__(64) scale(" \
             "float* __restrict__ y, /* a, b */ const Pair<int, 3>& p,  // last\n  int n) { }"  # fmt: skip
    assert names_of({"a.cu": source}, "scale") == ("y", "p", "n")
    assert names_of({"a.cu": source}, "other") == ()


def test_names_of_shared_variables():
    """Itanium C++ ABI, 5.1.2: a local entity is _ZZ, the function's encoding, E, and its own name with its length."""
    assert plain("_ZZ7reversePKfPfE4tile") == "tile"
    assert plain("partial") == "partial"


@needs_nvrtc
def test_json_holds_what_the_contract_names():
    import json

    found, _ = reverse()
    data = json.loads(to_json([found]))
    assert (data["schema"], data["target_arch"]) == (1, "sm_80")
    (kernel,) = data["kernels"]
    assert (kernel["name"], kernel["grid"], kernel["block"]) == ("reverse", [1, 1, 1], [64, 1, 1])
    # Two full warps store a tile of 64 floats and load it again; 256 bytes are read and 256 written.
    counted = kernel["counters"]
    assert (counted["wavefronts"], counted["sectors"]) == (4, 16)
    assert counted["thread_instructions"] == 32 * counted["warp_instructions"] > 0
    (finding,) = kernel["findings"]
    assert (finding["kind"], finding["severity"], finding["line"]) == ("race-shared", "error", 5)
    assert finding["other"] == {"file": "kernel.cu", "line": 6}
    assert {"file", "message", "evidence", "remedy", "fingerprint", "count"} <= finding.keys()


@needs_nvrtc
def test_ctrl_c_ends_a_kernel_that_never_ends_while_it_is_looked_at():
    """Python raises at the start of what native code calls, where nobody can catch it."""
    kernel = undertorch.cuda("__global__ void k(int* x) { while (true) atomicAdd(x, 1); }")["k"]
    pressed = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    pressed.start()
    with pytest.raises(KeyboardInterrupt):
        watched(kernel.file.text, kernel.name, 1, 32, [np.zeros(1, np.int32)], gpu="A100-80GB", time_limit=30)
    pressed.join()
