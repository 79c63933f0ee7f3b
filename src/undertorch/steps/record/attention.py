"""Which kernel `scaled_dot_product_attention` takes.

torch's own choice asks the driver which GPU it is. These are its rules for dense tensors on NVIDIA's GPUs, as of torch
2.11 (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.h), asked of the sheet. Everything else
(autocast, padding of the head, the mask) stays with torch. Nested tensors and AMD's GPUs are not covered: they get the
mathematical form.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend

from undertorch.records import Gpu
from undertorch.steps.record.patching import undone_by

HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """The arguments of one call."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    causal: bool
    grouped: bool
    """Several query heads share a key and a value head."""
    capability: tuple[int, int]

    @property
    def trains(self) -> bool:
        """Whether a backward will follow."""
        return any(tensor.requires_grad for tensor in (self.query, self.key, self.value))


class AttentionChoice:
    """Makes the choice for one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self._capability = gpu.compute_capability if gpu.vendor == "NVIDIA" else None
        if self._prefers_cudnn():
            order = (
                SDPBackend.CUDNN_ATTENTION,
                SDPBackend.FLASH_ATTENTION,
                SDPBackend.EFFICIENT_ATTENTION,
                SDPBackend.MATH,
            )
            before = torch._C._get_sdp_priority_order()
            undone_by(lambda: torch._C._set_sdp_priority_order(before))
            torch._C._set_sdp_priority_order([int(backend.value) for backend in order])

    def _prefers_cudnn(self) -> bool:
        """cuDNN (9.15.1 and later) comes first on compute capability 9 and 10 (check_prefer_cudnn_attention)."""
        wanted = os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") != "1"
        return wanted and self._capability is not None and self._capability[0] in (9, 10)

    def choose(self, *arguments: Any, **named: Any) -> int:
        """The backend's number for arguments of `aten::_fused_sdp_choice`. Raises RuntimeError where none may serve."""
        if self._capability is None:
            return int(SDPBackend.MATH.value)
        call = _attention(self._capability, *arguments, **named)
        for number in torch._C._get_sdp_priority_order():
            rule = RULES.get(int(number))
            if rule is not None and rule(call):
                return int(number)
        raise RuntimeError("No available kernel. Aborting execution.")  # torch's own words


def _attention(
    capability: tuple[int, int],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Attention:
    return Attention(
        query=query,
        key=key,
        value=value,
        mask=attn_mask,
        dropout=dropout_p,
        causal=is_causal,
        grouped=enable_gqa,
        capability=capability,
    )


def _cudnn(call: Attention) -> bool:
    return (
        torch._C._get_cudnn_sdp_enabled()
        and (8, 0) <= call.capability <= (12, 1)
        and _four_dimensions(call)
        and not _must_be_deterministic()
        and _dtype_in(call, HALVES)
        and _mask_fits(call)
        and _not_empty(call)
        and _last_is_contiguous(call, single_counts=True)
        and _heads_fit(call, grouped=call.grouped, key_and_value_alike=False)
        and _cudnn_shape(call)
    )


def _cudnn_shape(call: Attention) -> bool:
    batch, heads, queries, head = call.query.shape
    keys, value_head = call.key.shape[2], call.value.shape[3]
    deep_seek = call.capability[0] == 10 and (head, value_head) == (192, 128)
    limit = 256 if call.capability == (9, 0) else 192 if deep_seek else 128
    return (
        max(batch, heads) <= 65535
        and max(head, value_head) <= limit
        and head % 8 == 0
        and value_head % 8 == 0
        and keys != 1
        and (call.dropout == 0.0 or queries != 1)
    )


def _flash(call: Attention) -> bool:
    head = call.query.shape[-1]
    return (
        torch._C._get_flash_sdp_enabled()
        and (8, 0) <= call.capability <= (12, 1)
        and _four_dimensions(call)
        and call.mask is None
        and head == call.key.shape[-1] == call.value.shape[-1]
        and head <= 256
        and _flash_backward_fits(call, head)
        and (not call.causal or call.query.shape[-2] == call.key.shape[-2])
        and _dtype_in(call, HALVES)
        and _heads_fit(call, grouped=call.grouped, key_and_value_alike=True)
        and _not_empty(call)
        and _last_is_contiguous(call, single_counts=True)
    )


def _flash_backward_fits(call: Attention, head: int) -> bool:
    """GPUs with less shared memory cannot run the backward of wide heads."""
    small = (8, 6) <= call.capability <= (8, 9) or (12, 0) <= call.capability <= (12, 1)
    return not (call.trains and small) or head <= 192 or (call.dropout == 0.0 and head > 224)


def _efficient(call: Attention) -> bool:
    dtypes = (torch.float16, torch.float32, *((torch.bfloat16,) if call.capability[0] >= 8 else ()))
    alignment = _matmul_alignment(call)
    head, value_head = call.query.shape[-1], call.value.shape[-1]
    return (
        torch._C._get_mem_efficient_sdp_enabled()
        and (5, 0) <= call.capability <= (12, 1)
        and _four_dimensions(call)
        and head == call.key.shape[-1]
        and head > 0
        and value_head > 0
        and head % alignment == 0
        and value_head % alignment == 0
        and _not_empty(call)
        and _last_is_contiguous(call, single_counts=False)
        and _heads_fit(call, grouped=False, key_and_value_alike=True)
        and _dtype_in(call, dtypes)
    )


def _matmul_alignment(call: Attention) -> int:
    """Elements that the heads' width must be a multiple of: 16 bytes where tensor cores do the work."""
    half = call.query.dtype in HALVES
    tensor_cores = call.capability[0] >= 8 or (call.capability[0] == 7 and half)
    least = 4 if call.capability[0] >= 8 else 1
    return max(least, 128 // (16 if half else 32)) if tensor_cores else least


def _math(call: Attention) -> bool:
    return torch._C._get_math_sdp_enabled()


RULES: dict[int, Callable[[Attention], bool]] = {
    int(SDPBackend.CUDNN_ATTENTION.value): _cudnn,
    int(SDPBackend.FLASH_ATTENTION.value): _flash,
    int(SDPBackend.EFFICIENT_ATTENTION.value): _efficient,
    int(SDPBackend.MATH.value): _math,
}
"""Whether a backend may serve a call, by torch's number for it."""


def _four_dimensions(call: Attention) -> bool:
    return call.query.dim() == call.key.dim() == call.value.dim() == 4


def _must_be_deterministic() -> bool:
    return torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()


def _dtype_in(call: Attention, dtypes: tuple[torch.dtype, ...]) -> bool:
    return call.query.dtype in dtypes and call.query.dtype == call.key.dtype == call.value.dtype


def _not_empty(call: Attention) -> bool:
    return call.query.shape[-2] != 0 and call.key.shape[-2] != 0


def _last_is_contiguous(call: Attention, single_counts: bool) -> bool:
    tensors = (call.query, call.key, call.value)
    dense = all(tensor.stride(-1) == 1 for tensor in tensors) or (single_counts and call.query.shape[-1] == 1)
    return dense and (call.mask is None or call.mask.stride(-1) == 1)


def _heads_fit(call: Attention, grouped: bool, key_and_value_alike: bool) -> bool:
    if not call.query.shape[0] == call.key.shape[0] == call.value.shape[0]:
        return False
    queries, keys, values = (tensor.shape[-3] for tensor in (call.query, call.key, call.value))
    if not grouped:
        return queries == keys == values
    if key_and_value_alike and keys != values:
        return False
    return keys != 0 and values != 0 and queries % keys == 0 and queries % values == 0


def _mask_fits(call: Attention) -> bool:
    mask = call.mask
    if mask is None:
        return True
    if mask.requires_grad or mask.dim() not in (2, 4):
        return False
    batch, heads, queries, _ = call.query.shape
    wanted = (batch, heads, queries, call.key.shape[2])[-mask.dim() :]
    return all(size in (1, full) for size, full in zip(mask.shape, wanted, strict=True))
