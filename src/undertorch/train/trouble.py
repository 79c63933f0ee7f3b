"""What to say when a loss is no number: in which step, at which place of the text, which tensor was the first."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from undertorch.train.loader import Rows
from undertorch.train.model import GPT
from undertorch.train.tokens import Tokens

WORSE_THAN_GUESSING = 2.0
"""A loss of so many times that of guessing, log(vocabulary), which it begins at, is a run that has diverged."""


def wrong(loss: float, norm: float, vocabulary: int) -> str | None:
    """What is wrong with a step's numbers; None: nothing."""
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if not math.isfinite(norm):
        return f"the loss is {loss:.4f} and the norm of its gradient {norm}"
    if loss > WORSE_THAN_GUESSING * math.log(vocabulary):
        return f"the run has diverged: the loss is {loss:.4f}, and guessing blindly has {math.log(vocabulary):.4f}"
    return None


def described(step: int, what: str, model: GPT, microbatches: Sequence[Rows], tokens: Tokens) -> str:
    """The sentence that a run stops with: what was wrong, where in the text, and the first tensor that went bad."""
    places = [place for rows in microbatches for place in rows.places]
    documents = list(dict.fromkeys(tokens.document(place) for place in places))
    names = ", ".join(documents[:4]) + (f" and {len(documents) - 4} more" if len(documents) > 4 else "")
    return (
        f"step {step + 1}: {what}. Its rows begin at tokens {', '.join(map(str, places[:8]))}"
        f"{', …' if len(places) > 8 else ''} of epoch {microbatches[0].epoch + 1} ({names}). "
        f"{first_bad(model, microbatches)} "
        "The weights are those before this step. Try a lower --rate or a longer warm-up, and look at that text."
    )


def first_bad(model: GPT, microbatches: Sequence[Rows]) -> str:
    """A sentence on the first tensor, in the order in which a step makes them, that is not finite.

    Weights, then the forward of each microbatch by module, then gradients, from the last layer to the first.
    """
    for name, p in model.named_parameters():
        if not _finite(p):
            return f"The first tensor that is not finite is the weight {name}, {_where(p)}."
    found: list[str] = []
    names = {module: name or "the model" for name, module in model.named_modules()}

    def look(module: nn.Module, _: object, output: Tensor | tuple[Tensor, ...]) -> None:
        for tensor in output if isinstance(output, tuple) else (output,):
            if not found and not _finite(tensor):
                found.append(f"The first tensor that is not finite is what {names[module]} answers, {_where(tensor)}.")

    hooks = [module.register_forward_hook(look) for module in model.modules()]
    order: list[str] = []
    gradients = [
        p.register_hook(lambda grad, name=name: order.append(name) if not _finite(grad) else None)
        for name, p in model.named_parameters()
    ]
    device = next(model.parameters()).device
    try:
        for rows in microbatches:
            given = torch.from_numpy(rows.tokens).to(device)
            model(given[:, :-1], given[:, 1:]).backward()
            if found:
                return found[0]
            if order:
                return f"All that the forward makes is finite; the first gradient that is not is that of {order[0]}."
    finally:
        for hook in (*hooks, *gradients):
            hook.remove()
        model.zero_grad(set_to_none=True)
    return "Computed again, all tensors are finite: the fault is in the sum of microbatches, or does not repeat."


def _finite(tensor: Tensor) -> bool:
    return bool(tensor.detach().isfinite().all())


def _where(tensor: Tensor) -> str:
    """Which of its elements."""
    local = tensor.detach()
    bad = ~local.isfinite()
    first = tuple(bad.nonzero()[0].tolist())
    return f"{int(bad.sum()):,} of {local.numel():,} elements, the first at {list(first)}"
