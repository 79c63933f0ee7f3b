"""The optimizer around the op: its state, its copies, and what it refuses. Numbers are in tests/ops_promises.py."""

import copy
import io
import pickle

import pytest
import torch

from undertorch import ops

TRUTH = {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.8, 0.95)}


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, 3, generator=generator).to(dtype).requires_grad_() for _ in range(2)]


def stepped(optimizer, some, times=1):
    for number in range(times):
        for p in some:
            p.grad = (p.detach().float().sin() * (number + 1)).to(p.dtype)
        optimizer.step()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["copy", "pickle"])
def test_a_copy_goes_on_as_the_original(copied):
    ours = parameters()
    optimizer = ops.AdamW(ours, max_norm=0.5, master_weights=False, **TRUTH)
    stepped(optimizer, ours, 2)
    other = copied(optimizer)
    theirs = other.param_groups[0]["params"]
    stepped(optimizer, ours, 2)
    stepped(other, theirs, 2)
    assert (other.max_norm, other.master_weights) == (0.5, False)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_it_can_be_saved_whole():
    optimizer = ops.AdamW(parameters())
    torch.save(optimizer, io.BytesIO())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_goes_on_from_the_state_of_torchs(dtype):
    """In float32 as torch would itself; of bfloat16 the master is the parameter as it is then."""
    before, after = parameters(dtype), parameters(dtype)
    theirs = torch.optim.AdamW(before, **TRUTH)
    stepped(theirs, before, 2)
    with torch.no_grad():
        for a, b in zip(after, before, strict=True):
            a.copy_(b)
    ours = ops.AdamW(after)
    ours.load_state_dict(theirs.state_dict())
    stepped(theirs, before, 2)
    stepped(ours, after, 2)
    states = [ours.state[p] for p in after]
    assert all(state["exp_avg"].dtype == torch.float32 for state in states)
    assert all(("master" in state) is (dtype == torch.bfloat16) for state in states)
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    assert all(torch.allclose(a, b, atol=tolerance) for a, b in zip(after, before, strict=True))


def test_masters_can_be_had_later():
    some = parameters(torch.bfloat16)
    optimizer = ops.AdamW(some, master_weights=False)
    stepped(optimizer, some)
    optimizer.master_weights = True
    stepped(optimizer, some)
    assert torch.equal(optimizer.state[some[0]]["master"].to(torch.bfloat16), some[0])


def test_without_its_master_a_weight_that_was_written_to_stays():
    (p, _) = some = parameters(torch.bfloat16)
    optimizer = ops.AdamW(some, lr=1e-4)
    stepped(optimizer, some)
    with torch.no_grad():
        p.fill_(5.0)
    optimizer.state[p].pop("master")
    stepped(optimizer, some)
    assert torch.all(p > 4.9)


@pytest.mark.parametrize("settings", [{"maximize": True}, {"amsgrad": True}], ids=str)
def test_a_state_that_goes_another_way_is_refused(settings):
    theirs = torch.optim.AdamW(parameters(), **settings)
    with pytest.raises(ops.BadCall, match=next(iter(settings))):
        ops.AdamW(parameters()).load_state_dict(theirs.state_dict())


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": -1.0}, {"lr": float("nan")}, {"lr": float("inf")}, {"eps": -1.0}, {"weight_decay": -1.0},
        {"betas": (1.5, 0.9)}, {"betas": (0.9, 0.9, 0.9)}, {"betas": 0.9},
    ],
    ids=str,
)  # fmt: skip
def test_numbers_that_are_none_of_adamws_are_refused(settings):
    with pytest.raises(ops.BadCall):
        ops.AdamW(parameters(), **settings)
    with pytest.raises(ops.BadCall):
        ops.AdamW([{"params": parameters(), **settings}])


def test_what_a_group_cannot_have_is_refused():
    with pytest.raises(ops.BadCall, match="it is of the whole optimizer"):
        ops.AdamW([{"params": parameters(), "max_norm": 1.0}])


def test_complex_parameters_are_refused():
    p = torch.zeros(3, dtype=torch.complex64, requires_grad=True)
    p.grad = torch.ones_like(p)
    with pytest.raises(ops.BadCall, match="view_as_real"):
        ops.AdamW([p]).step()
    with pytest.raises(ops.BadCall, match="complex64"):
        ops.grad_norm([p.grad])


def test_what_is_no_tensor_is_named():
    with pytest.raises(ops.BadCall, match="tensor 0 is None"):
        ops.grad_norm([None])
    p = [torch.ones(2)]
    with pytest.raises(ops.BadCall, match=r"steps\[0\] is 3"):
        ops.adamw(p, p, p, p, [3], lr=0.1)
