"""AdamW (Loshchilov and Hutter, 2019) over many tensors in few launches, with clipping folded in and master weights.

Of each parameter p with gradient g, c = min(1, max_norm / (norm + 1e-6)) where a norm is given (1 otherwise), t its own
step, counted from 1:

    g = c * g;  m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g²
    p = p * (1 - lr * weight_decay) - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)

Contract
    Parameters and gradients of float32, bfloat16 or float16 on CUDA, moments float32; a parameter of a half type may
    have a float32 master, which is what is updated, and of which the parameter is the rounded copy. Whatever else
    floats (float64, the CPU, tensors with gaps) goes through the reference. Gradients are not written to. lr may be a
    tensor on the GPU; the step counters are tensors there: nothing waits for the GPU and a CUDA graph can hold the
    whole step. Elementwise, so the same result every time. DTensors are updated in their local parts. Raises BadCall.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from undertorch.costs.building import ceil_div
from undertorch.ops import adamw_kernels as kernels
from undertorch.ops.calls import Arguments, BadCall, is_number, on_device_of, runs_own
from undertorch.ops.candidates import Candidate
from undertorch.ops.choose import prefers_library
from undertorch.ops.grad_norm import DTYPES
from undertorch.ops.launching import launch
from undertorch.ops.operators import operator
from undertorch.ops.tensor_lists import Tables, by_dtypes, dense, laid_as, local

CLIP_EPS = 1e-6
"""As torch.nn.utils.clip_grad_norm_."""

ARGUMENTS = Arguments(
    layout="lists of as many tensors each; gradients, moments and masters have their parameter's shape, moments and "
    "masters float32; steps are float32 without dimensions, and counted up; norm without dimensions, or None",
    unlike_torch="torch.optim.adamw.adamw has no defaults for lr, betas, eps and weight_decay; here all but lr have "
    "those of torch.optim.AdamW (weight_decay 0.01, where Adam has 0)",
)

# Reference


def reference(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    lr: float | Tensor,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    masters: Sequence[Tensor] | None = None,
    norm: Tensor | None = None,
    max_norm: float | None = None,
) -> None:
    """The definition, in plain torch, in place."""
    clip = None
    if norm is not None and max_norm is not None:
        clip = (max_norm / (norm + CLIP_EPS)).clamp(max=1.0)
    wide = parameters if masters is None else masters
    for p, g, m, v, count, copy in zip(wide, gradients, exp_avgs, exp_avg_sqs, steps, parameters, strict=True):
        count.add_(1)
        given = g.to(m.dtype)
        if clip is not None:
            given = given * clip.to(m.device, m.dtype)
        m.lerp_(given, 1 - betas[0])
        v.mul_(betas[1]).addcmul_(given, given, value=1 - betas[1])
        t = count.double()
        first, second = 1 - betas[0] ** t, 1 - betas[1] ** t
        result = p.to(m.dtype) * (1 - lr * weight_decay)
        result -= (lr / first).to(m.dtype) * (m / (v.sqrt() / second.sqrt().to(m.dtype) + eps))
        p.copy_(result)
        if masters is not None:
            copy.copy_(result)


# Kernels: adamw_kernels.py.

CONFIGURATIONS = (
    (4096, 1024, 4), (8192, 1024, 4), (2048, 1024, 4), (4096, 2048, 8), (16384, 1024, 4), (4096, 2048, 4),
    (1024, 1024, 8), (2048, 2048, 8), (8192, 2048, 8), (32768, 1024, 4),
)  # fmt: skip
"""Elements of a block, those of them at a time, warps: the usual one first."""

_TABLES = Tables()


def adamw(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    lr: float | Tensor,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    masters: Sequence[Tensor] | None = None,
    norm: Tensor | None = None,
    max_norm: float | None = None,
    configuration: tuple[int, int, int] | None = None,
) -> None:
    """One step in place, on parameters, moments, step counters (float32 without dimensions) and masters.

    `norm` of all gradients (`grad_norm`) and `max_norm` clip them. Raises BadCall.
    """
    call = Call(
        parameters=parameters, gradients=gradients, exp_avgs=exp_avgs, exp_avg_sqs=exp_avg_sqs, steps=steps, lr=lr,
        betas=betas, eps=eps, weight_decay=weight_decay, masters=masters, norm=norm, max_norm=max_norm,
    )  # fmt: skip
    check(call)
    run(call, configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What `adamw` is given."""

    parameters: Sequence[Tensor]
    gradients: Sequence[Tensor]
    exp_avgs: Sequence[Tensor]
    exp_avg_sqs: Sequence[Tensor]
    steps: Sequence[Tensor]
    lr: float | Tensor
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    masters: Sequence[Tensor] | None
    norm: Tensor | None
    max_norm: float | None


def run(call: Call, configuration: tuple[int, int, int] | None = None) -> None:
    """A call that was checked."""
    kept = call.parameters if call.masters is None else call.masters
    every = (kept, call.gradients, call.exp_avgs, call.exp_avg_sqs, call.steps, call.parameters)
    lists = [[local(tensor) for tensor in some] for some in every]
    lr, clips = call.lr, call.max_norm is not None
    numbers = (
        lr if isinstance(lr, Tensor) else None, 0.0 if isinstance(lr, Tensor) else float(lr), *call.betas, call.eps,
        call.weight_decay, call.norm if clips else None, call.max_norm,
    )  # fmt: skip
    copies = lists[5] if call.masters is not None else None
    if configuration is not None:
        directly: Callable[..., None] = step
        directly(*lists[:5], copies, *numbers, configuration=configuration)
    else:
        STEP(*lists[:5], copies, *numbers)
    if not torch.compiler.is_compiling():  # a backward that still wants the old values is to raise, as after torch's
        increment_version(call.parameters)


def step(
    kept: Sequence[Tensor],
    gradients: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    steps: Sequence[Tensor],
    copies: Sequence[Tensor] | None,
    lr: Tensor | None,
    lr_value: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    norm: Tensor | None,
    max_norm: float | None,
    configuration: tuple[int, int, int] | None = None,
) -> None:
    """What is updated is `kept`; `copies` are the parameters of which it holds the masters."""
    settings: dict[str, Any] = {
        "lr": lr_value if lr is None else lr,
        "betas": (beta1, beta2),
        "eps": eps,
        "weight_decay": weight_decay,
        "norm": norm,
        "max_norm": max_norm,
    }
    lists = [kept, gradients, exp_avgs, exp_avg_sqs, steps, copies or kept]
    served = [_serves(*place) for place in zip(*lists, strict=True)]
    others = [[tensor for tensor, ours in zip(some, served, strict=True) if not ours] for some in lists]
    if others[0]:
        reference(others[5], *others[1:5], masters=None if copies is None else others[0], **settings)
    ours = [[tensor for tensor, own in zip(some, served, strict=True) if own] for some in lists]
    for group in by_dtypes(*ours):
        _update(group, copies is not None, configuration or CONFIGURATIONS[0], **settings)


STEP = operator(
    "adamw",
    "(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs,"
    " Tensor(d!)[] steps, Tensor(e!)[]? copies, Tensor? lr, float lr_value, float beta1, float beta2, float eps,"
    " float weight_decay, Tensor? norm, float? max_norm) -> ()",
    step,
    lambda *_: None,
)


def _update(
    group: Sequence[tuple[Tensor, ...]],
    master: bool,
    configuration: tuple[int, int, int],
    *,
    lr: float | Tensor,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    norm: Tensor | None,
    max_norm: float | None,
) -> None:
    chunk, block, warps = configuration
    group = [(p, laid_as(g, p), *rest) for p, g, *rest in group]
    p, g, m, v, steps, copies = ([place[i] for place in group] for i in range(6))
    table = _TABLES.of([p, g, m, v, copies], chunk, numbers=steps)
    device = p[0].device
    made = torch.empty((len(p), 4), dtype=torch.float32, device=device)
    clips = norm is not None and max_norm is not None
    its_norm = norm.to(device) if norm is not None and clips else None
    its_lr = lr.to(device) if isinstance(lr, Tensor) else None
    with on_device_of(p[0]):
        launch(
            kernels.coefficients, (ceil_div(len(p), 128),),
            table.pointers[5], made, its_lr, its_norm, len(p),
            0.0 if isinstance(lr, Tensor) else float(lr), log(betas[0]) if betas[0] else -1e4,
            log(betas[1]) if betas[1] else -1e4, weight_decay, max_norm if clips else 0.0,
            LR_TENSOR=its_lr is not None, CLIP=clips, BLOCK=128, num_warps=4,
        )  # fmt: skip
        launch(
            kernels.update, (table.blocks,),
            table.pointers, table.sizes, table.tensor_of_block, table.start_of_block, made, table.tensors,
            1 - betas[0], betas[1], 1 - betas[1], eps,
            P=DTYPES[p[0].dtype], G=DTYPES[g[0].dtype], COPY=DTYPES[copies[0].dtype], MASTER=master,
            ALIGNED=table.aligned, CHUNK=chunk, BLOCK=block, num_warps=warps,
        )  # fmt: skip


def _serves(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: Tensor, copy: Tensor) -> bool:
    """Whether the kernels can: moments and step are float32, and all lies as the parameter does, without gaps."""
    alike = all(t.stride() == p.stride() for t in (m, v, copy)) and dense(p)
    return (
        not prefers_library()
        and runs_own(p, g, m, v, step, copy)
        and m.dtype == v.dtype == step.dtype == torch.float32
        and alike
    )


def check_settings(lr: float | Tensor, betas: Sequence[float], eps: float, weight_decay: float) -> None:
    """Raises BadCall for numbers that AdamW is not defined for. What a tensor holds is not looked at."""
    pair = isinstance(betas, Sequence) and len(betas) == 2
    if not pair or not all(is_number(beta) and 0.0 <= beta < 1.0 for beta in betas):
        raise BadCall(f"adamw: betas are {betas!r}; they are two numbers, each from 0 to below 1.")
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise BadCall(f"adamw: lr is a tensor of shape {tuple(lr.shape)}; it is one number.")
        lr = 0.0
    for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
        if not (is_number(value) and 0.0 <= value < inf):
            raise BadCall(f"adamw: {name} is {value!r}; it is a number from 0 on.")


def check(call: Call) -> None:
    """Raises BadCall where the arguments do not fit together."""
    check_settings(call.lr, call.betas, call.eps, call.weight_decay)
    parameters = call.parameters
    lists = {
        "parameters": parameters,
        "gradients": call.gradients,
        "exp_avgs": call.exp_avgs,
        "exp_avg_sqs": call.exp_avg_sqs,
        "steps": call.steps,
    }
    if call.masters is not None:
        lists["masters"] = call.masters
    for name, tensors in lists.items():
        if isinstance(tensors, Tensor) or not hasattr(tensors, "__len__"):
            raise BadCall(f"adamw: {name} is of type {type(tensors).__name__}; pass a list of tensors.")
        if len(tensors) != len(parameters):
            raise BadCall(f"adamw: {len(tensors)} {name} for {len(parameters)} parameters; there is one to each.")
        for place, (tensor, p) in enumerate(zip(tensors, parameters, strict=True)):
            if not isinstance(tensor, Tensor):
                raise BadCall(f"adamw: {name}[{place}] is {tensor!r}; pass a tensor.")
            if name == "parameters" and tensor.is_complex():
                raise BadCall(f"adamw: {name}[{place}] is complex; pass torch.view_as_real of it.")
            if name != "steps" and tensor.shape != p.shape:
                raise BadCall(
                    f"adamw: {name}[{place}] has shape {tuple(tensor.shape)} and its parameter {tuple(p.shape)}."
                )
            if tensor.is_sparse:
                raise BadCall(f"adamw: {name}[{place}] is sparse, which AdamW is not defined for; use dense gradients.")
    norm, max_norm = call.norm, call.max_norm
    if norm is not None and not (isinstance(norm, Tensor) and norm.numel() == 1):
        raise BadCall(f"adamw: norm is {norm!r}; it is a tensor of one number, as grad_norm answers.")
    if max_norm is not None and (norm is None or not can_be_max_norm(max_norm)):
        raise BadCall(f"adamw: max_norm is {max_norm!r}; it is above 0, and comes with the norm of the gradients.")


def can_be_max_norm(value: Any) -> bool:
    """Whether gradients can be clipped to it."""
    return is_number(value) and value > 0


# Cost: costs/training_ops.py.

# Candidates

CANDIDATES = (
    Candidate(
        passes="step",
        who="undertorch",
        kernel="coefficients and update (Triton)",
        serves="float32 moments of tensors without gaps",
        why="clipping without a pass of its own, and float32 masters",
    ),
    Candidate(
        passes="step",
        who="PyTorch",
        kernel="the reference",
        serves="UNDERTORCH_OPS=library, other dtypes, tensors with gaps, the CPU",
        why="for what the kernels do not take",
    ),
)
