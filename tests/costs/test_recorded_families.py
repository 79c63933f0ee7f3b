"""Softmax, norms, losses, attention, embedding, indexing, sorting, optimizers, pooling: against what an H200 launched.

Equal means: as many kernels, of the same names, grids, blocks and shared memory; memsets and memcpys of the same bytes.
"""

from collections import defaultdict
from dataclasses import replace

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200, Case, differences, gpt2_lists, gpt2_step, single_ops
from undertorch.costs import COSTS, kernels
from undertorch.records import Kernel

FAMILIES = {
    "attention",
    "batch_norm",
    "efficient_attention",
    "embedding",
    "flash_attention",
    "group_norm",
    "indexing",
    "loss",
    "norm",
    "optimizer",
    "pooling",
    "scan",
    "selection",
    "softmax",
    "sort",
}
"""Modules whose geometry PyTorch's sources define (and cuDNN's attention, whose few sizes were all recorded)."""


def family(name: str) -> str | None:
    return COSTS[name].__module__.rsplit(".", 1)[-1] if name in COSTS else None


def ours(cases: tuple[Case, ...]) -> dict[str, list[Case]]:
    grouped = defaultdict(list)
    for case in cases:
        if all(family(op.name) in FAMILIES for op in case.ops):
            grouped[case.ops[0].name].append(case)
    return dict(grouped)


def predicted(case: Case) -> list[Kernel]:
    return [kernel for op in case.ops for kernel in kernels(op, H200) or ()]


def wrong(cases: list[Case]) -> dict[str, list[str]]:
    """What differs, by case; empty where all agree."""
    found = {case.name: differences(predicted(case), case.kernels) for case in cases}
    return {name: lines for name, lines in found.items() if lines}


SINGLE, STEP = ours(single_ops()), ours(gpt2_step())


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_every_recorded_call_launches_what_the_cost_says(name: str):
    assert wrong(SINGLE[name]) == {}


@pytest.mark.parametrize("name", sorted(STEP))
def test_every_call_of_the_gpt2_step_launches_what_the_cost_says(name: str):
    assert wrong(STEP[name]) == {}


def test_the_recordings_hold_enough_to_tell():
    assert sum(map(len, SINGLE.values())) >= 300
    assert set(STEP) >= {
        "aten::native_layer_norm",
        "aten::native_layer_norm_backward",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_cudnn_attention_backward",
        "aten::_log_softmax",
        "aten::_log_softmax_backward_data",
        "aten::nll_loss_forward",
        "aten::nll_loss_backward",
        "aten::embedding",
        "aten::embedding_dense_backward",
    }


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_registers_are_those_that_the_gpu_gave(name: str):
    """Registers follow from no source; where a figure is given, it is the recorded one."""
    for case in SINGLE[name]:
        for ours, theirs in zip(predicted(case), case.kernels, strict=True):
            assert ours.registers in (None, theirs.registers), f"{case.name}: {ours.name}"


def test_a_difference_in_anything_is_noticed():
    case = next(case for case in SINGLE["aten::_softmax"] if len(case.kernels) == 1)
    (kernel,) = predicted(case)
    assert differences([kernel], case.kernels) == []
    for altered in (
        [],
        [replace(kernel, grid=(1, 1, 1))],
        [replace(kernel, block=(1, 1, 1))],
        [replace(kernel, name="a")],
    ):
        assert differences(altered, case.kernels)


BLOCK_SIZES = (768, 768, 2304 * 768, 2304, 768 * 768, 768, 768, 768, 3072 * 768, 3072, 768 * 3072, 768)
GPT2_SIZES = (50304 * 768, 1024 * 768, *BLOCK_SIZES * 12, 768, 768)
"""Elements of GPT-2 124M's 148 parameters, in the order of `parameters()`."""


def test_fused_adamw_of_gpt2_launches_what_the_step_launched():
    """1,996 chunks of 65,536 elements, at most 320 a launch: 7 launches."""
    lists = {name: tuple(tensor(size) for size in GPT2_SIZES) for name in ("self", "grads", "exp_avgs", "exp_avg_sqs")}
    steps = tuple(tensor() for _ in GPT2_SIZES)
    call = op(
        "_fused_adamw_",
        **lists,
        max_exp_avg_sqs=(),
        state_steps=steps,
        lr=3e-4,
        beta1=0.9,
        beta2=0.95,
        weight_decay=0.1,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
        grad_scale=None,
        found_inf=None,
    )
    found = kernels(call, H200)
    assert differences(found, gpt2_lists("aten::_fused_adamw_")) == []
    # Parameter, gradient and two moments read, all but the gradient written; and the counters of the chunks' tensors.
    moved = sum(kernel.min_bytes for kernel in found)
    assert 0 <= moved - 28 * sum(GPT2_SIZES) <= 4 * (148 + len(found))
