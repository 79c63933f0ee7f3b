"""What an op cannot do is said in a sentence, on the CPU as on a GPU."""

import importlib
import re
import sys
import warnings
from functools import partial

import pytest
import torch

from undertorch import ops
from undertorch.ops import catalogue

X, W = torch.randn(4, 6), torch.randn(5, 6)
LAYER = torch.nn.Linear(6, 5)
LOGITS, LABELS = torch.randn(4, 5), torch.arange(4)
Q = torch.randn(1, 4, 3, 8)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ops.cross_entropy(LOGITS, LABELS, gradient="never"), "gradient is 'never'"),
        (lambda: ops.cross_entropy(LOGITS, LABELS, gradient="forward", reduction="none"), "needs reduction"),
        (lambda: ops.cross_entropy(LOGITS, LABELS, torch.ones(5, requires_grad=True)), "detach it"),
        (lambda: ops.cross_entropy(LOGITS, LABELS, softcap=float("inf")), "softcap is inf"),
        (lambda: ops.cross_entropy(LOGITS, LABELS, z_loss=float("nan")), "z_loss is nan"),
        (lambda: ops.linear_cross_entropy(X.bfloat16(), W, LABELS), "x is torch.bfloat16 and weight torch.float32"),
        (lambda: ops.linear_act(X, W.double()), "weight torch.float64"),
        (lambda: ops.linear_act(X, W, torch.ones(5).half()), "bias torch.float16"),
        (lambda: ops.linear_act(X, W, activation=["tanh"]), "activation is"),
        (lambda: ops.attention(Q, Q[:, :0], Q[:, :0]), "divide those of q"),
        (lambda: ops.attention(Q, Q, Q, window=2.5), "window is 2.5"),
        (lambda: ops.attention(Q, Q, Q, window=True), "window is True"),
        (lambda: ops.attention(Q, Q, Q, softcap=float("inf")), "softcap is inf"),
        (lambda: ops.cross_entropy(torch.randn(3, 0), LABELS[:3]), "of no classes"),
        (lambda: ops.cross_entropy(LOGITS, LABELS.to("meta")), "labels on meta"),
        (lambda: ops.cross_entropy(LOGITS, LABELS, torch.ones(5, device="meta")), "weight on meta"),
        (lambda: ops.linear_cross_entropy(X.int(), W.int(), LABELS), "pass floats"),
    ],
)
def test_it_is_said(call, said):
    with pytest.raises(ops.BadCall, match=said):
        call()


LOSSES = (partial(ops.cross_entropy, LOGITS, LABELS), partial(ops.linear_cross_entropy, X, W, LABELS))
HALF = torch.randn(3, 4)
NO_NUMBERS = ("1", 1j, 2**70, [1.0], torch.ones(()))
NO_FLAGS = (1, "yes", None, torch.ones(2))
WRONG = [
    *((loss, name, NO_NUMBERS) for loss in LOSSES for name in ("label_smoothing", "z_loss", "softcap")),
    *((loss, "ignore_index", (*NO_NUMBERS, None, 255.0, True)) for loss in LOSSES),
    *((loss, "reduction", (None, torch.ones(2))) for loss in LOSSES),
    (LOSSES[0], "gradient", (None, torch.ones(2))),
    (LOSSES[1], "accumulation", ("float32", torch.ones(2))),
    *((partial(ops.attention, Q, Q, Q), name, NO_NUMBERS) for name in ("softcap", "scale", "window")),
    *((partial(ops.attention, Q, Q, Q, window=w), "causal", NO_FLAGS) for w in (None, 2)),
    (partial(ops.rope, Q, Q, HALF, HALF), "interleaved", NO_FLAGS),
    (partial(ops.geglu, X, X), "approximate", (True, torch.ones(2))),
    (partial(ops.softmax, X), "dim", (True, 1.0)),
    *((partial(norm, X), "eps", NO_NUMBERS) for norm in (ops.rms_norm, ops.layer_norm)),
    *((partial(norm, X), "residual", (None, 1.0)) for norm in (ops.add_rms_norm, ops.add_layer_norm)),
    (partial(ops.AdamW, LAYER.parameters()), "max_norm", NO_NUMBERS),
    *((partial(ops.AdamW, LAYER.parameters()), name, NO_NUMBERS) for name in ("eps", "weight_decay")),
]


@pytest.mark.parametrize(
    ("call", "name", "values"), [pytest.param(*row, id=f"{row[0].func.__name__}-{row[1]}") for row in WRONG]
)
def test_no_argument_of_another_type_gets_as_far_as_torch(call, name, values):
    """torch's TypeError names its own function and arguments, an OverflowError neither."""
    for value in values:
        with pytest.raises(ops.BadCall, match=name):
            call(**{name: value})


TABLE = torch.randn(3, 4)


@pytest.mark.parametrize(
    ("op", "call", "said"),
    [
        ("rms_norm", lambda: ops.rms_norm(X, (6,), torch.ones(6)), "weight is of type tuple"),
        ("rms_norm", lambda: ops.rms_norm(X.numpy()), "x is of type ndarray"),
        ("layer_norm", lambda: ops.layer_norm(X, (6,), torch.ones(6), torch.ones(6)), "weight is of type tuple"),
        ("layer_norm", lambda: ops.layer_norm(X, None, 6), "bias is of type int"),
        ("add_rms_norm", lambda: ops.add_rms_norm(X, (6,)), "residual is of type tuple"),
        ("add_layer_norm", lambda: ops.add_layer_norm(X, X, [6]), "weight is of type list"),
        ("cross_entropy", lambda: ops.cross_entropy(LOGITS, [0, 1, 2, 3]), "labels is of type list"),
        ("cross_entropy", lambda: ops.cross_entropy(LOGITS, LABELS, -100), "weight is of type int"),
        ("linear_cross_entropy", lambda: ops.linear_cross_entropy(X, LAYER, LABELS), "Linear and no.*pass its"),
        ("linear_cross_entropy", lambda: ops.linear_cross_entropy(X, W, None), "labels is of type NoneType"),
        ("linear_act", lambda: ops.linear_act(X, LAYER), "weight is of type Linear"),
        ("linear_act", lambda: ops.linear_act(X, W, "gelu"), "bias is of type str"),
        ("swiglu", lambda: ops.swiglu(X, -1), "up is of type int"),
        ("geglu", lambda: ops.geglu([X], X), "gate is of type list"),
        ("softmax", lambda: ops.softmax([1.0]), "x is of type list"),
        ("rope", lambda: ops.rope(Q, Q, None, None), "cos is of type NoneType"),
        ("rope", lambda: ops.rope(Q, 4, TABLE, TABLE), "k is of type int"),
        ("attention", lambda: ops.attention(Q, Q, None), "v is of type NoneType"),
    ],
)  # fmt: skip
def test_what_is_no_tensor_is_told_what_the_op_takes(op, call, said):
    """Calls of torch's form, for one: the normalised shape second, a layer for its weight."""
    with pytest.raises(ops.BadCall, match=said) as raised:
        call()
    assert re.search(rf"; {op} takes \(\w+, .*\): ", str(raised.value))
    assert importlib.import_module(f"undertorch.ops.{op}").ARGUMENTS.layout in str(raised.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ops.rms_norm(X, eps=None), "eps is None; it is a number"),
        (lambda: ops.rms_norm(X, None, torch.ones(6)), "eps is of type Tensor"),
        (lambda: ops.softmax(X, None), "dim is None"),
        (lambda: ops.softmax(X, (0, 1)), r"dim is \(0, 1\)"),
        (lambda: ops.rope(Q, Q, torch.randn(3, 8), torch.randn(3, 8)), "pass half"),
        (lambda: ops.grad_norm(LAYER), "tensors is of type Linear"),
        (lambda: ops.adamw(LAYER.parameters(), [], [], [], [], lr=1e-3), "parameters is of type generator"),
        (lambda: ops.AdamW(LAYER.parameters(), lr=None), "lr is None"),
    ],
)
def test_what_torch_would_take_and_an_op_does_not_is_said(call, said):
    with pytest.raises(ops.BadCall, match=said):
        call()


def test_whole_logits_of_float16_are_told_of(monkeypatch):
    """Who takes the op for its memory is to know where it spares none; on a CPU nobody expects it to."""
    call = partial(ops.linear_cross_entropy, X.half(), W.half(), LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()
    monkeypatch.setattr(sys.modules["undertorch.ops.linear_cross_entropy"], "runs_own", lambda *_: True)
    with pytest.warns(UserWarning, match="bfloat16 spares them"):
        call()


def test_one_tensor_is_a_list_of_one():
    assert ops.grad_norm(torch.tensor(-3.0)) == 3.0


@pytest.mark.parametrize("wrong", [5, -1])
@pytest.mark.parametrize(
    "loss",
    [
        lambda labels: ops.cross_entropy(LOGITS, labels),
        lambda labels: ops.cross_entropy(LOGITS, labels, torch.ones(5), label_smoothing=0.1, reduction="none"),
        lambda labels: ops.cross_entropy(LOGITS, labels, z_loss=0.1),
        lambda labels: ops.linear_cross_entropy(X, W, labels),
    ],
)
def test_a_label_out_of_range_is_named_with_the_classes(loss, wrong):
    """Beside an ignored one, which is not to be named."""
    with pytest.raises(ops.BadLabel, match=rf"label {wrong} is neither one of the 5 classes"):
        loss(torch.tensor([1, -100, wrong, 4]))
    assert issubclass(ops.BadLabel, IndexError)


@pytest.mark.parametrize("keyword", ["fused", "foreach", "amsgrad", "maximize", "capturable", "differentiable"])
def test_what_the_optimizer_does_not_take_is_named(keyword):
    with pytest.raises(TypeError, match=keyword):
        ops.AdamW(LAYER.parameters(), **{keyword: True})


def test_the_clipping_is_the_scripts_and_not_the_states():
    """As docs/ops.md tells: a state has torch's form, and loading one leaves max_norm as the constructor has it."""
    first = ops.AdamW([torch.nn.Parameter(X.clone())], max_norm=1.0)
    assert set(first.param_groups[0]) == {"params", "lr", "betas", "eps", "weight_decay"}
    second = ops.AdamW([torch.nn.Parameter(X.clone())], max_norm=2.0)
    second.load_state_dict(first.state_dict())
    assert second.max_norm == 2.0


def test_every_op_says_what_it_takes():
    assert all(importlib.import_module(f"undertorch.ops.{op}").ARGUMENTS.layout for op in catalogue.NAMES)
