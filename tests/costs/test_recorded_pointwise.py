"""Element-by-element Ops, copies, fills, random numbers, reductions and lists: against what an H200 launched for them.

Equal means: as many kernels, of the same names, grids, blocks and shared memory; memsets and memcpys of the same bytes.
"""

from collections import defaultdict
from dataclasses import replace

import pytest

from costs.by_hand import op, tensor
from costs.recorded import H200, Case, differences, edge_ops, gpt2_lists, gpt2_step, single_ops
from undertorch.costs import COSTS, kernels
from undertorch.records import Kernel

FAMILIES = {
    "activations",
    "concatenate",
    "copy",
    "elementwise",
    "fill",
    "foreach",
    "random",
    "reduction",
    "rules",
    "view_gradients",
}
"""Modules under test here; the other families have their own."""


def ours(cases: tuple[Case, ...]) -> dict[str, list[Case]]:
    """The cases of these families, by the name of their first Op."""
    grouped = defaultdict(list)
    for case in cases:
        if all(op.name in COSTS and COSTS[op.name].__module__.rsplit(".", 1)[-1] in FAMILIES for op in case.ops):
            grouped[case.ops[0].name].append(case)
    return dict(grouped)


def predicted(case: Case) -> list[Kernel]:
    return [kernel for op in case.ops for kernel in kernels(op, H200) or ()]


def wrong(cases: list[Case]) -> dict[str, list[str]]:
    """What differs, by case; empty where all agree."""
    found = {case.name: differences(predicted(case), case.kernels) for case in cases}
    return {name: lines for name, lines in found.items() if lines}


SINGLE, EDGES, STEP = ours(single_ops()), ours(edge_ops()), ours(gpt2_step())


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_every_recorded_call_launches_what_the_cost_says(name: str):
    assert wrong(SINGLE[name]) == {}


@pytest.mark.parametrize("name", sorted(EDGES))
def test_every_recorded_edge_launches_what_the_cost_says(name: str):
    """Rare dtypes, unaligned, strided, broadcast and empty tensors, more than 2³¹ elements, slow paths of lists."""
    assert wrong(EDGES[name]) == {}


@pytest.mark.parametrize("name", sorted(STEP))
def test_every_call_of_the_gpt2_step_launches_what_the_cost_says(name: str):
    assert wrong(STEP[name]) == {}


def test_the_recordings_hold_enough_to_tell():
    """Of the step all calls but those of attention, matmuls, norms, loss and embedding."""
    assert sum(map(len, SINGLE.values())) >= 340
    assert sum(map(len, EDGES.values())) >= 650
    assert sum(map(len, STEP.values())) >= 400


def test_a_difference_in_anything_is_noticed():
    case = SINGLE["aten::sum"][0]
    memset, kernel = predicted(case)
    assert differences([memset, kernel], case.kernels) == []
    for altered in (
        [kernel],
        [kernel, memset],
        [replace(memset, min_bytes_written=8), kernel],
        [memset, replace(kernel, grid=(1, 1, 1))],
        [memset, replace(kernel, block=(1, 1, 1))],
        [memset, replace(kernel, shared_bytes=0)],
        [memset, replace(kernel, name="reduce_kernel<256, 1, sum>")],
        [memset, replace(kernel, name="scan_kernel<512, 1, sum>")],
    ):
        assert differences(altered, case.kernels)


BLOCK_SIZES = (768, 768, 2304 * 768, 2304, 768 * 768, 768, 768, 768, 3072 * 768, 3072, 768 * 3072, 768)
GPT2_SIZES = (50304 * 768, 1024 * 768, *BLOCK_SIZES * 12, 768, 768)
"""Elements of GPT-2 124M's 148 parameters, in the order of `parameters()`."""


def test_gradient_clipping_of_gpt2_launches_what_the_step_launched():
    """148 · 590 partial results zeroed, 1,996 chunks in 7 launches, one clean-up; the product, 7 launches."""
    gradients = tuple(tensor(size) for size in GPT2_SIZES)
    norms = tuple(tensor() for _ in gradients)
    norm = op("_foreach_norm", *norms, overload="Scalar", self=gradients, ord=2.0, dtype=None)
    assert differences(kernels(norm, H200), gpt2_lists("aten::_foreach_norm")) == []
    scale = op("_foreach_mul_", overload="Tensor", self=gradients, other=tensor())
    assert differences(kernels(scale, H200), gpt2_lists("aten::_foreach_mul_")) == []


def test_step_counters_of_gpt2_go_110_a_launch():
    counters = tuple(tensor() for _ in GPT2_SIZES)
    add = op("_foreach_add_", overload="Scalar", self=counters, scalar=1)
    assert differences(kernels(add, H200), gpt2_lists("aten::_foreach_add_")) == []
