"""Which arguments the race detector keeps a shadow of: reads of what a launch cannot write to race with nobody."""

import numpy as np
import pytest

import undertorch
from undertorch.checks.detector import unwritten
from undertorch.checks.samples import IN_A_ROW, Samples
from undertorch.compilers.nvrtc import nvrtc_version
from undertorch.simt.faults import Given
from undertorch.simt.program import prepare
from undertorch.simt.runtime.layout import ACCESS, EVENT

needs_nvrtc = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")


def only_read(source, *arguments):
    """Numbers of arguments that are."""
    file = undertorch.cuda(source)
    program = prepare(file.text, file.kernels[0], "events")
    spans = list(unwritten(program, Given(arguments=arguments, dynamic_shared=0, sources={})))
    starts = [a.ctypes.data if isinstance(a, np.ndarray) else None for a in arguments]
    return [starts.index(start) for start, _ in spans]


@needs_nvrtc
def test_what_no_store_is_computed_from_is_only_read():
    source = "__global__ void k(const float* x, float* y, const int* at, int n) { y[at[n]] = x[threadIdx.x]; }"
    x, y, at = np.zeros(64, np.float32), np.zeros(64, np.float32), np.zeros(64, np.int32)
    assert only_read(source, x, y, at, 3) == [0, 2]


@needs_nvrtc
def test_a_view_of_what_is_written_is_not_only_read():
    source = "__global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }"
    memory = np.zeros(64, np.float32)
    assert only_read(source, memory[16:], memory[:32]) == []


@needs_nvrtc
def test_a_pointer_out_of_memory_may_point_to_any_of_them():
    source = "__global__ void k(float** table, float* x, int n) { table[0][n] = x[n]; }"
    assert only_read(source, np.zeros(4, np.uint64), np.zeros(4, np.float32), 1) == []


def test_samples_keep_the_first_accesses_and_other_warps():
    rows = np.zeros(200, EVENT)
    rows["kind"], rows["mask"] = ACCESS, 1
    rows["site"] = np.arange(200) % 2
    rows["warp"] = np.arange(200) // 50
    rows["addresses"][:, 0] = np.arange(200)
    samples = Samples(3)
    samples.take(rows)
    assert [int(r["addresses"][0]) for r in samples.first(1)] == list(range(1, 2 * IN_A_ROW, 2))
    assert [int(r["addresses"][0]) for r in samples.beside(0)] == [0, 50, 100, 150]
    assert len(samples.first(2)) == len(samples.beside(2)) == 0
