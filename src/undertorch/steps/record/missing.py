"""What torch does not know of ops on fake CUDA tensors: some shapes, and kernels that only a CUDA build has."""

from collections.abc import Callable
from typing import Any

import torch

from undertorch.steps.record.calls import Call
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.patching import undone_by

aten = torch.ops.aten
Shape = Callable[[Call, Fakes], Any]


def _like(tensor: torch.Tensor, fakes: Fakes) -> torch.Tensor:
    return fakes.empty(tensor.shape, tensor.dtype, tensor.device)


def _cudnn_rnn(call: Call, fakes: Fakes) -> Any:
    """torch's own rule, with an empty buffer of the weights: on a GPU they lie in it already. Cells without a second
    state have an empty one, which that rule gives a dtype of its own.
    """
    output, hy, cy, reserve, _ = fakes.run(call.func, call.types, call.args, call.named)
    empty = fakes.empty((0,), output.dtype, output.device)
    return output, hy, empty if call.args[5] is None else cy, reserve, empty


def _cudnn_rnn_backward(call: Call, fakes: Fakes) -> Any:
    """Gradients of the input, both hidden states and every weight, each as large as what it is of."""
    source, weights, hx, cx = call.args[0], call.args[1], call.args[4], call.args[5]
    return (
        _like(source, fakes),
        _like(hx, fakes),
        None if cx is None else _like(cx, fakes),
        [_like(weight, fakes) for weight in weights],
    )


def _rms_norm(call: Call, fakes: Fakes) -> Any:
    """The normalised input, and 1/rms a row in the precision it is computed in (native/cuda/layer_norm_kernel.cu)."""
    source, normalized = call.args[:2]
    rows = (*source.shape[: source.dim() - len(normalized)], *(1 for _ in normalized))
    precise = torch.float64 if source.dtype is torch.float64 else torch.float32
    return _like(source, fakes), fakes.empty(rows, precise, source.device)


def _gru_cell(call: Call, fakes: Fakes) -> Any:
    """The new hidden state, and for the backward five values a hidden unit (native/cuda/RNN.cu,
    GRU_WORKSPACE_MULTIPLIER).
    """
    hx = call.args[2]
    return _like(hx, fakes), fakes.empty((hx.shape[0], 5 * hx.shape[1]), hx.dtype, hx.device)


def _gru_cell_backward(call: Call, fakes: Fakes) -> Any:
    """Gradients of both gates (three a hidden unit), of the hidden state, and of both biases."""
    grad, biased = call.args[0], call.args[2]
    batch, hidden = grad.shape
    gates = [fakes.empty((batch, 3 * hidden), grad.dtype, grad.device) for _ in range(2)]
    biases = [fakes.empty((3 * hidden,), grad.dtype, grad.device) if biased else None for _ in range(2)]
    return (*gates, _like(grad, fakes), *biases)


def _ctc_loss(call: Call, fakes: Fakes) -> Any:
    """A loss a sequence; and log alpha over time and the target with blanks between (native/cuda/LossCTC.cu)."""
    probabilities, targets, lengths = call.args[0], call.args[1], call.args[3]
    time, batch = probabilities.shape[:2]
    longest = max(lengths, default=0) if isinstance(lengths, list) else targets.shape[-1]
    dtype, device = probabilities.dtype, probabilities.device
    return fakes.empty((batch,), dtype, device), fakes.empty((batch, time, 2 * longest + 1), dtype, device)


def _cudnn_ctc_loss(call: Call, fakes: Fakes) -> Any:
    """A loss a sequence, and the gradient at once."""
    probabilities = call.args[0]
    return fakes.empty((probabilities.shape[1],), probabilities.dtype, probabilities.device), _like(
        probabilities, fakes
    )


def _fake_quantized(call: Call, fakes: Fakes) -> Any:
    """What the quantized numbers stand for, and which of them were in range (native/quantized/FakeQuant*.cpp)."""
    source = call.args[0]
    return _like(source, fakes), fakes.empty(source.shape, torch.bool, source.device)


def _grid_sampler(call: Call, fakes: Fakes) -> Any:
    """The input at each point of the grid."""
    source, grid = call.args[:2]
    return fakes.empty((*source.shape[:2], *grid.shape[1:-1]), source.dtype, source.device)


def _grid_sampler_backward(call: Call, fakes: Fakes) -> Any:
    return _like(call.args[0], fakes), _like(call.args[1], fakes)


MISSING: dict[torch._ops.OpOverload, Shape] = {
    aten.cudnn_grid_sampler.default: _grid_sampler,
    aten.cudnn_grid_sampler_backward.default: _grid_sampler_backward,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _fake_quantized,
    aten.fake_quantize_per_channel_affine_cachemask.default: _fake_quantized,
    aten.fake_quantize_per_tensor_affine_cachemask.default: _fake_quantized,
    aten._fused_rms_norm.default: _rms_norm,
    aten._cudnn_rnn.default: _cudnn_rnn,
    aten._cudnn_rnn_backward.default: _cudnn_rnn_backward,
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
    aten._ctc_loss.default: _ctc_loss,
    aten._ctc_loss.Tensor: _ctc_loss,
    aten._cudnn_ctc_loss.default: _cudnn_ctc_loss,
    aten._cudnn_ctc_loss.Tensor: _cudnn_ctc_loss,
    **dict.fromkeys(
        (
            aten._ctc_loss_backward.default,
            aten._ctc_loss_backward.Tensor,
            aten.multi_margin_loss_backward.default,
            aten.multilabel_margin_loss_backward.default,
            aten.fractional_max_pool3d_backward.default,
        ),
        lambda call, fakes: _like(call.args[1], fakes),
    ),
    **dict.fromkeys(
        (aten._sample_dirichlet.default, aten._dirichlet_grad.default, aten._standard_gamma_grad.default),
        lambda call, fakes: _like(call.args[0], fakes),
    ),
}
"""By op, what it returns."""


def declare_kernels() -> torch.library.Library:
    """Declares to torch what a CUDA build does on CUDA tensors and torch would do otherwise on fake ones.

    The declarations hold as long as the library that is returned.
    """
    library = torch.library.Library("aten", "IMPL")
    undone_by(library._destroy)
    for name in ONLY_ON_CUDA:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CUDA"):
            library.impl(name, _never, "CUDA")
    library.impl("one_hot", _one_hot, "AutogradCUDA")
    return library


ONLY_ON_CUDA = ("_fused_rms_norm", "mish_backward", "silu_backward")
"""Ops with a kernel for CUDA and a composite form besides, by which a CPU build would take them apart."""


def _never(*arguments: Any, **named: Any) -> Any:
    raise NotImplementedError("There is no GPU to run this on.")


def _one_hot(source: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """A number written into zeros; for fake tensors torch compares instead (native/Onehot.cpp)."""
    classes = int(source.max().item()) + 1 if num_classes == -1 else num_classes
    zeros = torch.zeros((*source.shape, classes), dtype=torch.int64, device=source.device)
    return zeros.scatter_(-1, source.unsqueeze(-1), 1)
