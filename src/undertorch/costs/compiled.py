"""Kernels that Inductor wrote: what it says of each stands among the launch's arguments (steps/record/compiled)."""

from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.registry import launched_by_scripts
from undertorch.records import Dim3, Gpu, Kernel, Kind, Math, Op, Origin, Value

UNKNOWN = "What it moves is not known. Its time is predicted as if it touched each of its tensors once."


@launched_by_scripts("inductor")
def inductor(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """One kernel; none for the further lines that it came from.

    With several configurations to choose from, a GPU may run another than the first: its grid is then a guess.
    """
    if not op.arguments:
        return ()
    read, written, flops = (_number(op.arg(name)) for name in ("<read>", "<written>", "<flops>"))
    chosen = (_number(op.arg("<configurations>")) or 0) > 1
    return (
        Kernel(
            name=str(op.arg("<kernel>")),
            kind=Kind(str(op.arg("<kind>"))),
            library="Inductor" if str(op.arg("<kernel>")).startswith("triton_") else "Triton",  # the script's own
            grid=_three(op.arg("<grid>")),
            block=_three(op.arg("<block>")),
            geometry_origin=Origin.PREDICTED if chosen else Origin.COMPUTED,
            min_bytes_read=read,
            min_bytes_written=written,
            flops=flops,
            bytes_origin=None if read is None else Origin.COMPUTED,
            traffic_bytes=least_bytes(op.inputs) if read is None else None,
            math=_unit(op) if flops else None,
            note=UNKNOWN if read is None else None,
        ),
    )


TENSOR_CORES = {"bfloat16": Math.TENSOR_BF16, "float16": Math.TENSOR_FP16, "float32": Math.TENSOR_TF32}
"""By the dtype of what is multiplied. A product in float32 of Triton's takes TF32 where nothing else is said."""


def _unit(op: Op) -> Math:
    """What does its FLOPs: tensor cores those of attention and products, which are templates; plain cores all else."""
    if Kind(str(op.arg("<kind>"))) not in (Kind.ATTENTION, Kind.MATMUL, Kind.CONVOLUTION):
        return Math.FP32
    return TENSOR_CORES.get(op.inputs[0].dtype, Math.FP32) if op.inputs else Math.FP32


def _number(value: Value) -> int | None:
    return value if isinstance(value, int) else None


def _three(value: Value) -> Dim3:
    if not isinstance(value, tuple) or len(value) != 3:
        raise ValueError(f"{value!r} has no three dimensions")
    x, y, z = (int(size) for size in value if isinstance(size, int))
    return x, y, z
