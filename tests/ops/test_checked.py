"""Every own kernel under undertorch's checks, on the machine: no race, no bad access, no bad barrier."""

import pytest
import torch

import undertorch
from ops_reduced import EVERYWHERE
from undertorch.records import Severity


@pytest.mark.slow
@pytest.mark.parametrize("group", EVERYWHERE)
def test_nothing_is_wrong_with_a_kernel(group, monkeypatch):
    monkeypatch.setenv("UNDERTORCH_OPS", "own")
    torch.manual_seed(0)
    with undertorch.checking() as found:
        EVERYWHERE[group]("cuda")
    assert found.checked
    assert [
        (one.kernel, f.message) for one in found.checked for f in one.findings if f.severity is Severity.ERROR
    ] == []
