"""How the cross-entropy's kernels, in Triton and in CUDA C++ (cross_entropy.cu), are cut and launched."""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undertorch.costs.building import ceil_div
from undertorch.costs.training_ops import entropy_cut, padded
from undertorch.ops import cross_entropy_kernels as kernels
from undertorch.ops.calls import MOST_SHARED, most_warps, multiprocessors
from undertorch.ops.captures import beside_capture, captures
from undertorch.ops.choose import DOES_NOT_RUN
from undertorch.ops.cuda_source import CudaKernel, CudaSource
from undertorch.ops.launching import launch
from undertorch.ops.told import told

VECTOR = kernels.VECTOR.value
"""Elements that a thread moves at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What stays the same from call to call."""

    ignore_index: int
    smoothing: float
    reduction: str
    z_loss: float
    softcap: float | None

    @property
    def flags(self) -> dict[str, bool]:
        """Those that a kernel is compiled for."""
        return {"CAPPED": self.softcap is not None, "SMOOTH": self.smoothing > 0, "Z_LOSS": self.z_loss != 0}

    @property
    def numbers(self) -> tuple[int, float, float, float]:
        """Those that a kernel is handed."""
        return self.ignore_index, self.smoothing, self.z_loss, self.softcap or 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """How a kernel is cut: the elements of a row that a block works on at a time, and its warps."""

    block: int = 4096
    warps: int = 8

    def __str__(self) -> str:
        return f"{self.block} elements, {self.warps} warps"


LOSS_PIECES = ((4096, 8), (2048, 4), (8192, 8), (8192, 16), (1024, 4), (4096, 16), (256, 1))
BOTH_PIECES = ((16384, 32), (8192, 16), (16384, 16), (4096, 16), (4096, 8), (2048, 4), (1024, 4), (256, 1))
GRADIENT_PIECES = ((2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (1024, 4), (256, 1))
"""Elements and warps, the fastest first: 32768 x 50304 bfloat16 on an H200."""


def pieces(width: int, kinds: tuple[tuple[int, int], ...]) -> tuple[Piece, ...]:
    """Ways to cut one of the kernels, the fastest first: no piece is longer than the row."""
    most = max(padded(width), 256)
    return tuple(Piece(block=block, warps=warps) for block, warps in kinds if block <= most)


def loss_pieces(width: int, itemsize: int, *, gradient: bool) -> tuple[Piece, ...]:
    """Ways to cut the loss, alone or with its gradient, the usual one first."""
    block, warps = entropy_cut(width, itemsize, gradient=gradient)
    usual = Piece(block=block, warps=warps)
    return usual, *(piece for piece in pieces(width, BOTH_PIECES if gradient else LOSS_PIECES) if piece != usual)


def ways_of_both(logits: Tensor, source: Tensor, weight: Tensor | None, softcap: float | None) -> tuple[Any, ...]:
    """Ways to cut the loss with its gradient, the usual one first. `source` is the matrix of rows."""
    width = logits.shape[-1]
    first, *others = loss_pieces(width, logits.element_size(), gradient=True)
    rings = [ring for ring in RINGS if ring.holds(width)] if serves_ring(logits, source, weight, softcap) else []
    if rings and loads_ring(logits.device):
        return rings[0], first, *rings[1:2], *others, *rings[2:]
    return first, *others


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """How cross_entropy.cu is cut: threads that compute, and bytes of a slot of its ring."""

    threads: int = 512
    slot_bytes: int = 16384
    cluster: int = 1
    """Blocks that share a row."""

    def __str__(self) -> str:
        return f"row in shared memory, {self.threads} threads, slots of {self.slot_bytes} bytes, {self.cluster} blocks"

    @property
    def slots(self) -> int:
        """As many as fit: two barriers of 8 bytes go with each, and the blocks' sums."""
        return (MOST_SHARED - RING_SUMS) // (self.slot_bytes + 16)

    def defines(self, settings: Settings) -> dict[str, int]:
        """The constants that cross_entropy.cu is compiled with."""
        flags = settings.flags
        return {
            "THREADS": self.threads,
            "CLUSTER": self.cluster,
            "SLOTS": self.slots,
            "SLOT_BYTES": self.slot_bytes,
            "SMOOTH": flags["SMOOTH"],
            "Z_LOSS": flags["Z_LOSS"],
        }

    def holds(self, width: int) -> bool:
        """Whether a row fits, with the two slots whose stores may still be reading (PENDING)."""
        share = ceil_div(width // 8, self.cluster) * 16
        return self.cluster * 8 <= width and ceil_div(share, self.slot_bytes) + 2 <= self.slots


RING_SUMS = 16 + 2 * 32 * 12 + 32
"""Bytes after the ring: two barriers, sums of at most 32 warps for two rows, and those of the other block."""

RINGS = tuple(
    Ring(threads=threads, slot_bytes=size, cluster=cluster)
    for cluster in (1, 2)
    for threads, size in ((384, 12288), (768, 12288), (512, 16384), (256, 16384), (512, 8192))
)
"""The fastest first: 1.68 to 1.81 ms with one block a row, 2.01 to 2.45 with two (32768 x 50304 bfloat16, H200)."""

NARROWEST_RING = 32768
"""Elements. A row in shared memory is read once, and each row has its barriers. On an H200, with the best of Triton:
32768 x 50304 1.69 ms and 2.04, 8192 x 128256 (two blocks a row) 1.09 and 1.41; 8192 x 32000 324 µs and 318."""


def serves_ring(logits: Tensor, rows_matrix: Tensor, weight: Tensor | None, softcap: float | None) -> bool:
    """Whether cross_entropy.cu takes the call: bulk copies move multiples of 16 bytes, between multiples of 16."""
    width = logits.shape[-1]
    return (
        width >= NARROWEST_RING
        and logits.is_cuda
        and torch.cuda.get_device_capability(logits.device)[0] == 9
        and logits.dtype == torch.bfloat16
        and weight is None
        and softcap is None
        and width % 8 == 0
        and rows_matrix.stride(0) % 8 == 0
        and rows_matrix.data_ptr() % 16 == 0
    )


SOURCE = CudaSource(Path(__file__).with_name("cross_entropy.cu"))


@cache
def loads_ring(device: torch.device) -> bool:
    """Whether cross_entropy.cu can be compiled and loaded here."""
    plain = Settings(ignore_index=-100, smoothing=0.0, reduction="mean", z_loss=0.0, softcap=None)
    try:
        _ring_kernel(RINGS[0], plain, torch.empty(0, device=device))
    except DOES_NOT_RUN:
        return False
    return True


def _ring_kernel(ring: Ring, settings: Settings, like: Tensor) -> CudaKernel:
    with beside_capture() if captures(like) else nullcontext():  # a module is loaded
        return SOURCE.kernel("cross_entropy", ring.defines(settings), like.device)


def launch_losses(
    way: Any, logits: Tensor, labels: Tensor, weight: Tensor | None, settings: Settings,
    denominator: Tensor | None, loss: Tensor, lse: Tensor, gradient: Tensor | None,
) -> None:  # fmt: skip
    """The losses of a matrix of rows, with the gradient for an incoming gradient of 1 where there is a tensor for it,
    which may be the logits themselves. `way`: a Piece, or with the gradient a Ring. `denominator`: what a mean divides
    by; None: nothing is divided.
    """
    rows, width = logits.shape
    if isinstance(way, Ring) and gradient is not None:
        _launch_ring(way, logits, labels, settings, denominator, loss, lse, gradient)
        return
    all_weights = weight.float().sum() if weight is not None and settings.smoothing > 0 else None
    to = logits if gradient is None else gradient.view(rows, width)
    launch(
        kernels.losses, (rows,),
        logits, labels, weight, all_weights, denominator, loss, lse, gradient, told(logits),
        rows, width, logits.stride(0), to.stride(0), *settings.numbers,
        **settings.flags, **alignment(logits, to), WEIGHTED=weight is not None, MEAN=denominator is not None,
        GRADIENT=gradient is not None, BLOCK=way.block, num_warps=most_warps(way.warps),
    )  # fmt: skip


def side_by_side(labels: Tensor) -> Tensor:
    """The labels as the kernels read them, one after the other: a column of a table does not lie so."""
    return labels.reshape(-1).contiguous()


def alignment(logits: Tensor, gradient: Tensor) -> dict[str, bool]:
    """What the kernels are told of two matrices of rows: SPLIT, whether some may begin or end within a vector of
    memory; ALIKE, whether both do so at the same places. Of strides Triton knows whether 16 divides them, and no more.
    """
    width, strides = logits.shape[1], (logits.stride(0), gradient.stride(0))
    split = any(size % 16 for size in (width, *strides))
    return {"SPLIT": split, "ALIKE": (strides[0] - strides[1]) % VECTOR == 0}


def _launch_ring(
    ring: Ring, logits: Tensor, labels: Tensor, settings: Settings, denominator: Tensor | None,
    loss: Tensor, lse: Tensor, gradient: Tensor,
) -> None:  # fmt: skip
    rows, width = logits.shape
    kernel = _ring_kernel(ring, settings, logits)
    blocks = min(rows, multiprocessors(logits) // ring.cluster) * ring.cluster
    shared = ring.slots * (ring.slot_bytes + 16) + RING_SUMS
    kernel.launch(
        (blocks, 1, 1), (ring.threads + 32, 1, 1), shared, "PPPPPPPqiiqff",
        logits, labels.long(), loss, lse, gradient, denominator, told(logits), logits.stride(0), rows, width,
        settings.ignore_index, settings.smoothing, settings.z_loss,
    )  # fmt: skip
