"""The update: AdamW by undertorch.ops, clipping folded in, float32 masters of what is kept in bfloat16.

What it keeps goes by the names of the parameters, so that a checkpoint means the same on another number of GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from undertorch import ops
from undertorch.train.config import Settings
from undertorch.train.model import decayed


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters with the same weight decay, and what the update keeps of each."""

    names: tuple[str, ...]
    parameters: Sequence[nn.Parameter]
    masters: Sequence[Tensor] | None
    exp_avgs: Sequence[Tensor]
    exp_avg_sqs: Sequence[Tensor]
    steps: Sequence[Tensor]
    weight_decay: float


class Update(torch.optim.Optimizer):
    """Holds masters and moments; one `step` after each step's gradients. One of torch's optimizers in that it steps."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        self.settings = settings
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        super().__init__([p for _, p in named], {})
        device = named[0][1].device
        self.rate = torch.zeros((), device=device)
        """Of this step: a tensor, so that a CUDA graph takes it as it is then."""
        self.groups = tuple(
            self._group([(name, p) for name, p in named if decayed(name, p) is matrices], decay, device)
            for matrices, decay in ((True, settings.weight_decay), (False, 0.0))
        )

    def _group(self, named: Sequence[tuple[str, nn.Parameter]], decay: float, device: torch.device) -> Group:
        parameters = [p for _, p in named]
        half = any(p.dtype != torch.float32 for p in parameters)
        return Group(
            names=tuple(name for name, _ in named),
            parameters=parameters,
            masters=[p.detach().to(torch.float32, copy=True) for p in parameters] if half else None,
            exp_avgs=[torch.zeros_like(p, dtype=torch.float32, requires_grad=False) for p in parameters],
            exp_avg_sqs=[torch.zeros_like(p, dtype=torch.float32, requires_grad=False) for p in parameters],
            steps=[torch.zeros((), device=device) for _ in parameters],
            weight_decay=decay,
        )

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], norm: Tensor) -> None:  # type: ignore[override]
        """Updates every parameter in place at `self.rate`, its gradients clipped by their `norm`."""
        for group in self.groups:
            ops.adamw(
                group.parameters, [gradients[name] for name in group.names], group.exp_avgs, group.exp_avg_sqs,
                group.steps, lr=self.rate, betas=self.settings.betas, weight_decay=group.weight_decay,
                masters=group.masters, norm=norm, max_norm=self.settings.clip,
            )  # fmt: skip

    @torch.no_grad()
    def master_parameters(self) -> None:
        """Takes the masters anew from the parameters, whose values were set from outside."""
        for group in self.groups:
            for master, p in zip(group.masters or (), group.parameters, strict=group.masters is not None):
                master.copy_(p)

    def tensors(self) -> dict[str, Tensor]:
        """`weights.NAME` in float32, `exp_avg.NAME`, `exp_avg_sq.NAME`: the tensors themselves, by parameter."""
        found: dict[str, Tensor] = {}
        for group in self.groups:
            kept: Any = group.parameters if group.masters is None else group.masters
            for name, weight, first, second in zip(group.names, kept, group.exp_avgs, group.exp_avg_sqs, strict=True):
                found[f"weights.{name}"] = weight.detach()
                found[f"exp_avg.{name}"], found[f"exp_avg_sq.{name}"] = first, second
        return found

    @torch.no_grad()
    def restored(self, step: int) -> None:
        """After `tensors()`' tensors were written to: rounds the parameters anew and sets the counters."""
        for group in self.groups:
            if group.masters is not None:
                for p, master in zip(group.parameters, group.masters, strict=True):
                    p.copy_(master)
            for count in group.steps:
                count.fill_(step)
