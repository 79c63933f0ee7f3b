"""The fused optimizers: one kernel over lists of tensors (ATen/native/cuda/Fused*Kernel.cu, fused_adam*_impl.cu).

Each launch holds the chunks that fit its argument space; its bytes and FLOPs are those of the elements it holds. The
step counters, one float a tensor, are left out; they are advanced by launches of their own.

FLOPs an element, as the functors write them (a fused multiply-add counts 2): AdamW and Adam 15 (first moment 4,
second 5, denominator 3, update 3); SGD 2, with momentum 5; Adagrad 7 (square and add, root and epsilon, the update's
3). Weight decay adds 2, a gradient scale 1.
"""

from dataclasses import dataclass

from undertorch.costs.building import pytorch, vector_math
from undertorch.costs.geometry.builds import build_of
from undertorch.costs.geometry.multi_tensor import BLOCK, launches
from undertorch.costs.registry import cost
from undertorch.costs.rules import argument
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a fused optimizer does to each element."""

    functor: str
    read: tuple[str, ...]
    """Lists that it reads."""
    written: tuple[str, ...]
    """Lists that it writes."""
    flops: int
    registers: int | None


@cost("aten::_fused_adamw_")
def fused_adamw(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """28 bytes a float32 parameter: parameter, gradient, two moments read; parameter and two moments written."""
    return _adam(op, registers=60)


@cost("aten::_fused_adam_")
def fused_adam(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """As AdamW; weight decay goes into the gradient."""
    return _adam(op, registers=64)


@cost("aten::_fused_sgd_")
def fused_sgd(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """With momentum a third list, which the first step reads too. Momentum takes 3 FLOPs an element, Nesterov's 5."""
    lists: tuple[str, ...] = ("self", "grads")
    written: tuple[str, ...] = ("self",)
    flops = 2
    with_momentum = op.arg("momentum") not in (0, 0.0)
    if with_momentum:
        lists, written = (*lists, "momentum_buffer_list"), (*written, "momentum_buffer_list")
        flops += 0 if op.arg("is_first_step") is True else 3
        flops += 2 if op.arg("nesterov") is True else 0
    update = Update(
        functor="FusedSgdMathFunctor",
        read=lists,
        written=written,
        flops=flops,
        registers=58 if with_momentum else None,
    )
    return _launches(op, update)


@cost("aten::_fused_adagrad_")
def fused_adagrad(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads parameter, gradient and the sum of squares; writes parameter and sum."""
    update = Update(
        functor="FusedAdagradMathFunctor",
        read=("self", "grads", "state_sums"),
        written=("self", "state_sums"),
        flops=7,
        registers=None,
    )
    return _launches(op, update)


def _adam(op: Op, registers: int) -> tuple[Kernel, ...]:
    """amsgrad: a fifth list, the largest second moments, read and written."""
    amsgrad = op.arg("amsgrad") is True
    moments: tuple[str, ...] = ("exp_avgs", "exp_avg_sqs") + (("max_exp_avg_sqs",) if amsgrad else ())
    update = Update(
        functor="FusedAdamMathFunctor",
        read=("self", "grads", *moments),
        written=("self", *moments),
        flops=15,
        registers=None if amsgrad else registers,
    )
    return _launches(op, update)


def _launches(op: Op, update: Update) -> tuple[Kernel, ...]:
    """One kernel a launch, its bytes those of its chunks. A gradient scale has the gradients written back."""
    parameters = op.tensors("self")
    if not parameters:
        return ()
    scaled = isinstance(argument(op, "grad_scale"), TensorRef)
    decays = op.arg("weight_decay") not in (0, 0.0)
    read = sum(_itemsize(op, name) for name in update.read)
    written = sum(_itemsize(op, name) for name in update.written) + (_itemsize(op, "grads") if scaled else 0)
    flops = update.flops + (2 if decays else 0) + (1 if scaled else 0)
    sizes = [tensor.elements for tensor in parameters]
    return tuple(
        pytorch(
            f"multi_tensor_apply_kernel<{update.functor}>",
            Kind.OPTIMIZER,
            len(chunks),
            BLOCK,
            read=read * sum(chunks),
            written=written * sum(chunks),
            flops=flops * sum(chunks),
            math=vector_math(parameters[0].dtype),
            registers=update.registers,
            shared=0,
        )
        for chunks in launches(sizes, len(update.read), build_of(op))
    )


def _itemsize(op: Op, name: str) -> int:
    """Bytes of an element of a list: torch groups lists so that each has one dtype."""
    tensors = op.tensors(name)
    return tensors[0].itemsize if tensors else 0
