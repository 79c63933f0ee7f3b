"""Autotuners and heuristics: nothing is measured, so the first configuration that fits is taken."""

import pytest
import torch
import triton
import triton.language as tl

import undertorch
from undertorch.simt import Fault

BLOCKS = (64, 128, 256)


def tuned(configs, **settings):
    """A kernel of its own for each test: an autotuner remembers what it chose."""

    @triton.autotune(configs, key=["n"], **settings)
    @triton.jit
    def count_kernel(x, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

    return count_kernel


@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def even_kernel(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.store(x, EVEN)


@triton.autotune([triton.Config({"BINS": 65536}), triton.Config({"BINS": 64})], key=[])
@triton.jit
def hungry_kernel(x, counts, BINS: tl.constexpr):
    found = tl.histogram(tl.load(x + tl.arange(0, 256)), BINS)
    tl.store(counts + tl.arange(0, 64), tl.sum(found.reshape(64, BINS // 64), 1))


def configs(hook=None):
    return [triton.Config({"BLOCK": block}, pre_hook=hook) for block in BLOCKS]


def launch(kernel, x, n=1000):
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n)


def test_the_first_configuration_runs_once():
    kernel, x = tuned(configs()), torch.zeros(1000)
    with undertorch.machine() as machine:
        launch(kernel, x)
        assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert torch.equal(x, torch.ones(1000))
    assert [result.grid[0] for result in machine.launches] == [16]


def test_one_that_does_not_fit_the_gpu_is_passed_over():
    """65536 counters of 4 bytes are 256 KiB of shared memory; an A100 has 163 KiB a block."""
    x = torch.arange(256, dtype=torch.int32) % 64
    counts = torch.empty(64, dtype=torch.int32)
    with undertorch.machine():
        hungry_kernel[(1,)](x, counts)
    assert hungry_kernel.best_config.kwargs == {"BINS": 64}
    assert torch.equal(counts, torch.full((64,), 4, dtype=torch.int32))


def test_all_configurations_run_where_that_is_asked():
    """Each once, and the first once more: it is the one that is taken."""
    kernel, x = tuned(configs()), torch.zeros(1000)
    with undertorch.machine(all_configs=True) as machine:
        launch(kernel, x)
    assert [result.grid[0] for result in machine.launches] == [16, 8, 4, 16]
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert torch.equal(x, torch.full((1000,), 4.0))


def test_what_tuning_writes_is_put_back_where_the_kernel_says_so():
    kernel, x = tuned(configs(), restore_value=["x"]), torch.zeros(1000)
    with undertorch.machine(all_configs=True):
        launch(kernel, x)
    assert torch.equal(x, torch.ones(1000))


def test_a_fault_names_its_configuration():
    kernel = tuned(configs())
    with undertorch.machine(all_configs=True), pytest.raises(Fault) as fault:
        launch(kernel, torch.zeros(999))
    assert "BLOCK: 64" in fault.value.__notes__[0]


def test_hooks_of_configurations_are_called():
    seen = []
    kernel = tuned(configs(hook=lambda given: seen.append(given["BLOCK"])))
    with undertorch.machine():
        launch(kernel, torch.zeros(1000))
    assert seen == [64, 64]  # as the configuration is tried, and before the launch


def test_a_choice_is_not_taken_along_to_a_gpu():
    kernel = tuned(configs())
    with undertorch.machine():
        launch(kernel, torch.zeros(1000))
    assert not kernel.cache
    assert "do_bench" not in vars(kernel)


@pytest.mark.parametrize(("n", "even"), [(64, 1), (65, 0)])
def test_heuristics_see_arguments_and_constants(n, even):
    x = torch.full((1,), -1)
    with undertorch.machine():
        even_kernel[(1,)](x, n, BLOCK=32)
    assert x.item() == even
