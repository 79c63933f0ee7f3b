"""Random kernels with branches, loops, exchanges: the machine against NumPy in lockstep (lockstep.py)."""

import numpy as np
import pytest

from simt.lockstep import Branch, Loop, Step, Threads, compare, ptx


@pytest.mark.parametrize("seed", range(24))
def test_a_random_kernel_gives_the_same_on_both(seed):
    order = None if seed % 2 else seed
    text = compare(seed, seed=order, instrument=("none", "counters", "events")[seed % 3])
    assert text is None, text


def test_numpy_in_lockstep_does_what_statements_say():
    """By hand: r0 counts its rounds, and odd threads take the other arm."""
    given = np.zeros((10, 96), np.uint32)
    given[1] = np.arange(96)
    threads = Threads(given)
    body = [Step("add.s32", "%r0", ("%r0", 1))]
    arms = Branch("%p0", [Step("xor.b32", "%r2", ("%r2", 7))], [Step("add.s32", "%r2", ("%r2", 5))])
    odd = [Step("and.b32", "%r3", ("%r1", 1)), Step("setp.eq.s32", "%p0", ("%r3", "%r4"))]
    threads.run([Loop("%r1", 3, body), *odd, arms], np.ones(96, bool))
    rows = threads.columns()
    assert rows[:, 0].tolist() == [t & 7 for t in range(96)]
    assert rows[:, 2].tolist() == [5 if t & 1 else 7 for t in range(96)]
    assert "bra" in ptx([arms])
