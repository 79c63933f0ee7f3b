"""Own gradients of a training step, by the machine, against torch's."""

import pytest
import torch
from torch.nn import functional

import undertorch
from undertorch.ops.calls import on_host
from undertorch.train import gradients, layers


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setenv("UNDERTORCH_OPS", "own")
    with undertorch.machine(gpu="A100-80GB"), on_host():
        yield


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("rows", "width"), [(1, 5), (37, 300), (64, 256)])
def test_columns_are_summed(rows, width):
    x = drawn(rows, width)
    torch.testing.assert_close(gradients.bias_gradient(x), x.double().sum(0).float())


@pytest.mark.parametrize(("queries", "keys", "size"), [(4, 4, 16), (6, 2, 64), (1, 1, 128)])
def test_heads_are_joined_as_cat_does_and_their_columns_summed(queries, keys, size):
    """Whichever of heads and tokens lies inside."""
    dq = drawn(2, 13, queries, size).transpose(1, 2)
    dk, dv = drawn(2, keys, 13, size, seed=1), drawn(2, keys, 13, size, seed=2)
    joined, sums = gradients.join(dq, dk, dv)
    wanted = torch.cat([part.transpose(1, 2).reshape(26, -1) for part in (dq, dk, dv)], 1)
    assert torch.equal(joined, wanted)
    torch.testing.assert_close(sums, wanted.double().sum(0).float())


@pytest.mark.parametrize("tokens", [[5] * 40, list(range(40)), [0, 0, 7, 39, 7, 0, 7, 7, 39] * 3, [11]])
def test_a_tied_embedding_has_the_gradient_of_both_its_uses(tokens):
    weight, given = drawn(40, 300).requires_grad_(), torch.tensor([tokens])

    def loss(embedded, last):
        return (embedded * 0.3 @ last.t()).square().mean()

    tie = layers.Tie(weight)
    ours = torch.autograd.grad(loss(tie.embedded(given), tie.last()), weight)
    theirs = torch.autograd.grad(loss(functional.embedding(given, weight), weight), weight)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("rows", [1, 255, 300])
def test_a_linear_layer_has_torchs_gradients(rows):
    given = drawn(rows, 6), drawn(5, 6, seed=1), drawn(5, seed=2)
    same(layers.linear, functional.linear, given)


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (4, 2)])
def test_heads_have_torchs_gradients(queries, keys):
    width = (queries + 2 * keys) * 8

    def by_torch(x, weight, bias):
        inner = functional.linear(x, weight, bias).view(2, 7, queries + 2 * keys, 8)
        return tuple(part.transpose(1, 2) for part in inner.split((queries, keys, keys), dim=2))

    given = drawn(2, 7, 6), drawn(width, 6, seed=1), drawn(width, seed=2)
    same(lambda *leaves: layers.heads(*leaves, queries, keys), by_torch, given)


def same(ours, theirs, given):
    """The answers and all gradients of two functions."""
    results = []
    for function in (ours, theirs):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        found = function(*leaves)
        answers = found if isinstance(found, tuple) else (found,)
        sum(answer.sin().sum() for answer in answers).backward()
        results.append([*answers, *(leaf.grad for leaf in leaves)])
    for mine, wanted in zip(*results, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)
