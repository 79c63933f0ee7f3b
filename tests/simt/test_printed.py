"""printf goes to standard output, as on a GPU, and is kept."""

import numpy as np
import pytest

import undertorch
from undertorch.simt import Deadlock, Fault

SOURCE = """
extern "C" __global__ void prints(int n) { if (threadIdx.x < n) printf("%d of %d;", threadIdx.x, n); }
extern "C" __global__ void faults(int* x) { printf("before;"); x[7] = 1; printf("after;"); }
extern "C" __global__ void waits(volatile int* x) { printf("before;"); while (!*x) ; }
extern "C" __global__ void asserts(int n) { printf("before;"); assert(n > 3); }
"""


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


def test_what_threads_print_goes_to_standard_output(kernels, capsys):
    result = kernels["prints"][1, 8](2)
    assert capsys.readouterr().out == "0 of 2;1 of 2;"
    assert result.printed == ("0 of 2;", "1 of 2;")


def test_nothing_printed_writes_nothing(kernels, capsys):
    assert kernels["prints"][1, 8](0).printed == ()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("kernel", "argument", "error"),
    [
        ("faults", np.zeros(7, np.int32), Fault),
        ("waits", np.zeros(1, np.int32), Deadlock),
        ("asserts", 3, Fault),
    ],
)
def test_what_was_printed_before_the_end_is_shown_and_kept(kernels, capsys, kernel, argument, error):
    with pytest.raises(error) as caught:
        kernels[kernel][1, 1](argument)
    assert capsys.readouterr().out == "before;"
    assert caught.value.printed == ("before;",)
