"""Kernels that the machine's own tests run: right ones are silent under all checks, the wrong ones are named."""

from pathlib import Path

import numpy as np
import pytest

from simt.test_classics import *  # noqa: F403  (each of its tests, with the fixture below)
from simt.test_cooperative import *  # noqa: F403
from simt.test_features import *  # noqa: F403
from undertorch.checks.check import Watch, findings, merged
from undertorch.gpus import find
from undertorch.records.findings import SPEED
from undertorch.simt import launch

KERNELS = Path(__file__).parents[1] / "simt/kernels"
TEXTS = [path.read_text() for path in sorted(KERNELS.glob("*.ptx"))]


@pytest.fixture(scope="session")
def a100():
    return find("A100-80GB")


@pytest.fixture
def run(a100):
    """As in the machine's tests, and then: no findings."""

    def run(kernel, grid, block, *arguments, **options):
        text = next(t for t in TEXTS if f".entry {kernel}(" in t)
        watch = Watch()
        options |= {"instrument": "events", "threads": 1, "on_start": watch.start, "on_events": watch.take}
        result = launch(text, kernel, grid, block, arguments, gpu=options.pop("gpu", a100), **options)
        found = merged(findings(watch.told()))
        kinds = {finding.kind for finding in found}
        assert kinds - SPEED == WRONG.get(kernel, set()), found
        assert kinds & SPEED <= SLOW.get(kernel, set()), found
        return result

    return run


def test_a_spin_lock_between_all_threads_loses_no_count(run):
    """In place of the machine's own test, in which 256 threads fight for one lock: that is minutes of events."""
    lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    run("spin_lock", 2, 4, lock, count)
    assert count[0] == 8


@pytest.mark.parametrize(("blocks", "block", "seed"), [(1, 33, None), (7, 96, None), (7, 96, 5), (40, 256, None)])
def test_a_grid_waits_for_all_its_blocks(run, blocks, block, seed):
    """In place of the machine's own test, which fills the GPU several times."""
    x = np.random.default_rng(1).integers(-50, 50, 20_011, np.int32)
    sums, totals = np.zeros(blocks, np.int32), np.zeros((3, blocks), np.int32)
    run("grid_sums", blocks, block, x, x.size, sums, totals, 3, seed=seed)
    assert np.array_equal(totals, np.full((3, blocks), x.sum()) * np.arange(1, 4)[:, None])


WRONG = {
    "backwards_wait": {"race-global"},  # every thread of a block writes order[block]
    "forgotten_wait": {"race-shared"},
    "smem_registers": {"race-global"},  # every thread writes the same
    # All but the last threads have ended: right since sm_70, and said.
    "ends_early": {"barrier-divergence"},
    # CUDA's own header: lanes read what their warp's first lane acquired, ordered by shfl alone, which by the PTX ISA
    # orders no memory. Where lines are known (-lineinfo) the header's accesses are left out.
    "tiles_of_64": {"race-shared"},
    "tiles_of_256": {"race-shared"},
    "one_tile_of_two": {"race-shared"},
}
"""Kernels that do race or part, and how."""

SLOW = {
    "register_tiled_matmul": {"bank-conflict"},  # lanes store a column of `as`
    "naive_transpose": {"uncoalesced"},
    "conflicting_transpose": {"bank-conflict"},
    "reduce_interleaved": {"divergence"},  # t % (2 * s) == 0
    "reduce_strided": {"bank-conflict"},
    "collatz": {"divergence"},
    "strided_gather": {"uncoalesced"},
    "grid_ranks": {"uncoalesced"},  # three numbers a thread, side by side
    "smem_registers": {"occupancy"},  # all of an SM's shared memory for ten threads
    "meeting": {"divergence"},  # half of a warp comes late on purpose
    "device_function": {"divergence"},  # as many rounds as the lane's number says
}
"""Kernels that are slow, and how. All others are silent."""
