"""Triton kernels of the cross-entropy. All arithmetic is float32; exponentials are powers of two.

The logarithm of a row's sum of exponentials is kept as two numbers, its largest logit and the logarithm of the rest:
added up they would lose the digits that a confident row's loss and gradient consist of.

A row of an odd width begins at any address, and a load of 16 bytes does not. So a row is gone through in the vectors of
VECTOR elements that memory has, from the one that holds its first element on: elements have a position in them, which
is their column and `shift`. Vectors that are whole the row's are moved at once; of the first and the last, which other
rows have a part of, the row's own elements are (SPLIT: there are such rows).
"""

# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
LN2: tl.constexpr = tl.constexpr(0.6931471805599453)
LOWEST: tl.constexpr = tl.constexpr(-3.0e38)
"""Stands for no logit yet. Finite: infinity less infinity is no number, and a logit may be -inf."""
VECTOR: tl.constexpr = tl.constexpr(8)
"""Elements that a thread moves at once and keeps one running maximum for: 16 bytes of a half type."""


@triton.jit
def _capped(z, softcap, CAPPED: tl.constexpr):
    """softcap * tanh(z / softcap)."""
    if CAPPED:
        return softcap * (1.0 - 2.0 / (tl.exp2(z * (2.0 * LOG2E / softcap)) + 1.0))
    return z


@triton.jit
def _label_terms(logits_row, label, weight, softcap, width, CAPPED: tl.constexpr, WEIGHTED: tl.constexpr):
    """The label's logit and class weight; a label outside is not looked up."""
    valid = (label >= 0) & (label < width)
    z = _capped(tl.load(logits_row + label, mask=valid, other=0.0).to(tl.float32), softcap, CAPPED)
    class_weight = 1.0
    if WEIGHTED:
        class_weight = tl.load(weight + label, mask=valid, other=0.0).to(tl.float32)
    return z, class_weight, valid


@triton.jit
def _first_vector(row, stride, SPLIT: tl.constexpr):
    """Where the vector begins that holds a row's first element, and how many elements it has before that."""
    begin = row * stride
    if SPLIT:
        vector = begin // VECTOR * VECTOR
        return vector, (begin - vector).to(tl.int32)
    return begin, 0


@triton.jit
def _vectors(begin, shift, width, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    """Positions of the vectors of a block, and which are whole the row's: the same for all of a vector, so that it is
    moved at once.
    """
    first = begin + tl.arange(0, BLOCK // VECTOR)[:, None] * VECTOR
    whole = first < width
    if SPLIT:
        whole = (first >= shift) & (first + VECTOR <= shift + width)
    position = first + tl.arange(0, VECTOR)[None, :]
    return position, tl.broadcast_to(whole, position.shape)


@triton.jit
def _ends(shift, width):
    """Positions in the first vector and in the last, and which of them are the row's, where the vector is not."""
    lane = tl.arange(0, 2 * VECTOR)
    end = shift + width
    last = end // VECTOR * VECTOR
    position = tl.where(lane < VECTOR, lane, last + lane - VECTOR)
    split = tl.where(lane < VECTOR, (shift > 0) | (end < VECTOR), (last > 0) & (last < end))
    return position, split & (position >= shift) & (position < end)


@triton.jit
def _logits(
    raw, column, inside, weight, softcap, about, CAPPED: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr
):
    """As float32, -inf where there are none; and less `about`, weighted."""
    z = raw.to(tl.float32)
    if CAPPED:
        z = tl.where(inside, _capped(z, softcap, CAPPED), float("-inf"))
    part = tl.zeros_like(z)
    if SMOOTH:
        part = z - about
        if WEIGHTED:
            part *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        part = tl.where(inside, part, 0.0)
    return z, part


@triton.jit
def _row_sums(
    vectors, shift, weight, width, softcap, about,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Largest logit, log2 of the sum of exponentials relative to it, and the weighted sum of logits less `about`."""
    LANES: tl.constexpr = BLOCK // VECTOR
    top = tl.full((LANES,), LOWEST, tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    plain = tl.zeros((LANES,), tl.float32)
    for begin in range(0, shift + width, BLOCK):
        position, inside = _vectors(begin, shift, width, BLOCK, SPLIT)
        if KEEP:
            raw = tl.load(vectors + position, mask=inside, other=float("-inf"), eviction_policy="evict_last")
        else:
            raw = tl.load(vectors + position, mask=inside, other=float("-inf"), eviction_policy="evict_first")
        z, part = _logits(raw, position - shift, inside, weight, softcap, about, CAPPED, SMOOTH, WEIGHTED)
        if SMOOTH:
            plain += tl.sum(part, axis=1)
        higher = tl.maximum(top, tl.max(z, axis=1))
        total *= tl.exp2((top - higher) * LOG2E)
        total += tl.sum(tl.exp2((z - higher[:, None]) * LOG2E), axis=1)
        top = higher
    highest = tl.max(top, axis=0)
    others = tl.sum(plain, axis=0)
    if SPLIT:
        at_ends, in_ends = _ends(shift, width)
        raw = tl.load(vectors + at_ends, mask=in_ends, other=float("-inf"))
        z, part = _logits(raw, at_ends - shift, in_ends, weight, softcap, about, CAPPED, SMOOTH, WEIGHTED)
        others += tl.sum(part, axis=0)
        highest = tl.maximum(highest, tl.max(z, axis=0))
        rest = tl.sum(total * tl.exp2((top - highest) * LOG2E), axis=0)
        rest += tl.sum(tl.exp2((z - highest) * LOG2E), axis=0)
    else:
        rest = tl.sum(total * tl.exp2((top - highest) * LOG2E), axis=0)
    return highest, tl.log2(rest), others


@triton.jit
def _gradient(
    z, z_raw, column, label, highest, log2_rest, class_weight, all_weights, weight, scale,
    smoothing, z_loss, softcap, width,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, Z_LOSS: tl.constexpr,
):  # fmt: skip
    """Of the loss by the logits at `column`, times `scale`."""
    per_label = scale * class_weight
    per_probability = per_label
    if SMOOTH:
        per_label *= 1.0 - smoothing
        per_probability = per_label + scale * (smoothing / width) * all_weights
    if Z_LOSS:
        per_probability += 2.0 * z_loss * scale * class_weight * (highest + log2_rest * LN2)
    result = tl.exp2((z - highest) * LOG2E - log2_rest) * per_probability
    result = tl.where(column == label, result - per_label, result)
    if SMOOTH:
        even = scale * (smoothing / width)
        if WEIGHTED:
            inside = (column >= 0) & (column < width)
            even *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        result -= even
    if CAPPED:
        share = z / softcap
        # A logit of -inf lies on the flat end of tanh.
        result = tl.where(z_raw == float("-inf"), 0.0, result * (1.0 - share * share))
    return result


@triton.jit
def _scale(incoming, incoming_stride, denominator, row, INCOMING: tl.constexpr, MEAN: tl.constexpr):
    """What a row's gradient is multiplied by."""
    scale = 1.0
    if INCOMING:
        scale = tl.load(incoming + row * incoming_stride).to(tl.float32)
    if MEAN:
        scale /= tl.load(denominator)
    return scale


@triton.jit
def losses(
    logits, labels, weight, all_weights, denominator, loss, lse, gradient, wrong,
    rows, width, stride, gradient_stride, ignore_index, smoothing, z_loss, softcap,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, Z_LOSS: tl.constexpr,
    MEAN: tl.constexpr, GRADIENT: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr, ALIKE: tl.constexpr,
):  # fmt: skip
    """A block takes a row: its loss, and with GRADIENT the gradient for an incoming one of 1, for which the row is read
    again, from L2. `lse` holds the largest logits, then the log2 of the rest.
    """
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row).to(tl.int64)
    if label == ignore_index:
        tl.store(loss + row, 0.0)
        tl.store(lse + row, 0.0)
        tl.store(lse + rows + row, 0.0)
        if GRADIENT:
            first, shift = _first_vector(row, gradient_stride, SPLIT)
            for begin in range(0, shift + width, BLOCK):
                position, inside = _vectors(begin, shift, width, BLOCK, SPLIT)
                nothing = tl.zeros((BLOCK // VECTOR, VECTOR), gradient.dtype.element_ty)
                tl.store(gradient + first + position, nothing, mask=inside)
            if SPLIT:
                at_ends, in_ends = _ends(shift, width)
                no_ends = tl.zeros((2 * VECTOR,), gradient.dtype.element_ty)
                tl.store(gradient + first + at_ends, no_ends, mask=in_ends)
    else:
        z, class_weight, valid = _label_terms(
            logits + row * stride, label, weight, softcap, width, CAPPED, WEIGHTED
        )  # fmt: skip
        about = tl.where(tl.abs(z) < 1e38, z, 0.0)
        first, shift = _first_vector(row, stride, SPLIT)
        highest, log2_rest, plain = _row_sums(
            logits + first, shift, weight, width, softcap, about, CAPPED, SMOOTH, WEIGHTED, BLOCK, GRADIENT, SPLIT
        )
        if not valid:
            tl.store(wrong, label)
            log2_rest = float("nan")
        log_rest = log2_rest * LN2
        result = ((highest - z) + log_rest) * class_weight
        total_weight = 1.0 * width
        if WEIGHTED and SMOOTH:
            total_weight = tl.load(all_weights)
        if SMOOTH:
            even = total_weight * ((highest - about) + log_rest) - plain
            result = (1.0 - smoothing) * result + (smoothing / width) * even
        if Z_LOSS:
            result += z_loss * class_weight * (highest + log_rest) * (highest + log_rest)
        tl.store(loss + row, result)
        tl.store(lse + row, highest)
        tl.store(lse + rows + row, log2_rest)
        if GRADIENT:
            scale = _scale(loss, 0, denominator, row, False, MEAN)
            to = _to_vectors(row, gradient_stride, shift, SPLIT, ALIKE)
            for begin in range(0, shift + width, BLOCK):
                position, inside = _vectors(begin, shift, width, BLOCK, SPLIT)
                _write_gradient(
                    logits + first, gradient + to, position, inside, position - shift, label, highest, log2_rest,
                    class_weight, total_weight, weight, scale, smoothing, z_loss, softcap, width,
                    CAPPED, SMOOTH, WEIGHTED, Z_LOSS, False,
                )  # fmt: skip
            if SPLIT:
                at_ends, in_ends = _ends(shift, width)
                _write_gradient(
                    logits + first, gradient + to, at_ends, in_ends, at_ends - shift, label, highest, log2_rest,
                    class_weight, total_weight, weight, scale, smoothing, z_loss, softcap, width,
                    CAPPED, SMOOTH, WEIGHTED, Z_LOSS, True,
                )  # fmt: skip


@triton.jit
def _to_vectors(row, gradient_stride, shift, SPLIT: tl.constexpr, ALIKE: tl.constexpr):
    """Where a row of the gradient would have position 0. ALIKE: its rows begin in a vector where the logits' do."""
    if SPLIT and ALIKE:
        return row * gradient_stride // VECTOR * VECTOR
    return row * gradient_stride - shift


@triton.jit
def _write_gradient(
    vectors, to, position, inside, column, label, highest, log2_rest, class_weight, total_weight, weight, scale,
    smoothing, z_loss, softcap, width,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, Z_LOSS: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Of a row's logits at `position`, in whose place it may be written. ENDS: they are fewer than threads, so that
    every warp reads them all, and one writes them.
    """
    raw = tl.load(vectors + position, mask=inside, other=float("-inf"), eviction_policy="evict_first").to(tl.float32)
    value = _gradient(
        _capped(raw, softcap, CAPPED), raw, column, label, highest, log2_rest, class_weight, total_weight,
        weight, scale, smoothing, z_loss, softcap, width, CAPPED, SMOOTH, WEIGHTED, Z_LOSS,
    )  # fmt: skip
    if ENDS:
        tl.debug_barrier()
    tl.store(to + position, value.to(to.dtype.element_ty), mask=inside)


@triton.jit
def _gradient_piece(
    row, begin, logits, labels, weight, all_weights, denominator, incoming, incoming_stride, lse, gradient,
    rows, width, stride, gradient_stride, ignore_index, smoothing, z_loss, softcap,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, Z_LOSS: tl.constexpr,
    MEAN: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr, ALIKE: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of BLOCK elements of one row, and of its ends with the first of them."""
    label = tl.load(labels + row).to(tl.int64)
    first, shift = _first_vector(row, stride, SPLIT)
    to = gradient + _to_vectors(row, gradient_stride, shift, SPLIT, ALIKE)
    position, inside = _vectors(begin, shift, width, BLOCK, SPLIT)
    if label == ignore_index:
        nothing = tl.zeros((BLOCK // VECTOR, VECTOR), gradient.dtype.element_ty)
        tl.store(to + position, nothing, mask=inside)
        if SPLIT:
            at_ends, in_ends = _ends(shift, width)
            no_ends = tl.zeros((2 * VECTOR,), gradient.dtype.element_ty)
            tl.store(to + at_ends, no_ends, mask=in_ends & (begin == 0))
    else:
        class_weight = 1.0
        if WEIGHTED:
            valid = (label >= 0) & (label < width)
            class_weight = tl.load(weight + label, mask=valid, other=0.0).to(tl.float32)
        total_weight = 1.0 * width
        if WEIGHTED and SMOOTH:
            total_weight = tl.load(all_weights)
        scale = _scale(incoming, incoming_stride, denominator, row, True, MEAN)
        highest, log2_rest = tl.load(lse + row), tl.load(lse + rows + row)
        _write_gradient(
            logits + first, to, position, inside, position - shift, label, highest, log2_rest,
            class_weight, total_weight, weight, scale, smoothing, z_loss, softcap, width,
            CAPPED, SMOOTH, WEIGHTED, Z_LOSS, False,
        )  # fmt: skip
        if SPLIT:
            at_ends, in_ends = _ends(shift, width)
            _write_gradient(
                logits + first, to, at_ends, in_ends & (begin == 0), at_ends - shift, label, highest, log2_rest,
                class_weight, total_weight, weight, scale, smoothing, z_loss, softcap, width,
                CAPPED, SMOOTH, WEIGHTED, Z_LOSS, True,
            )  # fmt: skip


@triton.jit
def gradients(
    logits, labels, weight, all_weights, denominator, incoming, incoming_stride, lse, gradient,
    rows, width, stride, gradient_stride, ignore_index, smoothing, z_loss, softcap,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, Z_LOSS: tl.constexpr,
    MEAN: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr, ALIKE: tl.constexpr,
):  # fmt: skip
    """A block takes a piece of a row."""
    _gradient_piece(
        tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK,
        logits, labels, weight, all_weights, denominator, incoming, incoming_stride, lse, gradient,
        rows, width, stride, gradient_stride, ignore_index, smoothing, z_loss, softcap,
        CAPPED, SMOOTH, WEIGHTED, Z_LOSS, MEAN, BLOCK, SPLIT, ALIKE,
    )  # fmt: skip


@triton.jit
def gradients_unless_one(
    logits, labels, weight, all_weights, denominator, incoming, lse, gradient, told,
    rows, width, stride, gradient_stride, ignore_index, smoothing, z_loss, softcap,
    CAPPED: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, Z_LOSS: tl.constexpr,
    MEAN: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr, ALIKE: tl.constexpr,
):  # fmt: skip
    """The gradient for an incoming one of 1 stands there already. If it is another, few blocks that walk rows do all
    over, and `told` is told; a block a piece would take longer to see that there is nothing to do.
    """
    if tl.load(incoming).to(tl.float32) != 1.0:
        if tl.program_id(0) == 0:
            tl.store(told, 1)
        for at in range(tl.program_id(0), rows, tl.num_programs(0)):
            row = tl.cast(at, tl.int64)
            # A vector more than there are elements: a row may begin in the middle of its first one.
            for begin in range(0, width + SPLIT * VECTOR, BLOCK):
                _gradient_piece(
                    row, begin,
                    logits, labels, weight, all_weights, denominator, incoming, 0, lse, gradient,
                    rows, width, stride, gradient_stride, ignore_index, smoothing, z_loss, softcap,
                    CAPPED, SMOOTH, WEIGHTED, Z_LOSS, MEAN, BLOCK, SPLIT, ALIKE,
                )  # fmt: skip


@triton.jit
def label_weight(labels, weight, out, rows, width, ignore_index, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):
    """What a mean divides by: the rows that count, or their classes' weights. One block, in a fixed order."""
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, rows, BLOCK):
        row = begin + tl.arange(0, BLOCK)
        label = tl.load(labels + row, mask=row < rows, other=-1).to(tl.int64)
        counts = (row < rows) & (label != ignore_index)
        if WEIGHTED:
            valid = counts & (label >= 0) & (label < width)
            total += tl.load(weight + label, mask=valid, other=0.0).to(tl.float32)
        else:
            total += counts.to(tl.float32)
    tl.store(out, tl.sum(total, axis=0))


@triton.jit
def reduced(loss, denominator, out, rows, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """The rows' losses added up, and divided for a mean. One block, in a fixed order."""
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, rows, BLOCK):
        row = begin + tl.arange(0, BLOCK)
        total += tl.load(loss + row, mask=row < rows, other=0.0)
    result = tl.sum(total, axis=0)
    if MEAN:
        result /= tl.load(denominator)
    tl.store(out, result)


@triton.jit
def scaled_unless_one(gradient, incoming, count, BLOCK: tl.constexpr):
    """Multiplies by the incoming gradient what stands there for one of 1: few blocks, which walk over it."""
    factor = tl.load(incoming).to(tl.float32)
    if factor != 1.0:
        step = tl.num_programs(0).to(tl.int64) * BLOCK
        for begin in range(tl.program_id(0).to(tl.int64) * BLOCK, count, step):
            at = begin + tl.arange(0, BLOCK)
            value = tl.load(gradient + at, mask=at < count, other=0.0).to(tl.float32) * factor
            tl.store(gradient + at, value.to(gradient.dtype.element_ty), mask=at < count)
