"""Advice that is taken can be seen, and is not given again: `see`, a change, `see` again."""

import ast
import re
from pathlib import Path

import pytest

from undertorch import gpus
from undertorch.records import Phase
from undertorch.steps import advice
from undertorch.steps.see import see

SCRIPT = Path(__file__).with_name("taken.py")
FUSED = {"aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_adagrad_", "aten::_fused_sgd_"}
TAKEN = {
    *("alignment", "attention", "clipping", "cross-entropy", "float16", "foreach", "launching", "optimizer", "sync"),
    *("tf32", "update-loop", "weight-casts"),
}
NOT_THERE = {"flash_attn_qkvpacked_func", "p.mul_"}
"""Of a package that runs on a GPU alone; and what is to be replaced."""
pytestmark = pytest.mark.builds


@pytest.mark.parametrize(("dtype", "gpu"), [("bfloat16", "H200"), ("float16", "V100-SXM2-32GB")])
def test_a_script_that_takes_all_of_it_is_seen_and_hears_none_of_it_again(dtype, gpu):
    step = see(SCRIPT, (dtype,), gpus.find(gpu))
    assert not step.accounting.ops_without_cost
    assert {op.name for op in step.ops if op.phase is Phase.UPDATE} >= FUSED
    assert not {one.kind for one in step.advice} & TAKEN


def test_what_advice_names_stands_in_that_script():
    names = {name for file in Path(advice.__file__).parent.glob("*.py") for name in named(file)}
    assert {"torch.optim.SGD", "fused=True", "torch.compile"} < names
    words = set(re.findall(r"\w+", SCRIPT.read_text()))
    assert {name for name in names if re.findall(r"\w+", name)[-1] not in words} == NOT_THERE


def named(file):
    """Calls and names with dots in the texts of a file of advice, and arguments with their value."""
    tree = ast.parse(file.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.findall(r"\b[a-zA-Z_]+(?:\.[a-zA-Z_]\w*)+|\b\w+=True\b|\b\w+_func\b", node.value)
