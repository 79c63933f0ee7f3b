"""Ops that launch nothing: views, which show a storage otherwise, and allocations, which leave it as it is."""

from undertorch.costs.registry import cost
from undertorch.records import Gpu, Kernel, Op

VIEWS = (
    "_conj",
    "_indices",
    "_neg_view",
    "_reshape_alias",
    "_unsafe_view",
    "_values",
    "alias",
    "as_strided",
    "as_strided_",
    "chunk",
    "conj",
    "detach",
    "detach_",
    "diagonal",
    "expand",
    "expand_as",
    "imag",
    "indices",
    "lift",
    "lift_fresh",
    "mH",
    "mT",
    "movedim",
    "narrow",
    "permute",
    "positive",
    "real",
    "resolve_conj",
    "resolve_neg",
    "select",
    "set_",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "squeeze_",
    "swapaxes",
    "swapdims",
    "t",
    "t_",
    "transpose",
    "transpose_",
    "unbind",
    "unfold",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "unsqueeze",
    "unsqueeze_",
    "values",
    "view",
    "view_as",
    "view_as_complex",
    "view_as_real",
)
"""`resolve_conj` and `resolve_neg` copy only tensors that carry torch's lazy flag, which training seldom meets."""

ALLOCATIONS = (
    # A tensor known to be zero has no memory; a sparse one is made of its two.
    *("_efficientzerotensor", "_sparse_coo_tensor_with_dims_and_tensors"),
    *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_"),
)
"""Without `torch.use_deterministic_algorithms`, which fills what they allocate."""

NOTES = ("record_stream",)
"""Left with the allocator."""

QUESTIONS = (
    *("_has_same_storage_numel", "is_coalesced"),
    *("is_pinned", "is_same_size", "size", "stride", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride"),
)
"""Answered from the tensor's description."""


@cost(*(f"aten::{name}" for name in (*VIEWS, *ALLOCATIONS, *NOTES, *QUESTIONS)))
def no_kernels(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Nothing is launched."""
    return ()
