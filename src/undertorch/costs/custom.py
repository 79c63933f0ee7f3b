"""Kernels that a script launches by itself, past ATen: the recorder hands their launch over among the arguments.

Geometry, registers and shared memory come from the compilation for the GPU. What a kernel moves and computes is in its
own code, so bytes and FLOPs are unknown.
"""

from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.registry import NoCost, launched_by_scripts
from undertorch.records import Dim3, Gpu, Kernel, Kind, Op, Origin, Value


@launched_by_scripts("triton")
def triton(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One Triton kernel."""
    return _launched(op, "Triton")


@launched_by_scripts("undertorch")
def undertorch(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One kernel in CUDA C++ or PTX. Raises NoCost for an operator of that name that could not be seen into."""
    if all(argument.name != "<grid>" for argument in op.arguments):
        raise NoCost(f"{op.name} is an operator, and the kernels that it launches are not known.")
    return _launched(op, "undertorch")


def _launched(op: Op, library: str) -> tuple[Kernel, ...]:
    """Its time is predicted as if it touched each distinct byte of its tensors once."""
    registers, shared = op.arg("<registers>"), op.arg("<shared_bytes>")
    return (
        Kernel(
            name=op.name.partition("::")[2],
            kind=Kind.CUSTOM,
            library=library,
            grid=_three(op.arg("<grid>")),
            block=_three(op.arg("<block>")),
            geometry_origin=Origin.COMPUTED,
            registers=registers if isinstance(registers, int) else None,
            shared_bytes=shared if isinstance(shared, int) else None,
            resources_origin=None if registers is None else Origin.COMPUTED,
            min_bytes_read=None,
            min_bytes_written=None,
            flops=None,
            bytes_origin=None,
            traffic_bytes=least_bytes(op.inputs),
            note="A kernel of the script's own: which bytes it moves is not known. Its time is predicted as if it"
            " touched each of its tensors once.",
        ),
    )


def _three(value: Value) -> Dim3:
    if not isinstance(value, tuple) or len(value) != 3:
        raise ValueError(f"{value!r} has no three dimensions")
    x, y, z = (int(size) for size in value if isinstance(size, int))
    return x, y, z
