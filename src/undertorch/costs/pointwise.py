"""From the geometry of element-by-element kernels to Kernels: what they move and compute."""

from collections.abc import Sequence
from dataclasses import replace

from undertorch.costs.building import pytorch
from undertorch.costs.dtypes import math_of
from undertorch.costs.geometry.loops import Functor, Geometry, gpu_kernel, jitted_kernel, multiple_outputs_kernel
from undertorch.costs.geometry.tensor_iterator import tensor_iterator
from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.resources import registers_of
from undertorch.records import Gpu, Kernel, Kind, TensorRef


def pointwise(
    functor: Functor,
    outputs: Sequence[TensorRef],
    inputs: Sequence[TensorRef],
    gpu: Gpu,
    *,
    flops: int = 0,
    kind: Kind = Kind.ELEMENTWISE,
    jitted: bool = False,
) -> tuple[Kernel, ...]:
    """The kernels of a functor over tensors on the GPU.

    `inputs` are its tensor arguments in order, broadcast to the outputs' shape; `flops` is what it computes an element.
    `jitted`: torch compiles it at run time.
    """
    iterator = tensor_iterator(outputs, inputs)
    if len(outputs) > 1:
        launches = multiple_outputs_kernel(iterator, functor, gpu)
    elif jitted:
        launches = jitted_kernel(iterator, functor, gpu)
    else:
        launches = gpu_kernel(iterator, functor, gpu)
    return moved(launches, outputs, inputs, kind, functor.arguments[0] if functor.arguments else None, flops)


def moved(
    launches: Sequence[Geometry],
    outputs: Sequence[TensorRef],
    inputs: Sequence[TensorRef],
    kind: Kind,
    computed_in: str | None,
    flops: int = 0,
) -> tuple[Kernel, ...]:
    """Kernels that together read the inputs and write the outputs once, each its share of the elements.

    `flops` an element, done in the dtype `computed_in` (None: nothing is computed); work on whole numbers is none.
    """
    weights = [launch.elements for launch in launches]
    math = None if computed_in is None else math_of(computed_in)
    flops = 0 if math is None else flops
    return tuple(
        replace(
            pytorch(
                launch.name,
                kind,
                launch.grid,
                launch.block,
                read=read,
                written=written,
                flops=flops * launch.elements,
                math=math,
                registers=registers_of(launch.name),
                shared=0,
            ),
            sector_bytes=launch.sector_bytes,
        )
        for launch, read, written in zip(
            launches,
            shares(least_bytes(inputs), weights),
            shares(least_bytes(outputs), weights),
            strict=True,
        )
    )


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """`total` divided in proportion to the weights, as whole numbers that sum to it."""
    whole, done, passed, parts = sum(weights), 0, 0, []
    for weight in weights:
        passed += weight
        until = total * passed // whole
        parts.append(until - done)
        done = until
    return parts
