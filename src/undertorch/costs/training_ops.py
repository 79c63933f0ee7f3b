"""Kernels of undertorch's own training ops (undertorch/ops), as they are usually cut: here, since costs know no torch.

FLOPs of cross-entropy: 3 an element for the loss (largest, exponential, sum), 3 for its gradient (difference,
exponential, scale). AdamW: as torch's fused one (costs/optimizer.py), and 1 for the clipping.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from undertorch.costs.building import ceil_div, inner, pytorch, temporary, viewed
from undertorch.costs.registry import cost
from undertorch.records import Gpu, Kernel, Kind, Math, Op

LIBRARY = "undertorch"
FLOAT32 = 4
WARP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Rows of a block at a time and its warps; of a kernel that walks rows, blocks on an SM and stages of its loads."""

    rows: int
    warps: int
    blocks_per_sm: int = 0
    stages: int = 1


AnyCut = TypeVar("AnyCut", bound=Cut)


SUMMED_COLUMNS, SUMMED_WARPS = (32, 128), 4
"""Columns that a block adds the shares of: of rows up to 8192, and wider."""

GRADIENT_PIECE, GRADIENT_WARPS = 2048, 4
"""Elements of a row that a block of the cross-entropy's gradient works on, and its warps."""

NARROW_LOSSES = 1024
"""Elements of a row that one warp goes through alone: of 65536 x 1024 bfloat16 on an H200 the loss takes 62 µs so, and
78 with four warps; with the gradient 107 and 126."""

LOGITS_BYTES = 576 * 2**20
"""Of logits that linear_cross_entropy has at a time. 32768 x 768 x 50304 bfloat16 on an H200: 13.5 ms with 5,632 rows
of them, 14.6 with 2,048, 13.6 with 8,192."""

NARROW_LOGITS_BYTES = 256 * 2**20
"""The same where the weight's gradient is summed in a half type, which is asked for to save memory. 16384 x 4096 x
128256 bfloat16 on an H200: 83.3 ms and 1.35 GiB with 1,024 rows; 90.0 and 1.23 with 512, 86.8 and 1.29 with 768, 81.9
and 1.41 with 1,280, 81.4 and 1.47 with 1,536. Fewer rows are shorter sums of products: that of the weight's gradient
reaches 505, 592 and 679 TFLOP/s with 512, 1,024 and 2,048, nearly the same where it is not added to what is there."""

LOGIT_ROWS = 256
"""Rows of a chunk of logits are a multiple of this, so that the tiles of its matmuls are full."""

SCALED_PIECE, SCALED_WARPS = 4096, 8
"""Elements that a block of linear_cross_entropy's scaling works on at a time, and its warps."""

MOST_LABELS = 16384
"""Labels, or rows' losses, that the one block that adds them up reads at a time."""

ADAMW_CHUNK, ADAMW_WARPS = 4096, 4
SQUARES_CHUNK, SQUARES_WARPS = 32768, 8
"""Elements of a tensor that a block takes, and its warps."""


GATED_PIECE, GATED_WARPS = 4096, 8
"""Elements of a gated activation that a block works on, and its warps."""


def padded(width: int) -> int:
    """The power of two that a row of a block has."""
    return 1 << max(width - 1, 0).bit_length()


def entropy_cut(width: int, itemsize: int, *, gradient: bool) -> tuple[int, int]:
    """Elements of a row that a block of the loss works on at a time, and its warps.

    The loss alone reads a row once. With the gradient it is read again from L2, which wants few rows at a time, in
    pieces of 32 KB (32768 x 50304 bfloat16 on an H200: 2.04 ms; 16384 x 32000 float32: 1.09, and 1.24 of 64 KB).
    """
    if width <= NARROW_LOSSES:
        return 256, 1
    block = min(32768 // max(itemsize, 2) if gradient else 4096, padded(width))
    return block, max(block // 512, 1)


def logit_bytes(sums_itemsize: int | None) -> int:
    """Bytes of logits at a time. `sums_itemsize`: of the weight's gradient as it is summed; None: it is not needed."""
    return NARROW_LOGITS_BYTES if sums_itemsize is not None and sums_itemsize < FLOAT32 else LOGITS_BYTES


def logit_rows(rows: int, classes: int, features: int, itemsize: int, most_bytes: int, *, wide: bool) -> int:
    """Rows whose logits linear_cross_entropy has at a time: chunks of one size, as few as `most_bytes` allow.

    `wide`: the weight's gradient is summed in a wider dtype and copied to its own when the logits are gone, so that
    logits of that copy's size (features rows of them) take no memory that is not needed anyway. Each chunk reads and
    writes the sum once, which few and long chunks spare: 80.6 ms where 84.0 (16384 x 4096 x 128256, 4,096 and 2,048).
    """
    most = max(most_bytes // (classes * itemsize), features if wide else 1, 1)
    if most >= LOGIT_ROWS:
        most -= most % LOGIT_ROWS
    even = ceil_div(rows, ceil_div(rows, most))
    return min(ceil_div(even, LOGIT_ROWS) * LOGIT_ROWS, most) if most >= LOGIT_ROWS else even


def whole_classes(classes: int) -> int:
    """Classes that linear_cross_entropy multiplies with: rows of logits begin at multiples of 16 bytes."""
    return ceil_div(classes, 8) * 8


def scaling_blocks(elements: int, sms: int) -> int:
    """Blocks that walk over a gradient to scale it, as many as are resident."""
    return min(ceil_div(elements, SCALED_PIECE), sms * (2048 // (WARP * SCALED_WARPS)))


def spread(cut: AnyCut, rows: int, sms: int) -> AnyCut:
    """Fewer rows a block where there are not enough of them for every SM to get some."""
    while cut.rows > 1 and rows < cut.rows * sms:
        cut = replace(cut, rows=cut.rows // 2, warps=max(cut.warps // 2, 1))
    return cut


@cost("undertorch::cross_entropy_forward")
def cross_entropy(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the logits once, and again from L2 for the gradient where that is asked for; a mean counts labels first."""
    logits, labels = op.tensor("logits"), op.tensor("labels")
    width, rows = logits.shape[-1], labels.elements
    if rows == 0 or width == 0:
        return ()
    with_gradient = op.arg("with_gradient") is True
    mean, reduced = op.arg("reduction") == "mean", op.arg("reduction") != "none"
    counted = _one_block("label_weight", rows, labels.bytes, FLOAT32)
    loss = _losses(
        rows,
        width,
        logits.itemsize,
        logits.bytes,
        labels.bytes + op.tensor_bytes("weight"),
        logits.bytes if with_gradient else 0,
        gradient=with_gradient,
    )
    per_row = rows * FLOAT32
    return (*((counted,) if mean else ()), loss, *((_one_block("reduced", rows, per_row, FLOAT32),) if reduced else ()))


@cost("undertorch::cross_entropy_backward")
def cross_entropy_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the logits again, writes their gradient."""
    logits = op.tensor("logits")
    if logits.elements == 0:
        return ()
    width = logits.shape[-1]
    block = min(GRADIENT_PIECE, max(padded(width), 256))
    return (
        pytorch(
            "gradients",
            Kind.LOSS,
            (op.tensor("labels").elements, ceil_div(width, block), 1),
            WARP * max(GRADIENT_WARPS * block // GRADIENT_PIECE, 1),
            read=logits.bytes + op.tensor_bytes("labels", "lse"),
            written=logits.bytes,
            flops=3 * logits.elements,
            math=Math.FP32,
            library=LIBRARY,
        ),
    )


@cost("undertorch::cross_entropy_unless_one")
def cross_entropy_unless_one(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The gradient is there already for an incoming one of 1, which every block looks at and ends."""
    if op.tensor("logits").elements == 0:
        return ()
    threads = WARP * GRADIENT_WARPS
    blocks = min(op.tensor("labels").elements, gpu.sms * (2048 // threads))
    return (
        pytorch(
            "gradients_unless_one",
            Kind.LOSS,
            blocks,
            threads,
            read=op.tensor("incoming").bytes,
            written=0,
            flops=0,
            library=LIBRARY,
        ),
    )


def _one_block(name: str, count: int, read: int, written: int) -> Kernel:
    threads = WARP * max(min(padded(count), MOST_LABELS) // 512, 1)
    return pytorch(
        name, Kind.LOSS, 1, threads, read=read, written=written, flops=count, math=Math.FP32, library=LIBRARY
    )


@cost("undertorch::linear_cross_entropy_forward")
def linear_cross_entropy(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Some rows at a time: their logits, the loss with the gradient over them, and the two gradients' matmuls."""
    x, weight, labels = op.tensor("x"), op.tensor("weight"), op.tensor("labels")
    (classes, features), rows = weight.shape, labels.elements
    if rows == 0 or classes == 0:
        return ()
    need_x, need_weight = op.arg("need_x") is True, op.arg("need_weight") is True
    gradient = need_x or need_weight
    sums = str(op.arg("accumulation")).removeprefix("torch.")
    wide = need_weight and sums != weight.dtype
    whole = whole_classes(classes)
    weight_of_whole, total = (
        temporary((whole, features), dtype, x.device, number) for dtype, number in ((weight.dtype, 6), (sums, 4))
    )
    most = logit_bytes(total.itemsize if need_weight else None)
    at_once = logit_rows(rows, classes, features, x.itemsize, most, wide=wide)
    kernels: list[Kernel] = []
    if whole == classes:
        weight_of_whole = weight
    else:
        pad = (0, 0, 0, whole - classes)
        kernels += inner(op, gpu, "aten::constant_pad_nd", weight_of_whole, self=weight, pad=pad, value=0)
    for begin in range(0, rows, at_once):
        here = min(at_once, rows - begin)
        part = temporary((here, features), x.dtype, x.device, 1)
        logits = temporary((here, whole), x.dtype, x.device, 2)
        turned = viewed(weight_of_whole, (features, whole), (1, features))
        over = viewed(logits, (whole, here), (1, whole))
        kernels += inner(op, gpu, "aten::mm", logits, self=part, mat2=turned)
        size = here * classes * x.itemsize
        kernels.append(_losses(here, classes, x.itemsize, size, here * 8, size if gradient else 0, gradient=gradient))
        if need_x:
            kernels += inner(op, gpu, "aten::mm", part, self=logits, mat2=weight_of_whole)
        if need_weight and begin == 0:
            kernels += inner(op, gpu, "aten::mm", total, self=over, mat2=part)
        elif need_weight:
            kernels += inner(op, gpu, "aten::addmm_", total, self=total, mat1=over, mat2=part, beta=1, alpha=1)
    if wide:
        own = temporary((classes, features), weight.dtype, x.device, 5)
        kernels += inner(op, gpu, "aten::_to_copy", own, self=total, dtype=weight.dtype)
    counted = _one_block("label_weight", rows, labels.bytes, FLOAT32)
    reduced = _one_block("reduced", rows, rows * FLOAT32, FLOAT32)
    return (*((counted,) if op.arg("reduction") == "mean" else ()), *kernels, reduced)


@cost("undertorch::linear_cross_entropy_scale")
def linear_cross_entropy_scale(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The gradients are there already for an incoming one of 1, which every block looks at and ends."""
    return tuple(
        pytorch(
            "scaled_unless_one",
            Kind.LOSS,
            scaling_blocks(gradient.elements, gpu.sms),
            WARP * SCALED_WARPS,
            read=op.tensor("incoming").bytes,
            written=0,
            flops=0,
            library=LIBRARY,
        )
        for gradient in op.tensors("gradients")
        if gradient.elements
    )


def _losses(
    rows: int, width: int, itemsize: int, logits: int, labels: int, gradient_bytes: int, *, gradient: bool
) -> Kernel:
    """Reads the logits once, and again from L2 for the gradient; writes that, and three numbers a row."""
    _, warps = entropy_cut(width, itemsize, gradient=gradient)
    return pytorch(
        "losses",
        Kind.LOSS,
        rows,
        WARP * warps,
        read=logits + labels,
        written=3 * rows * FLOAT32 + gradient_bytes,
        flops=(6 if gradient else 3) * rows * width,
        math=Math.FP32,
        library=LIBRARY,
    )


@cost("undertorch::swiglu_forward", "undertorch::geglu_forward")
def gated(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads gate and up, writes their product. FLOPs: 5 an element (exponential, add, divide, two products)."""
    return _gated(op, "gated_forward", op.tensor_bytes("gate", "up"), 5)


@cost("undertorch::swiglu_backward", "undertorch::geglu_backward")
def gated_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the gradient, gate and up; writes the gradients that are needed. FLOPs: 10 an element."""
    return _gated(op, "gated_backward", op.tensor_bytes("dy", "gate", "up"), 10)


def _gated(op: Op, name: str, read: int, flops: int) -> tuple[Kernel, ...]:
    gate = op.tensor("gate")
    if gate.elements == 0:
        return ()
    whole = all(tensor.contiguous for tensor in op.inputs)
    width = gate.elements if whole else gate.shape[-1]
    return (
        pytorch(
            name,
            Kind.ELEMENTWISE,
            gate.elements // width * ceil_div(width, GATED_PIECE),
            WARP * GATED_WARPS,
            read=read,
            written=sum(tensor.bytes for tensor in op.results),
            flops=flops * gate.elements,
            math=Math.FP32,
            library=LIBRARY,
        ),
    )


@cost("undertorch::sum_of_squares")
def sum_of_squares(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads every tensor once, a launch for each dtype, and adds up the blocks' shares."""
    kernels = []
    blocks = 0
    for dtype in dict.fromkeys(tensor.dtype for tensor in op.tensors("tensors")):
        tensors = [tensor for tensor in op.tensors("tensors") if tensor.dtype == dtype and tensor.elements]
        here = sum(ceil_div(tensor.elements, SQUARES_CHUNK) for tensor in tensors)
        if here:
            elements = sum(tensor.elements for tensor in tensors)
            read = sum(tensor.bytes for tensor in tensors)
            kernels.append(
                own_kernel("squares", Kind.OPTIMIZER, here, SQUARES_WARPS, read, here * FLOAT32, 2 * elements)
            )
            blocks += here
    if not blocks:
        return ()
    return *kernels, own_kernel("root", Kind.OPTIMIZER, 1, 16, blocks * FLOAT32, FLOAT32, blocks)


@cost("undertorch::adamw")
def adamw(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """28 bytes a float32 parameter, clipping included; a half-type copy of a master is written too."""
    parameters, gradients, copies = op.tensors("parameters"), op.tensors("gradients"), op.tensors("copies")
    groups: dict[tuple[str, str], list[int]] = {}
    for place, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        if parameter.elements:
            groups.setdefault((parameter.dtype, gradient.dtype), []).append(place)
    clips = op.arg("max_norm") is not None
    kernels: list[Kernel] = []
    for places in groups.values():
        count = len(places)
        elements = sum(parameters[place].elements for place in places)
        blocks = sum(ceil_div(parameters[place].elements, ADAMW_CHUNK) for place in places)
        parameter, gradient = parameters[places[0]], gradients[places[0]]
        moments = 2 * FLOAT32
        read = elements * (parameter.itemsize + gradient.itemsize + moments)
        written = elements * (parameter.itemsize + moments + (copies[places[0]].itemsize if copies else 0))
        kernels.append(
            own_kernel("coefficients", Kind.OPTIMIZER, ceil_div(count, 128), 4, 12 * count, 20 * count, 8 * count)
        )
        kernels.append(
            own_kernel("update", Kind.OPTIMIZER, blocks, ADAMW_WARPS, read, written, (17 + clips) * elements)
        )
    return tuple(kernels)


def own_kernel(
    name: str, kind: Kind, grid: int | tuple[int, int, int], warps: int, read: int, written: int, flops: int
) -> Kernel:
    """A Triton kernel of undertorch's, which computes in float32."""
    return pytorch(
        name,
        kind,
        grid,
        WARP * warps,
        read=read,
        written=written,
        flops=flops,
        math=Math.FP32,
        library=LIBRARY,
    )
