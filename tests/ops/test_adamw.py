"""The optimizer around the op: its state, its copies, and what it refuses. Numbers are in tests/ops_promises.py."""

import copy
import gc
import io
import pickle
import sys

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


def gone_on_from(theirs, before, after):
    """Ours over `after`, from what theirs made of `before`; both have then made two steps more."""
    with torch.no_grad():
        for a, b in zip(after, before, strict=True):
            a.copy_(b)
    ours = ops.AdamW(after)
    ours.load_state_dict(theirs.state_dict())
    stepped(theirs, before, 2)
    stepped(ours, after, 2)
    return ours


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_goes_on_from_the_state_of_torchs(dtype):
    """In float32 as torch would itself; of bfloat16 the master is the parameter as it is then."""
    before, after = parameters(dtype), parameters(dtype)
    theirs = torch.optim.AdamW(before, **TRUTH)
    stepped(theirs, before, 2)
    ours = gone_on_from(theirs, before, after)
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
    p.data.fill_(5.0)  # past what autograd counts
    optimizer.state[p].pop("master")
    stepped(optimizer, some)
    assert torch.all(p > 4.9)
    p.data.fill_(-5.0)
    optimizer.state[p]["master"].copy_(p)
    stepped(optimizer, some)
    assert torch.all(p < -4.9)


def test_steps_of_torchs_between_two_of_ours_are_kept():
    """torch's hands our masters on as they were. Ten steps of a constant gradient are ten of lr, whoever makes them."""
    (p, _) = some = parameters(torch.bfloat16)
    begin = p.detach().clone()
    optimizer = None
    for kind, times in ((ops.AdamW, 3), (torch.optim.AdamW, 4), (ops.AdamW, 3)):
        before, optimizer = optimizer, kind(some, lr=0.1, weight_decay=0.0)
        if before is not None:
            optimizer.load_state_dict(before.state_dict())
        for _ in range(times):
            p.grad = torch.ones_like(p)
            optimizer.step()
    assert optimizer.state[p]["step"] == 10
    torch.testing.assert_close(begin.double() - p.double(), torch.full((4, 3), 1.0).double(), atol=0.05, rtol=0)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_fused_step_of_torchs_is_seen_and_the_rest_keeps_its_master(kind):
    """Autograd does not count what it writes, which is why torch's hook on every optimizer's step is asked."""
    (p, q) = some = parameters(torch.bfloat16)
    optimizer = ops.AdamW(some, lr=1e-4)
    stepped(optimizer, some, 2)
    theirs, version, of_q = kind([p], lr=0.1, fused=True), p._version, optimizer.state[q]["master"].clone()
    p.grad = torch.ones_like(p)
    theirs.step()
    moved = p.detach().clone()
    assert p._version == version
    assert not torch.equal(moved, optimizer.state[p]["master"].to(torch.bfloat16))
    p.grad, q.grad = torch.zeros_like(p), None
    for group in optimizer.param_groups:
        group.update(lr=0.0)
    optimizer.step()
    assert torch.equal(p, moved)
    assert torch.equal(optimizer.state[p]["master"], moved.float())
    assert torch.equal(optimizer.state[q]["master"], of_q)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["copy", "pickle"])
def test_a_copy_sees_fused_steps_too(copied):
    some = parameters(torch.bfloat16)
    optimizer = copied(ops.AdamW(some, lr=0.0))
    (p, _) = some = optimizer.param_groups[0]["params"]
    stepped(optimizer, some)
    p.grad = torch.ones_like(p)
    torch.optim.SGD([p], lr=0.1, fused=True).step()
    moved = p.detach().clone()
    stepped(optimizer, some)
    assert torch.equal(p, moved)


def test_torch_is_left_as_it_was_when_the_optimizer_goes():
    """One hook each, however often a state is loaded."""
    gc.collect()
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    before = dict(hooks)
    optimizer = ops.AdamW(parameters())
    optimizer.load_state_dict(optimizer.state_dict())
    assert len(hooks) == len(before) + 1
    del optimizer
    gc.collect()
    assert hooks == before


@torch.no_grad()
def averaged_in(p, model, optimizer):
    p[1:] = 5.0


@torch.no_grad()
def loaded_into_the_model(p, model, optimizer):
    model.load_state_dict({"0": torch.cat([p[:1], torch.full((3, 3), 5.0).bfloat16()]), "1": model[1]})


def loaded_after_the_optimizer(p, model, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())
    loaded_into_the_model(p, model, optimizer)


def loaded_before_the_optimizer(p, model, optimizer):
    loaded_into_the_model(p, model, optimizer)
    optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(
    "write", [averaged_in, loaded_into_the_model, loaded_after_the_optimizer, loaded_before_the_optimizer]
)
def test_what_others_wrote_to_a_weight_stays_and_the_rest_keeps_its_master(write):
    """A step of 1e-4 is less than the spacing of bfloat16 numbers about 1, so that weights move by their masters."""
    (p, _) = some = parameters(torch.bfloat16)
    model, optimizer = torch.nn.ParameterList(some), ops.AdamW(some, lr=1e-4)
    (q, _) = others = parameters(torch.bfloat16)
    alone = ops.AdamW(others, lr=1e-4)
    stepped(optimizer, some, 2)
    stepped(alone, others, 2)
    write(p, model, optimizer)
    stepped(optimizer, some, 1)
    stepped(alone, others, 1)
    assert torch.all(p[1:] > 4.9)
    assert torch.all(optimizer.state[p]["master"][1:] > 4.9)
    assert torch.equal(optimizer.state[p]["master"][0], alone.state[q]["master"][0])


def test_a_backward_that_wants_weights_from_before_a_step_is_refused(monkeypatch):
    """As after torch's step: its gradients would be of other weights. Autograd does not see what our kernels write."""
    monkeypatch.setattr(sys.modules["undertorch.ops.adamw"], "STEP", lambda *_: None)
    w = torch.ones(4, requires_grad=True)
    loss = w.square().sum()
    w.grad = torch.ones(4)
    ops.AdamW([w]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_moments_are_as_wide_as_they_are_kept_whoever_saved_them(dtype):
    """A state's numbers of parameters are names: torch goes by their order."""
    for saved in (torch.float32, torch.bfloat16, torch.float64):
        before, after = parameters(saved), parameters(dtype)
        theirs, ours = ops.AdamW(before, **TRUTH), ops.AdamW(after)
        stepped(theirs, before, 2)
        state = theirs.state_dict()
        names = dict(zip(state["state"], "ab", strict=True))
        state["state"] = {names[number]: kept for number, kept in state["state"].items()}
        state["param_groups"][0]["params"] = list("ab")
        ours.load_state_dict(state)
        stepped(ours, after)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        for p, q in zip(after, before, strict=True):
            kept = ours.state[p]
            assert kept["exp_avg"].dtype == kept["exp_avg_sq"].dtype == wide
            assert kept["step"] == 3
            assert theirs.state[q]["step"] == 2
            assert ("master" in kept) is (dtype == torch.bfloat16)


def test_a_hook_may_unwrap_what_was_saved():
    """As torch's optimizers have it, whose second hook sees what the first one answers."""
    some, others = parameters(torch.bfloat16), parameters(torch.bfloat16)
    first, second = ops.AdamW(some, **TRUTH), ops.AdamW(others)
    stepped(first, some)
    second.register_load_state_dict_pre_hook(lambda _, saved: saved["optimizer"])
    seen = []
    second.register_load_state_dict_post_hook(lambda o: seen.append(o.state[others[0]]["exp_avg"].dtype))
    second.load_state_dict({"optimizer": first.state_dict()})
    assert seen == [torch.float32]
    assert torch.equal(second.state[others[0]]["exp_avg"], first.state[some[0]]["exp_avg"])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (lambda some: torch.optim.SGD(some, momentum=0.9), "no betas"),
        (torch.optim.Adamax, "no exp_avg_sq"),
        (lambda some: torch.optim.Adam(some, weight_decay=0.1), "decoupled"),
        (torch.optim.NAdam, "NAdam's"),
        (torch.optim.RAdam, "RAdam's"),
    ],
)
def test_a_state_of_another_optimizer_is_refused(kind, said):
    some = parameters()
    theirs = kind(some)
    stepped(theirs, some)
    with pytest.raises(ops.BadCall, match=said):
        ops.AdamW(parameters()).load_state_dict(theirs.state_dict())


def test_adam_without_weight_decay_is_adamw_without():
    """Where nothing decays there is nothing to decouple: its state goes on, and decay is refused later, too."""
    before, after = parameters(), parameters()
    theirs = torch.optim.Adam(before, lr=1e-2, weight_decay=0.0)
    stepped(theirs, before, 2)
    ours = gone_on_from(theirs, before, after)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(after, before, strict=True))
    ours.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(ops.BadCall, match="decoupled"):
        stepped(ours, after)


def test_a_state_of_another_model_is_refused_and_nothing_of_it_loaded():
    some, ours = parameters(), ops.AdamW(parameters())
    theirs = ops.AdamW(some, lr=0.5)
    stepped(theirs, some)
    theirs.state[some[1]]["exp_avg"] = torch.zeros(3)
    with pytest.raises(ops.BadCall, match=r"\(3,\) and its parameter \(4, 3\)"):
        ours.load_state_dict(theirs.state_dict())
    assert not ours.state
    with pytest.raises(ops.BadCall, match="optimizer"):
        ours.load_state_dict({"optimizer": theirs.state_dict()})


@pytest.mark.parametrize("wrong", [{"maximize": True}, {"lr": -1.0}, {"eps": torch.ones(())}, "sparse"], ids=str)
def test_a_step_is_made_of_all_groups_or_of_none(wrong):
    a, b = parameters()
    optimizer = ops.AdamW([{"params": [a]}, {"params": [b]}])
    a.grad, b.grad = torch.ones_like(a), torch.ones_like(b)
    if wrong == "sparse":
        b.grad = b.grad.to_sparse()
    else:
        optimizer.param_groups[1].update(wrong)
    before = a.detach().clone()
    with pytest.raises(ops.BadCall):
        optimizer.step()
    assert torch.equal(a, before)
    assert optimizer.state[a].get("step", 0) == 0


@pytest.mark.parametrize("settings", [{"maximize": True}, {"amsgrad": True}], ids=str)
def test_a_state_that_goes_another_way_is_refused(settings):
    theirs = torch.optim.AdamW(parameters(), **settings)
    with pytest.raises(ops.BadCall, match=next(iter(settings))):
        ops.AdamW(parameters()).load_state_dict(theirs.state_dict())


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": -1.0}, {"lr": float("nan")}, {"lr": float("inf")}, {"eps": -1.0}, {"weight_decay": -1.0},
        {"betas": (1.5, 0.9)}, {"betas": (0.9, 0.9, 0.9)}, {"betas": 0.9}, {"betas": ("0.9", 0.9)}, {"eps": "1"},
        {"lr": torch.ones(2)}, {"weight_decay": torch.ones(())},
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
