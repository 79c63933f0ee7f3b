"""A Kernel: what an Op asks of a GPU, one of several perhaps."""

import re
from dataclasses import dataclass

from undertorch.records.kinds import Kind, Math
from undertorch.records.origins import Origin

OVER_LINK = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost")

Dim3 = tuple[int, int, int]
"""x, y, z."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel as it would be (or was) launched, without when and how long. Unknown is None, never 0."""

    name: str
    """The function's name without return type and template tail, such as `vectorized_elementwise_kernel<4>`.
    A memset is `Memset`."""
    kind: Kind
    library: str
    """Whose code it is: `PyTorch`, `cuBLAS`, `cuDNN`, `CUB`, `flash`, `driver`, `Inductor`, `NCCL`, `undertorch`, …"""
    grid: Dim3 | None
    """Blocks in x, y, z. None for memcpy and memset."""
    block: Dim3 | None
    """Threads in x, y, z. None for memcpy and memset."""
    geometry_origin: Origin | None
    """Computed: as PyTorch's source defines it. Predicted: a modelled tile. None for memcpy and memset."""
    registers: int | None = None
    """Per thread."""
    shared_bytes: int | None = None
    """Per block, static and dynamic together."""
    resources_origin: Origin | None = None
    """Of registers and shared_bytes."""
    min_bytes_read: int | None
    """Each distinct input byte once."""
    min_bytes_written: int | None
    """Each distinct output byte once. A copy between host and GPU moves its bytes once, over the link: they stand
    here, and none as read."""
    flops: int | None
    """Additions, multiplications, divisions and special functions count 1 each; a fused multiply-add counts 2;
    pure moves 0."""
    bytes_origin: Origin | None = Origin.COMPUTED
    """Of min_bytes_read, min_bytes_written and flops; None where they are unknown."""
    traffic_bytes: int | None = None
    """What its algorithm moves to and from global memory where that is known to be more than the least
    (a row read three times). Origin: predicted."""
    done_flops: int | None = None
    """What it does where that is known to be more than `flops`: tiles are worked off whole, also where they are padded
    or masked. Origin: predicted."""
    sector_bytes: int | None = None
    """What its warps ask of the caches, in sectors of 32 bytes, where neighbouring lanes do not read or write
    neighbouring bytes (a transposed tensor). Origin: predicted."""
    random_numbers: int | None = None
    """That it draws beside its FLOPs (a dropout within attention). Origin: computed."""
    math: Math | None = None
    """The unit that does its FLOPs; None where it does none or they are unknown."""
    note: str | None = None
    """A convention or a doubt that the figures stand on, one sentence."""

    @property
    def min_bytes(self) -> int | None:
        """Least bytes read and written together; None where either is unknown."""
        if self.min_bytes_read is None or self.min_bytes_written is None:
            return None
        return self.min_bytes_read + self.min_bytes_written

    @property
    def over_link(self) -> bool:
        """Whether it is a copy between host and GPU. Told by the name that CUPTI (or roctracer) gives it."""
        return self.kind is Kind.MEMCPY and bool(OVER_LINK.search(self.name))

    @property
    def blocks(self) -> int | None:
        """Blocks of the grid."""
        return None if self.grid is None else self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int | None:
        """Threads of one block."""
        return None if self.block is None else self.block[0] * self.block[1] * self.block[2]
