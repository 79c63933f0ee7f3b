"""A Fault names the argument that was meant, how far beyond it, and the source line."""

import numpy as np
import pytest
import torch

import undertorch
from undertorch.simt import Fault

SOURCE = """
extern "C" __global__ void copy(float* y, const float* x, int at, int from) {
    float read = x[from];
    y[at] = read;
}
extern "C" __global__ void wide(double2* y, int at) { y[at] = make_double2(1, 2); }
extern "C" __global__ void through(float** table, int at) { table[0][at] = 1; }
extern __shared__ float tile[];
extern "C" __global__ void dynamic(int at) { tile[at] = 1; }
extern "C" __global__ void fixed(int at, float* y) {
    __shared__ float own[4];
    own[at] = 1; __syncthreads(); *y = own[at ^ 1];
}
"""


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


def said(kernel, *arguments):
    with pytest.raises(Fault) as caught:
        kernel(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("at", "from_", "says"),
    [
        (0, 103, "12 bytes past the end of argument 1 (float32, 100 elements)"),
        (0, 100, "just past the end of argument 1 (float32, 100 elements)"),
        (-2, 0, "8 bytes before the start of argument 0 (float32, 10 elements)"),
        (11, 0, "4 bytes past the end of argument 0 (float32, 10 elements)"),
    ],
)
def test_it_says_how_far_beyond_which_argument(kernels, at, from_, says):
    y, x = np.zeros(10, np.float32), torch.zeros(100)
    assert says in str(said(kernels["copy"][1, 1], y, x, at, from_))


def test_the_argument_is_the_one_whose_pointer_was_used_however_near_another_lies(kernels):
    """y and x lie side by side; 4 elements past y's end are within 4 elements of... x, which is not given whole."""
    memory = np.zeros(64, np.float32)
    fault = said(kernels["copy"][1, 1], memory[:16], memory[24:32], 20, 0)
    assert "16 bytes past the end of argument 0 (float32, 16 elements)" in str(fault)


def test_a_tensors_view_may_reach_its_storage_and_is_told_from_it(kernels):
    x = torch.zeros(100)
    assert "(float32, 10 elements of memory that has 400 bytes)" in str(said(kernels["copy"][1, 1], x[:10], x, 200, 0))


def test_an_access_over_an_end(kernels):
    """16 bytes at byte 64 of 72: 8 of them lie over the end."""
    room = np.zeros(11)
    start = room[(room.ctypes.data // 8) % 2 :][:9]
    assert "8 bytes over the end of argument 0 (float64, 9 elements)" in str(said(kernels["wide"][1, 1], start, 4))


def test_what_is_read_from_memory_is_in_no_argument(kernels):
    outside = np.zeros(4, np.float32)
    table = np.array([outside.ctypes.data], np.uint64)
    assert "not in any argument" in str(said(kernels["through"][1, 1], table, 1))


def test_none_is_named(kernels):
    assert "argument 1 is None" in str(said(kernels["copy"][1, 1], np.zeros(4, np.float32), None, 0, 0))


def test_what_may_not_be_written_to_is_said_to_be_so(kernels):
    y = np.zeros(4, np.float32)
    y.flags.writeable = False
    assert "in argument 0 (float32, 4 elements), which may not be written to" in str(
        said(kernels["copy"][1, 1], y, y, 0, 0)
    )


def test_forgotten_shared_memory_says_how_to_launch(kernels):
    fault = said(kernels["dynamic"][1, 1], 0)
    assert "launch it as [grid, block, bytes]" in str(fault)
    kernels["dynamic"][1, 1, 4](0)


def test_shared_memory_says_how_much_there_is(kernels):
    assert "outside of the 4 bytes that the block has" in str(said(kernels["dynamic"][1, 1, 4], 1))
    fault = said(kernels["fixed"][1, 1], 4, np.zeros(1, np.float32))
    assert "outside of the 16 bytes that the block has" in str(fault)
    assert "[grid, block, bytes]" not in str(fault)


def test_the_source_line_is_shown_under_the_name_of_the_program(kernels):
    fault = said(kernels["copy"][1, 1], np.zeros(4, np.float32), np.zeros(4, np.float32), 4, 0)
    assert (fault.file, fault.line) == ("kernel.cu", 4)
    message, line = str(fault).split("\n")
    assert message.startswith("kernel.cu:4: out-of-bounds: thread (0, 0, 0)")
    assert line == "    y[at] = read;"
