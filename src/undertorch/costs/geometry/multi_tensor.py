"""Kernels over lists of tensors: ATen/native/cuda/MultiTensorApply.cuh."""

from collections.abc import Sequence

from undertorch.costs.geometry.builds import Build
from undertorch.records import Dim3

CHUNK_ELEMENTS = 65536
"""Elements that one block takes (kChunkSize)."""
BLOCK: Dim3 = (512, 1, 1)
"""kBlockSize."""


def launches(sizes: Sequence[int], lists: int, build: Build, *, scalars: bool = False) -> tuple[tuple[int, ...], ...]:
    """The launches over tensors of `sizes` elements, in order: each as the elements of its blocks, one a block.

    `lists` tensors of each size go together (1 to 5). A launch is full when its blocks or its tensors are; a tensor
    whose chunks are left over goes on in the next. `scalars`: each tensor brings one, which takes argument space.
    """
    most_tensors = (build.tensors_a_launch_with_scalars if scalars else build.tensors_a_launch)[lists - 1]
    full: list[tuple[int, ...]] = []
    chunks: list[int] = []
    tensors = 0
    for size in sizes:
        tensors += size != 0
        for start in range(0, size, CHUNK_ELEMENTS):
            chunks.append(min(CHUNK_ELEMENTS, size - start))
            ends = start + CHUNK_ELEMENTS >= size
            if len(chunks) == build.chunks_a_launch or (tensors == most_tensors and ends):
                full.append(tuple(chunks))
                chunks = []
                tensors = 0 if ends else 1
    return (*full, tuple(chunks)) if chunks else tuple(full)
