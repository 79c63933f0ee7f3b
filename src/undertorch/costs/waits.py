"""Calls of CUDA's that return once the GPU is done: the CPU waits, and nothing is launched."""

from undertorch.costs.registry import cost
from undertorch.records import Gpu, Kernel, Op


@cost("cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamSynchronize")
def wait(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """No kernel."""
    return ()
