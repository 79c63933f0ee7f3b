"""Every form of tensor cores and of their moves against the PTX ISA: integers and moves bit for bit, floats in bounds.

The quick test takes some of each kind, evenly; the slow one takes all. How a GPU's tensor cores add exactly:
test_tensor_goldens.py.
"""

import numpy as np
import pytest

from simt.conformance.against import case_differences
from simt.conformance.cases import on_machine
from simt.conformance.replay import tensor_forms
from simt.conformance.tensor import held_cases, mma_case
from undertorch.gpus import find

QUICK = 12


@pytest.mark.parametrize("kind", ["mma", "matrices", "wmma", "wmma bits", "narrow"])
def test_results_are_those_of_the_definition(kind):
    found = [
        c for c in held_cases(tensor_forms()) if c.name.startswith(kind) and ("bits" in c.name) == ("bits" in kind)
    ]
    for case in found[:: max(1, len(found) // QUICK)]:
        wrong = case_differences(case)
        assert not wrong, (case.name, wrong[:3])


@pytest.mark.slow
@pytest.mark.parametrize("mma", ["fast", "exact"])
def test_results_of_all_forms_are_those_of_the_definition(mma):
    for case in held_cases(tensor_forms()):
        wrong = case_differences(case, mma=mma)
        assert not wrong, (case.name, wrong[:3])


def test_every_form_is_tried():
    forms = tensor_forms()
    assert {opcode for case in held_cases(forms) for opcode in case.forms} == set(forms)


def test_tiles_tell_models_apart():
    """A recorded tile is worth its bytes where generations differ: on many of an opcode's results."""
    case = mma_case("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    exact, other = (on_machine(case, find(gpu), mma="exact")[3] for gpu in ("H200", "A100-80GB"))
    fast = on_machine(case, find("H200"))[3]
    assert np.mean(exact != other) > 0.1
    assert np.mean(exact != fast) > 0.1
