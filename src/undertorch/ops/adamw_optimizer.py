"""AdamW as an optimizer of torch's: the op (adamw.py) with its state, clipping and master weights."""

import weakref
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from undertorch.ops.adamw import Call, can_be_max_norm, check, check_settings, run
from undertorch.ops.calls import Arguments, BadCall
from undertorch.ops.grad_norm import grad_norm
from undertorch.ops.tensor_lists import local

OPTIMIZER = Arguments(
    layout="params as torch's optimizers take them: tensors, or groups with settings of their own",
    unlike_torch="The defaults are torch.optim.AdamW's (weight_decay 0.01 in both; Adam's is 0). Moments are float32 "
    "(float64 of float64), torch's have the parameter's dtype; half types have float32 masters, unless "
    "master_weights=False",
)


class AdamW(torch.optim.Optimizer):
    """`torch.optim.AdamW`, with clipping and master weights. Its state and checkpoints have torch's names.

    max_norm: gradients whose norm, over all parameters of the optimizer, is above it are scaled down to it; the norm
    stands in `.norm` after a step. master_weights: parameters of a half type are kept in float32 too (`master` of the
    state), and rounded from there. A parameter that others have written to, or that another optimizer has stepped,
    counts: of what is not its master rounded the master is taken anew.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        max_norm: float | None = None,
        master_weights: bool = True,
    ) -> None:
        check_settings(lr, betas, eps, weight_decay)
        if max_norm is not None and not can_be_max_norm(max_norm):
            raise BadCall(f"AdamW: max_norm is {max_norm!r}; it is a number above 0, or None.")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.max_norm = max_norm
        self.master_weights = master_weights
        self.norm: Tensor | None = None
        self._versions: dict[Tensor, int | None] = {}
        """Of parameters with masters, after the step that last wrote both: autograd's count of the writes by then."""
        self._others = _follow_others(self)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy and a pickle hold: torch's optimizers leave out what is not of a group."""
        settings = {"max_norm": self.max_norm, "master_weights": self.master_weights, "norm": self.norm}
        return {**super().__getstate__(), **settings, "_versions": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As torch's, which calls it for a copy, a pickle and a loaded state."""
        super().__setstate__(state)
        if not hasattr(self, "_others"):
            self._others = _follow_others(self)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's. Raises BadCall for settings that a group cannot have."""
        _check_group({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        active = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        if self.max_norm is not None:
            self.norm = grad_norm(p.grad for some in active for p in some)
        calls = [
            self._call(some, group, with_master)
            for group, parameters in zip(self.param_groups, active, strict=True)
            for with_master in (False, True)
            if (some := [p for p in parameters if self._has_master(p) is with_master])
        ]
        for call in calls:  # all of them before anything is written
            check(call)
        for call in calls:
            run(call)
        self._versions.update((p, _version(p)) for call in calls if call.masters is not None for p in call.parameters)
        return loss

    def _has_master(self, p: Tensor) -> bool:
        return self.master_weights and p.dtype in (torch.bfloat16, torch.float16)

    def _call(self, parameters: list[Tensor], group: dict[str, Any], with_master: bool) -> Call:
        _check_group(group)
        states = [self._state(p) for p in parameters]
        return Call(
            parameters=parameters,
            gradients=[p.grad for p in parameters if p.grad is not None],
            exp_avgs=[state["exp_avg"] for state in states],
            exp_avg_sqs=[state["exp_avg_sq"] for state in states],
            steps=[state["step"] for state in states],
            lr=group["lr"],
            betas=group["betas"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            masters=[state["master"] for state in states] if with_master else None,
            norm=self.norm,
            max_norm=self.max_norm,
        )

    def _state(self, p: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
            state["exp_avg"] = torch.zeros_like(p, dtype=_wide(p))
            state["exp_avg_sq"] = torch.zeros_like(p, dtype=_wide(p))
        if self._has_master(p):
            if "master" not in state:
                state["master"] = p.detach().to(torch.float32, copy=True)
            elif (before := self._versions.get(p)) is None or before != _version(p):
                _follow(state["master"], p)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, and also of torch's AdamW. Moments and masters are float32 (moments of float64 as wide).

        Raises BadCall for what is no state of AdamW's, or asks for amsgrad or maximize.
        """
        given: dict[Tensor, Mapping[str, Any]] = {}

        def look(_: Any, state_dict: dict[str, Any]) -> None:
            given.update(self._found(state_dict))

        def widen(_: Any) -> None:
            for p, saved in given.items():
                self._restore(p, saved)
            self._versions.clear()

        # Other hooks may unwrap what was saved before it is looked at, and look at what was made of it.
        hooks = (
            self.register_load_state_dict_pre_hook(look),
            self.register_load_state_dict_post_hook(widen, prepend=True),
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _found(self, state_dict: Mapping[str, Any]) -> dict[Tensor, Mapping[str, Any]]:
        """What was saved of each parameter, which torch knows by their order. Raises BadCall."""
        if "param_groups" not in state_dict or "state" not in state_dict:
            raise BadCall(f"AdamW: the state has {sorted(map(str, state_dict))}; it is what `state_dict()` answers.")
        groups = state_dict["param_groups"]
        for group in groups:
            _check_group(group)
        names = chain.from_iterable(group["params"] for group in groups)
        every = chain.from_iterable(group["params"] for group in self.param_groups)
        found = {p: state_dict["state"].get(name, {}) for name, p in zip(names, every, strict=False)}
        for p, saved in found.items():
            for name in ("step", "exp_avg", "exp_avg_sq") if saved else ():
                if name not in saved:
                    raise BadCall(f"AdamW: the state has {sorted(map(str, saved))} of a parameter, and no {name}.")
            for name in _AS_THE_PARAMETER:
                if name in saved and saved[name].shape != p.shape:
                    shapes = f"{tuple(saved[name].shape)} and its parameter {tuple(p.shape)}"
                    raise BadCall(f"AdamW: the {name} of the state has shape {shapes}.")
        return found

    def _restore(self, p: Tensor, saved: Mapping[str, Any]) -> None:
        """As wide as it is kept: torch gave each tensor the parameter's dtype."""
        state = self.state[p] if saved else {}
        if "step" in saved:  # once a number, in torch's
            state["step"] = torch.as_tensor(saved["step"]).to(p.device, torch.float32, copy=True)
        for name in _AS_THE_PARAMETER:
            if name in saved:
                state[name] = saved[name].to(p.device, _wide(p), copy=True)
        if not self._has_master(p):
            state.pop("master", None)


_AS_THE_PARAMETER = ("exp_avg", "exp_avg_sq", "master")


def _wide(p: Tensor) -> torch.dtype:
    return torch.float64 if p.dtype == torch.float64 else torch.float32


def _version(p: Tensor) -> int | None:
    """How often it was written to, as autograd counts; None: nobody counts."""
    return None if p.is_inference() else p._version


def _follow(master: Tensor, p: Tensor) -> None:
    """Takes from the parameter what is not its master rounded. Waits for nothing."""
    master, p = local(master), local(p.detach())
    master.copy_(torch.where(master.to(p.dtype) == p, master, p.to(master.dtype)))


def _follow_others(optimizer: AdamW) -> "weakref.finalize[Any, AdamW]":
    """From now on a step of another optimizer counts as a write to its parameters, also one of torch's with fused=True,
    which autograd does not count. Answers what takes torch's hook away, at the latest when the optimizer goes.
    """
    ours = weakref.ref(optimizer)

    def stepped(other: torch.optim.Optimizer, _: Any, __: Any) -> None:
        mine = ours()
        if mine is not None and mine is not other:
            for p in chain.from_iterable(group["params"] for group in other.param_groups):
                mine._versions.pop(p, None)

    end = weakref.finalize(optimizer, register_optimizer_step_post_hook(stepped).remove)
    end.atexit = False
    return end


NOT_OF_A_GROUP = {
    "amsgrad": "it is not served",
    "maximize": "it is not served",
    "max_norm": "it is of the whole optimizer",
    "master_weights": "it is of the whole optimizer",
    "momentum_decay": "it is NAdam's",
}


def _check_group(group: dict[str, Any]) -> None:
    """Raises BadCall for numbers that are none of AdamW's, and for what would be passed over in silence."""
    for name in ("lr", "betas", "eps", "weight_decay"):
        if name not in group:
            raise BadCall(f"AdamW: a group of parameters has no {name}; it is none of AdamW's.")
    check_settings(group["lr"], group["betas"], group["eps"], group["weight_decay"])
    for name, why in NOT_OF_A_GROUP.items():
        if group.get(name):
            raise BadCall(f"AdamW: a group of parameters has {name}={group[name]!r}; {why}.")
    if "decoupled_weight_decay" in group and "amsgrad" not in group:
        raise BadCall("AdamW: a group of parameters has decoupled_weight_decay and no amsgrad; it is RAdam's.")
    if group["weight_decay"] and not group.get("decoupled_weight_decay", True):  # without decay Adam is AdamW
        raise BadCall("AdamW: a group of parameters has decoupled_weight_decay=False; AdamW's is decoupled.")
