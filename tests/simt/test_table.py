"""What kernels and counters look like when they are printed."""

import numpy as np
import pytest

import undertorch

SOURCE = """extern "C" __global__ void add(float* x, int n) {
    __shared__ float s[32][32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x][0] = 1;
    __syncthreads();
    if (i < n)
        x[8 * i] += s[31 - threadIdx.x][0];
}
extern "C" __global__ void other() {}
"""


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


@pytest.fixture(scope="module")
def result(kernels):
    with undertorch.machine(gpu="H200", instrument="counters"):
        return kernels["add"][2, 32](np.zeros(8 * 40, np.float32), 40)


def test_counters_print_as_a_table_by_source_line(result):
    """Line 4: 2 warps store a column of a square of 32: 32 wavefronts each instead of 1. Line 7, where 32 and 8 lanes
    read and write floats 32 bytes apart: 40 sectors twice, where 4 and 1 would have held them."""
    lines = str(result.counters).splitlines()
    assert lines[1] == "kernel.cu"
    by_line = {line.split()[0]: line for line in lines[2:]}
    store, update = by_line["4"], by_line["7"]
    assert store.split()[3:6] == ["2", "64", "2"]
    assert store.endswith("  s[threadIdx.x][0] = 1;")
    assert update.split()[3:8] == ["6", "80", "10", "40", "2"]
    assert update.endswith("  x[8 * i] += s[31 - threadIdx.x][0];")
    assert store.split()[2] == "100%"
    assert update.split()[2] == "62%"


def test_of_a_source_that_is_not_known_lines_have_numbers_alone(kernels):
    with undertorch.machine(instrument="counters"):
        counters = undertorch.ptx(kernels.text)["add"][1, 32](np.zeros(256, np.float32), 32).counters
    assert "syncthreads" not in str(counters)
    assert len(str(counters).splitlines()) > 5


def test_each_repr_is_one_short_line(kernels, result):
    shown = [repr(x) for x in (kernels, kernels["add"], result, result.counters, result.counters.accesses[0])]
    assert all("\n" not in text and len(text) < 300 for text in shown)
    assert shown[1] == "<kernel add, of 2 in kernel.cu, sm_80>"


def test_the_repr_of_what_is_no_ptx_says_so():
    assert "text is not understood here" in repr(undertorch.ptx("text"))
