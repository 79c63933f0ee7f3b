"""What `undertorch.check` was called with: a kernel of CUDA or PTX with its block, or one of Triton's."""

from collections.abc import Mapping, Sequence
from typing import Any

from undertorch.checks.check import check
from undertorch.checks.programs import check_triton, is_triton
from undertorch.records import Checked, Gpu
from undertorch.simt.errors import BadLaunch
from undertorch.simt.frontends.kernels import Kernel


def check_asked(
    kernel: Any, grid: Any, arguments: Sequence[object], named: Mapping[str, object], *, gpu: Gpu,
    dynamic_shared: int, seeds: int, empty: Sequence[int],
) -> Checked:  # fmt: skip
    """One launch under all checks. Raises PtxError, Unsupported and BadLaunch."""
    if is_triton(kernel):
        return check_triton(kernel, grid, arguments, named, gpu=gpu, seeds=seeds, empty=empty)
    if not isinstance(kernel, Kernel):
        raise BadLaunch(
            f"{kernel!r} is no kernel: check takes those of undertorch.cuda, undertorch.ptx and @triton.jit; what "
            "launches kernels is run inside `with undertorch.checking():`."
        )
    given, by_name = list(arguments), dict(named)
    block = by_name.pop("block") if "block" in by_name else given.pop(0) if given else None
    if block is None:
        raise BadLaunch(f"{kernel.name}: how many threads has a block? check(kernel, grid, block, *arguments).")
    if by_name:
        raise BadLaunch(f"{kernel.name}: a kernel's arguments have no names, and {next(iter(by_name))}= was given.")
    size: Any = block
    return check(kernel, grid, size, given, gpu=gpu, dynamic_shared=dynamic_shared, seeds=seeds, empty=empty)
