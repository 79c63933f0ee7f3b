"""The recorded ops are those that the H200 ran: the same names, as often, in the same order.

Only ops that launch something can be compared: a profiler's trace does not tell which view a dispatch mode would meet.
The traces are of torch 2.11; what another version does otherwise is named in DIFFERENCES.
"""

import pytest

from undertorch.records import Op
from undertorch.steps.record.missing import ONLY_ON_CUDA

RUNS = [
    ("gpt2.py",),
    ("accumulate.py",),
    ("checkpointed.py",),
    ("checkpointed.py", "reentrant"),
    ("formulas.py",),
    ("scaler.py",),
    ("memory.py",),
    ("adversaries.py",),
]

LAUNCHES_NOTHING = {
    "aten::_unsafe_view",
    "aten::detach",
    "aten::empty",
    "aten::expand",
    "aten::new_empty_strided",
    "aten::permute",
    "aten::select",
    "aten::slice",
    "aten::squeeze",
    "aten::t",
    "aten::transpose",
    "aten::unbind",
    "aten::unsqueeze",
    "aten::view",
    "cudaDeviceSynchronize",
}
"""Views, memory without contents, and a wait, which a profiler's trace has among CUDA's calls and not among the ops."""


def launching(ops: tuple[Op, ...]) -> list[str]:
    return [op.name for op in ops if op.name not in LAUNCHES_NOTHING]


@pytest.mark.parametrize("run", RUNS, ids=" ".join)
def test_the_ops_are_those_of_the_gpu_in_its_order(run, recording, golden):
    (step,) = (step for step in golden["steps"] if (step["script"], *step["arguments"]) == run)
    assert launching(recording(*run).ops) == [name for name, _ in step["ops"]]


def test_ops_that_only_cuda_has_a_kernel_for_are_not_taken_apart(recording, golden):
    """SiLU's backward is one of them. And one_hot writes into zeros there, where fake tensors would compare."""
    assert sorted(f"aten::{name}" for name in ONLY_ON_CUDA) == golden["own_kernels_of_composed_ops"]
    ops = recording("experts.py").ops
    silus = [op for op in ops if op.name == "aten::silu"]
    backwards = [op for op in ops if op.node == "SiluBackward0"]
    assert [op.name for op in backwards] == ["aten::silu_backward"] * len(silus)
    (written,) = (op for op in ops if op.name == "aten::scatter_" and op.overload == "value")
    assert written.results[0].shape == (96, 2, 8)
