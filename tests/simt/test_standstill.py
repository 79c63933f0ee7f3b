"""Loops that wait for what never comes are known by repeating themselves; loops that compute are not taken for them."""

import numpy as np
import pytest

import undertorch
from undertorch.gpus import find
from undertorch.simt import Deadlock, launch

SOURCE = """
extern "C" __global__ void flag(volatile int* x) { while (!*x) ; }
extern "C" __global__ void lock(int* x) { if (threadIdx.x % 7 == 0) while (atomicCAS(x, 0, 1)) ; __syncthreads(); }
extern "C" __global__ void backs_off(int* x) {
    unsigned wait = 8;
    while (atomicCAS(x, 0, 1)) { __nanosleep(wait); if (wait < 256) wait *= 2; }
}
extern "C" __global__ void toggles(volatile int* x) { while (1) { x[0] = 1; x[0] = 2; } }
extern "C" __global__ void computes(int* x, int n) {
    int a = *x;
    for (int i = 0; i < n; i++) a = (a * 7 + i) ^ (a >> 3);
    *x = a;
}
extern "C" __global__ void counts_in_memory(volatile int* x, int n) { while (*x < n) *x = *x + 1; }
extern "C" __global__ void counts_in_shared(int* x, int n) {
    __shared__ volatile int s; s = 0;
    while (s < n) s = s + 1;
    *x = s;
}
extern "C" __global__ void hands_over(volatile int* x, int n) {
    for (int i = 0; i < n; i++) { while (*x != 2 * i + blockIdx.x) ; *x = *x + 1; }
}
extern "C" __global__ void looks_at_the_clock(int* x, long long ticks) {
    long long from = clock64();
    while (clock64() - from < ticks) ;
    *x = 1;
}
extern "C" __global__ void allocates(int* x) { while (malloc(1024)) ; *x = 1; }
"""


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


@pytest.fixture
def looked_at_from_the_start(monkeypatch):
    monkeypatch.setattr("undertorch.simt.schedule.QUIET", -1.0)


@pytest.mark.parametrize(
    ("kernel", "grid", "block"),
    [("flag", 1, 32), ("flag", 3, 70), ("lock", 2, 64), ("backs_off", 3, 32), ("toggles", 2, 64)],
)
@pytest.mark.parametrize("seed", [None, 5])
def test_a_spin_on_what_nobody_changes_is_a_deadlock(kernels, looked_at_from_the_start, kernel, grid, block, seed):
    """Patience is long enough that the test would be noticed if it came to it."""
    with pytest.raises(Deadlock, match="repeat themselves") as caught:
        launch(kernels.text, kernel, grid, block, [np.zeros(4, np.int32)], gpu=find("H200"), seed=seed, patience=600)
    assert caught.value.waiting


@pytest.mark.parametrize(
    ("kernel", "grid", "arguments", "result"),
    [
        ("computes", 1, (300_000,), None),
        ("counts_in_memory", 1, (50_000,), 50_000),
        ("counts_in_shared", 1, (50_000,), 50_000),
        ("hands_over", 2, (20,), 40),
        ("looks_at_the_clock", 1, (200_000_000,), 1),
        ("allocates", 1, (), 1),
    ],
)
def test_a_loop_that_gets_somewhere_is_not(kernels, looked_at_from_the_start, kernel, grid, arguments, result):
    x = np.zeros(1, np.int32)
    kernels[kernel][grid, 1](x, *arguments)
    assert result is None or x[0] == result


def test_a_lone_thread_that_polls_and_counts_is_no_deadlock():
    """Nobody is left to write what it reads, so it waits for nobody: it counts to its end, however long that takes."""
    kernel = undertorch.cuda("""extern "C" __global__ void counts(volatile int* x, int* y, int n) {
        if (threadIdx.x) return;
        int i = 0;
        while (i < n) i += 1 + x[0];
        y[0] = i;
    }""")["counts"]
    y = np.zeros(1, np.int32)
    with undertorch.machine(patience=0.2):
        kernel[1, 32](np.zeros(1, np.int32), y, 4_000_000)
    assert y[0] == 4_000_000
