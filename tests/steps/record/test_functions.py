"""Ops inside a custom Function's backward stand at the line that called the Function."""

import pytest

from undertorch.records import Phase

SCRIPT = "custom_functions.py"


@pytest.fixture(scope="module")
def recorded(recording):
    return recording(SCRIPT)


@pytest.mark.parametrize(
    ("call", "node", "names"),
    [
        ("    y = Cube.apply(y)", "CubeBackward", ["aten::pow", "aten::mul"]),
        ("    y = Once.apply(y)", "OnceBackward", ["aten::cosh"]),
        ("whole, rest = Split.apply(y)", "SplitBackward", ["aten::hypot"]),
        ("y = Outer.apply(whole * rest)", "OuterBackward", ["aten::sinh", "aten::atan"]),
        ("y = Reversed.apply(y)", "ReversedBackward", ["aten::neg"]),
        ("        return Cube.apply(x)", "CubeBackward", ["aten::pow", "aten::mul"]),
    ],
)
def test_a_backward_stands_where_its_function_was_called(recorded, line_of, call, node, names):
    """Once differentiable, with several outputs, calling others, without any op forward, and in a model that another
    backend than Inductor is to compile."""
    line = line_of(SCRIPT, call)
    assert [op.name for op in recorded.ops if op.where.line == line and op.node == node] == names


def test_a_backward_goes_back_to_the_first_op_of_its_forward(recorded):
    firsts = {op.node: recorded.ops[op.forward].name for op in recorded.ops if op.node and op.node != "AccumulateGrad"}
    assert (firsts["CubeBackward"], firsts["OnceBackward"], firsts["SplitBackward"], firsts["OuterBackward"]) == (
        *("aten::pow", "aten::sinh", "aten::floor", "aten::sinh"),
    )


def test_the_forward_keeps_its_own_line_with_the_call_above_it(recorded, line_of):
    (floor,) = (op for op in recorded.ops if op.name == "aten::floor")
    assert floor.phase is Phase.FORWARD
    assert floor.where.line == line_of(SCRIPT, "return x.floor()")
    assert [frame.line for frame in floor.chain] == [line_of(SCRIPT, "Split.apply(y)")]


def test_an_op_after_functions_goes_back_to_itself(recorded, line_of):
    """relu_ comes after one without any op forward: no node of theirs is taken for its own."""
    (relu,) = (op for op in recorded.ops if op.node == "ReluBackward0")
    assert relu.where.line == line_of(SCRIPT, "y.relu_()")
    assert recorded.ops[relu.forward].name == "aten::relu_"
