"""Rows that are ignored, whatever number says so."""

import itertools

import pytest
import torch

from undertorch import ops

CLASSES, ROWS = 7, 9
SETTINGS = [
    {"weighted": weighted, "label_smoothing": smoothing, "z_loss": z_loss, "reduction": reduction}
    for weighted, smoothing, z_loss, reduction in itertools.product(
        (False, True), (0.0, 0.1), (0.0, 0.02), ("mean", "sum", "none")
    )
]


def defined(logits, labels, weight, ignored, *, label_smoothing, z_loss, reduction):
    """Row by row, as the head of ops/cross_entropy.py writes it down."""
    losses, factors = [], []
    for z, label in zip(logits, labels.tolist(), strict=True):
        lse = z.exp().sum().log()
        factor = 0.0 if label == ignored else weight[label]
        one = 0.0 if label == ignored else (1 - label_smoothing) * (lse - z[label]) + z_loss * lse**2
        others = 0.0 if label == ignored else label_smoothing / CLASSES * (weight * (lse - z)).sum()
        losses.append(factor * one + others + 0 * lse)
        factors.append(torch.as_tensor(factor, dtype=torch.float64))
    every = torch.stack(losses)
    return {"none": every, "sum": every.sum(), "mean": every.sum() / torch.stack(factors).sum()}[reduction]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("ignored", [-100, -1, 3, CLASSES, 255, 2**62])
def test_the_loss_and_its_gradient_are_of_the_others(ignored, settings):
    """255 is the usual one of segmentation; one of the classes may be ignored as well."""
    settings = dict(settings)
    torch.manual_seed(ignored % 1000)
    logits = torch.randn(ROWS, CLASSES, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, CLASSES, (ROWS,))
    labels[::4] = ignored
    weight = torch.rand(CLASSES, dtype=torch.float64) if settings.pop("weighted") else None
    ones = torch.ones(CLASSES, dtype=torch.float64)
    right = defined(logits, labels, ones if weight is None else weight, ignored, **settings)
    losses = [ops.cross_entropy(logits, labels, weight, ignore_index=ignored, **settings)]
    if weight is None and settings["reduction"] != "none":
        eye = torch.eye(CLASSES, dtype=torch.float64)
        losses.append(ops.linear_cross_entropy(logits, eye, labels, ignore_index=ignored, **settings))
    (gradient,) = torch.autograd.grad(right.sum(), logits)
    for loss in losses:
        torch.testing.assert_close(loss, right)
        torch.testing.assert_close(torch.autograd.grad(loss.sum(), logits)[0], gradient)
