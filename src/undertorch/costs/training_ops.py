"""Kernels of undertorch's own training ops (undertorch/ops), as they are usually cut: here, since costs know no torch.

FLOPs of the norms are counted as for torch's (costs/norm.py), forward and backward; the addition of a residual is 1 an
element. Cross-entropy: 3 an element for the loss (largest, exponential, sum), 3 for its gradient (difference,
exponential, scale). AdamW: as torch's fused one (costs/optimizer.py), and 1 for the clipping.
"""

from dataclasses import dataclass, replace

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


WIDEST_FORWARD, WIDEST_BACKWARD = 32768, 16384
"""Widest rows that a block of a norm keeps in registers: at most 32 elements a thread."""

WIDE_WARPS = 16
DW_COLUMNS = 1024
"""Of a wider row: warps of the block that takes it, and columns that a block of the weight's gradient sums."""

SUMMED_COLUMNS, SUMMED_WARPS = (32, 128), 4
"""Columns that a block adds the shares of: of rows up to 8192, and wider."""

ENTROPY_PIECE, ENTROPY_WARPS = {False: 4096, True: 16384}, {False: 8, True: 32}
GRADIENT_PIECE, GRADIENT_WARPS = 2048, 4
"""Elements of a row that a block of the cross-entropy works on at a time, and its warps: loss (by whether the gradient
comes with it), and gradient alone."""

LOGITS_BYTES = 512 * 2**20
"""Of logits that linear_cross_entropy has at a time: 5,000 rows of 50,304 bfloat16, enough for matmuls at full rate."""

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


def forward_cut(width: int, rows: int, sms: int) -> Cut | None:
    """Of a norm's forward: 16 elements a thread, and 32 of rows beyond 4,096 (layer_norm of 16384 x 8192 on an H200:
    139 µs, and 152 with 16; rms_norm: 136 either way). None: rows wider than registers hold, read in pieces.
    """
    if width > WIDEST_FORWARD:
        return None
    block = padded(width)
    at_once, a_thread = max(4096 // block, 1), 32 if block > 4096 else 16
    return spread(Cut(rows=at_once, warps=min(max(at_once * block // (32 * a_thread), 1), 32)), rows, sms)


def backward_cut(width: int, rows: int, sms: int) -> Cut | None:
    """Of a norm's backward: on an H200 the fastest of 43 for 4096 columns, at 94 % of the copy rate."""
    if width > WIDEST_BACKWARD:
        return None
    at_once = max(8192 // padded(width), 1)
    warps, stages = max(at_once * padded(width) // 1024, 1), 3 if width <= 8192 else 1
    return spread(Cut(rows=at_once, warps=warps, blocks_per_sm=1, stages=stages), rows, sms)


def spread(cut: Cut, rows: int, sms: int) -> Cut:
    """Fewer rows a block where there are not enough of them for every SM to get some."""
    while cut.rows > 1 and rows < cut.rows * sms:
        cut = replace(cut, rows=cut.rows // 2, warps=max(cut.warps // 2, 1))
    return cut


@cost("undertorch::rms_norm_forward", "undertorch::add_rms_norm_forward")
def rms_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads the rows (and the residual) once; writes y, the sum, and one statistic a row."""
    return _norm_forward(op, gpu, centred=False)


@cost("undertorch::layer_norm_forward", "undertorch::add_layer_norm_forward")
def layer_norm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """As rms_norm, with a second statistic and a bias."""
    return _norm_forward(op, gpu, centred=True)


@cost("undertorch::rms_norm_backward", "undertorch::add_rms_norm_backward")
def rms_norm_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads rows and gradient once; writes the input's gradient and the blocks' shares of the weight's, then sums."""
    return _norm_backward(op, gpu, centred=False)


@cost("undertorch::layer_norm_backward", "undertorch::add_layer_norm_backward")
def layer_norm_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """As rms_norm_backward, with a bias."""
    return _norm_backward(op, gpu, centred=True)


def _norm_forward(op: Op, gpu: Gpu, *, centred: bool) -> tuple[Kernel, ...]:
    x = op.tensor("x")
    if x.elements == 0:
        return ()
    width = x.shape[-1]
    rows = x.elements // width
    cut = forward_cut(width, rows, gpu.sms)
    residual, affine = op.tensors("residual"), op.tensors("weight") + op.tensors("bias")
    flops = (6 if centred else 3) + len(affine) + len(residual)
    return (
        pytorch(
            "norm_forward" if cut else "wide_norm_forward",
            Kind.NORM,
            ceil_div(rows, cut.rows) if cut else rows,
            WARP * (cut.warps if cut else WIDE_WARPS),
            read=x.bytes + sum(tensor.bytes for tensor in (*residual, *affine)),
            written=sum(tensor.bytes for tensor in op.results),
            flops=flops * x.elements,
            math=Math.FP32,
            library=LIBRARY,
        ),
    )


def _norm_backward(op: Op, gpu: Gpu, *, centred: bool) -> tuple[Kernel, ...]:
    x = op.tensor("x")
    if x.elements == 0:
        return ()
    width = x.shape[-1]
    rows = x.elements // width
    cut = backward_cut(width, rows, gpu.sms)
    need_x, need_weight, need_bias = (op.arg(name) is True for name in ("need_x", "need_weight", "need_bias"))
    dx, *vectors = op.results
    wanted = [tensor for tensor, needed in zip(vectors, (need_weight, need_bias), strict=True) if needed]
    per_sm, at_once = (cut.blocks_per_sm, cut.rows) if cut else (4, 1)
    shares = min(gpu.sms * per_sm, ceil_div(rows, at_once))
    partial = len(wanted) * shares * width * FLOAT32
    read = op.tensor_bytes("dy", "dtotal", "x", "weight", "mean", "rstd")
    for_x = ((12 if centred else 8) + 2 * len(op.tensors("weight"))) * x.elements if need_x else 0
    for_vectors = (3 * need_weight + need_bias) * x.elements
    kernels: list[Kernel] = []
    if cut:
        written, flops = (dx.bytes if need_x else 0) + partial, for_x + for_vectors
        kernels.append(_norm("norm_backward", shares, cut.warps, read, written, flops))
    else:
        if need_x:
            kernels.append(_norm("wide_norm_dx", rows, WIDE_WARPS, read, dx.bytes, for_x))
        if wanted:
            again = op.tensor_bytes("dy", "x", "mean", "rstd")
            grid = (ceil_div(width, DW_COLUMNS), shares, 1)
            kernels.append(_norm("wide_norm_dw", grid, 4, again, partial, for_vectors))
    if wanted:
        columns = SUMMED_COLUMNS[width > 8192]
        grid = (ceil_div(width, columns), len(wanted), 1)
        written = sum(tensor.bytes for tensor in wanted)
        kernels.append(_norm("column_sums", grid, SUMMED_WARPS, partial, written, len(wanted) * shares * width))
    return tuple(kernels)


def _norm(name: str, grid: int | tuple[int, int, int], warps: int, read: int, written: int, flops: int) -> Kernel:
    return pytorch(
        name,
        Kind.NORM,
        grid,
        WARP * warps,
        read=read,
        written=written,
        flops=flops,
        math=Math.FP32,
        library=LIBRARY,
    )


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
    at_once = max(LOGITS_BYTES // (classes * x.itemsize), 1)
    total = temporary((classes, features), str(op.arg("accumulation")).removeprefix("torch."), x.device, 4)
    kernels: list[Kernel] = []
    for begin in range(0, rows, at_once):
        here = min(at_once, rows - begin)
        part = temporary((here, features), x.dtype, x.device, 1)
        logits = temporary((here, classes), x.dtype, x.device, 2)
        turned, over = viewed(weight, (features, classes), (1, features)), viewed(logits, (classes, here), (1, classes))
        kernels += inner(op, gpu, "aten::mm", logits, self=part, mat2=turned)
        size = logits.bytes
        kernels.append(_losses(here, classes, size, here * 8, size if gradient else 0, gradient=gradient))
        if need_x:
            kernels += inner(op, gpu, "aten::mm", part, self=logits, mat2=weight)
        if need_weight:
            kernels += inner(op, gpu, "aten::addmm_", total, self=total, mat1=over, mat2=part, beta=1, alpha=1)
    counted = _one_block("label_weight", rows, labels.bytes, FLOAT32)
    reduced = _one_block("reduced", rows, rows * FLOAT32, FLOAT32)
    return (*((counted,) if op.arg("reduction") == "mean" else ()), *kernels, reduced)


def _losses(rows: int, width: int, logits: int, labels: int, gradient_bytes: int, *, gradient: bool) -> Kernel:
    """Reads the logits once, and again from L2 for the gradient; writes that, and three numbers a row."""
    block = min(ENTROPY_PIECE[gradient], max(padded(width), 256))
    return pytorch(
        "losses",
        Kind.LOSS,
        rows,
        WARP * max(ENTROPY_WARPS[gradient] * block // ENTROPY_PIECE[gradient], 1),
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
            kernels.append(_optimizer("squares", here, SQUARES_WARPS, read, here * FLOAT32, 2 * elements))
            blocks += here
    if not blocks:
        return ()
    return *kernels, _optimizer("root", 1, 16, blocks * FLOAT32, FLOAT32, blocks)


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
        kernels.append(_optimizer("coefficients", ceil_div(count, 128), 4, 12 * count, 20 * count, 8 * count))
        kernels.append(_optimizer("update", blocks, ADAMW_WARPS, read, written, (17 + clips) * elements))
    return tuple(kernels)


def _optimizer(name: str, grid: int, warps: int, read: int, written: int, flops: int) -> Kernel:
    return pytorch(
        name,
        Kind.OPTIMIZER,
        grid,
        WARP * warps,
        read=read,
        written=written,
        flops=flops,
        math=Math.FP32,
        library=LIBRARY,
    )
