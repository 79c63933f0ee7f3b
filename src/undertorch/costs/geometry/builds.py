"""What decides geometry and differs between the builds of PyTorch that are served."""

import re
from dataclasses import dataclass

from undertorch.records import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Constants of one build of PyTorch for CUDA. Everything else in this folder holds for all that are named here."""

    name: str
    one_byte_vector: int
    """Most elements of one byte that `vectorized_elementwise_kernel` loads at once (CUDALoops.cuh). It stands in the
    kernel's name and changes no grid, so that the recorded build's is taken for all."""
    chunks_a_launch: int
    """Blocks of one `multi_tensor_apply_kernel` (MultiTensorApply.cuh, depth_to_max_blocks)."""
    tensors_a_launch: tuple[int, ...]
    """Tensors that its argument space holds, by the number of lists less one (depth_to_max_tensors)."""
    tensors_a_launch_with_scalars: tuple[int, ...]
    """The same where each tensor brings a scalar (depth_to_max_tensors_scalarlist)."""


TORCH_2_11 = Build(
    name="torch 2.11, CUDA 13.0",
    # Recorded on an H200 (tests/golden/h200_ops.json.gz): comparisons of bfloat16 into bool load 4 at once.
    one_byte_vector=4,
    # The space of 4 KB; recorded with 320 blocks and 110 tensors a launch.
    chunks_a_launch=320,
    tensors_a_launch=(110, 64, 48, 36, 30),
    tensors_a_launch_with_scalars=(96, 64, 48, 36, 30),
)

TORCH_2_13 = Build(
    name="torch 2.13, CUDA 13.0",
    # From CUDA 12.8 on the header lifts the limit of 4.
    one_byte_vector=8,
    # CUDA 13 gives a kernel 32 KB of arguments, and the header of 2.13 uses them.
    chunks_a_launch=2240,
    tensors_a_launch=(770, 448, 336, 252, 210),
    tensors_a_launch_with_scalars=(672, 448, 336, 252, 210),
)

RECORDED = TORCH_2_11
"""The build whose kernels were recorded on a GPU."""


def build_of(op: Op) -> Build:
    """The build whose launches an Op makes, by the torch that made the call; the newest where that is unknown.

    Known are 2.11 (recorded) and 2.13 (its headers); 2.12 is taken for 2.11.
    """
    found = re.match(r"(\d+)\.(\d+)", op.torch or "")
    return TORCH_2_11 if found and (int(found[1]), int(found[2])) < (2, 13) else TORCH_2_13
