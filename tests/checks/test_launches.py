"""Launches that a program makes, looked at while they run."""

import numpy as np
import pytest

import undertorch
from undertorch.checks.launches import Launches, joined, kind_of
from undertorch.checks.programs import check_triton, watching
from undertorch.compilers.nvrtc import nvrtc_version
from undertorch.gpus import find
from undertorch.records import FindingKind
from undertorch.simt import BadLaunch, Fault

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")
A100 = find("A100-80GB")
SOURCE = """__global__ void lost(int* x) { x[0] += blockIdx.x + 1; }
__global__ void own(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }
__device__ int kept;
__global__ void counts(int* x) { if (threadIdx.x == 0) { x[0] = ++kept; } }"""


@pytest.fixture(scope="module")
def file():
    return undertorch.cuda(SOURCE)


def test_results_are_those_of_the_machine_alone_looked_at_or_not(file):
    """Global variables keep their values from launch to launch: kept counts all of them."""
    launches, x = Launches(), np.zeros(64, np.int32)
    with watching(A100, launches):
        for _ in range(9):
            file["own"][1, 64](x, 60)
            before = x[0]
            file["counts"][1, 32](x)
            assert x[0] > 0
            x[0] = before
    assert x.tolist() == [9] * 60 + [0] * 4
    assert file.variables["kept"][0] == 9


def test_the_1st_2nd_4th_and_8th_of_equal_launches_are_looked_at(file):
    launches, x = Launches(), np.zeros(64, np.int32)
    with watching(A100, launches):
        for _ in range(9):
            file["own"][1, 64](x, 60)
    (one,) = launches.checked()
    assert (one.launches, one.watched) == (9, 4)


def test_another_size_or_type_or_shape_is_another_launch(file):
    launches = Launches()
    with watching(A100, launches):
        for _ in range(3):
            for grid, block, elements in ((1, 64, 64), (2, 64, 64), (1, 32, 64), (1, 64, 128)):
                file["own"][grid, block](np.zeros(elements, np.int32), 60)
    (one,) = launches.checked()
    assert (one.launches, one.watched) == (12, 8)
    assert set(one.sizes) == {((1, 1, 1), (64, 1, 1)), ((2, 1, 1), (64, 1, 1)), ((1, 1, 1), (32, 1, 1))}


def test_a_counter_that_is_passed_does_not_make_each_launch_another_one():
    assert kind_of(1000) == kind_of(1001)
    assert kind_of(1000) != kind_of(3000)
    assert kind_of(1008) != kind_of(1009)  # Triton compiles another kernel for multiples of 16
    assert kind_of(0.5) == kind_of(0.25)


def test_a_fault_is_noted_and_raised(file):
    launches = Launches()
    with watching(A100, launches), pytest.raises(Fault):
        file["own"][1, 64](np.zeros(8, np.int32), 60)
    (one,) = launches.checked()
    assert [f.kind for f in one.findings] == [FindingKind.OUT_OF_BOUNDS]
    assert "0x" not in one.findings[0].evidence  # another address in each run


def test_what_no_gpu_launches_is_refused_as_ever(file):
    with watching(A100, Launches()), pytest.raises(BadLaunch, match="2048 threads a block"):
        file["own"][1, 2048](np.zeros(8, np.int32), 60)


def test_several_orders_of_warps_start_from_the_same_contents(file):
    launches, x = Launches(seeds=3), np.zeros(64, np.int32)
    with watching(A100, launches):
        file["own"][1, 64](x, 64)
    assert x.tolist() == [1] * 64
    assert launches.checked()[0].runs == 3


def test_what_several_runs_found_of_a_kernel_is_one(file):
    found = []
    for _ in range(2):
        launches = Launches()
        with watching(A100, launches):
            file["lost"][2, 1](np.zeros(1, np.int32))
        found += launches.checked()
    (one,) = joined(found)
    assert one.launches == 2
    (finding,) = one.findings
    assert finding.count == 2 * found[0].findings[0].count


def test_a_block_checks_what_it_launches_and_says_so(file):
    with undertorch.checking("H200") as found:
        file["lost"][2, 1](np.zeros(1, np.int32))
    assert repr(found) == "<1 kernel in 1 launch: 1 error.>"
    assert found.checked[0].gpu == "H200"
    assert "race-global" in found._repr_html_()


def test_a_kernels_fault_ends_a_block_and_goes_no_further(file):
    with undertorch.checking() as found:
        file["own"][1, 64](np.zeros(8, np.int32), 60)
        raise AssertionError("not reached")
    assert [f.kind for f in found.checked[0].findings] == [FindingKind.OUT_OF_BOUNDS]


def test_what_is_no_kernel_is_refused():
    with pytest.raises(BadLaunch, match=r"is no kernel: check takes those of undertorch.cuda, undertorch.ptx and"):
        undertorch.check(print, 1, 1)


def test_a_block_may_be_given_by_name_and_must_be_given(file):
    assert undertorch.check(file["own"], 1, np.zeros(8, np.int32), 8, block=8).findings == ()
    with pytest.raises(BadLaunch, match="how many threads has a block"):
        undertorch.check(file["own"], 1)


def test_a_triton_kernel_is_checked_with_its_own_arguments():
    """Positions, names and constants as in kernel[grid](…); NumPy's arrays are shared memory, and hold the result."""
    pytest.importorskip("triton")
    from triton_sources import scan_kernel

    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    found = undertorch.check(scan_kernel, 1, x, out=out, BLOCK=64)
    assert found.findings == ()
    assert (found.kernel, found.target, found.block[0] % 32) == ("scan_kernel", "sm_80", 0)
    assert np.array_equal(out, np.cumsum(x))
    empty = check_triton(scan_kernel, (1,), [x, out], {"BLOCK": 64}, gpu=A100, seeds=1, empty=[0])
    assert {f.kind for f in empty.findings} == {FindingKind.UNINITIALIZED}
