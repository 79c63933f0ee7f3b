"""Triton kernels of AdamW over many tensors."""

# The bodies are Triton's language, in Python's syntax.
# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def coefficients(
    steps, out, lr, norm, tensors, lr_value, log_beta1, log_beta2, weight_decay, max_norm,
    LR_TENSOR: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Advances the step of each tensor; writes its step size, the root that divides, its decay, and the clipping."""
    which = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = which < tensors
    step = tl.load(steps + which, mask=inside, other=0).to(tl.pointer_type(tl.float32))
    count = tl.load(step, mask=inside, other=1.0) + 1.0
    tl.store(step, count, mask=inside)
    t = count.to(tl.float64)
    # In float64: 1 - b2^t of the first steps keeps few digits of a float32.
    first = 1.0 - tl.exp(t * log_beta1)
    second = 1.0 - tl.exp(t * log_beta2)
    rate = lr_value
    if LR_TENSOR:
        rate = tl.load(lr).to(tl.float32)
    clip = 1.0
    if CLIP:
        clip = max_norm / (tl.load(norm).to(tl.float32) + 1e-6)
        clip = tl.where(clip > 1.0, 1.0, clip)  # nan stays
    tl.store(out + which * 4, (rate / first).to(tl.float32), mask=inside)
    tl.store(out + which * 4 + 1, (1.0 / tl.sqrt(second)).to(tl.float32), mask=inside)
    tl.store(out + which * 4 + 2, tl.zeros((BLOCK,), tl.float32) + (1.0 - rate * weight_decay), mask=inside)
    tl.store(out + which * 4 + 3, tl.zeros((BLOCK,), tl.float32) + clip, mask=inside)


@triton.jit
def _piece(
    copy, p, g, m, v, element, left, rate, root, decay, clip, rest1, beta2, rest2, eps,
    MASTER: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    if MASKED:
        inside = element < left
        value = tl.load(p + element, mask=inside)
        given = tl.load(g + element, mask=inside)
        first = tl.load(m + element, mask=inside)
        second = tl.load(v + element, mask=inside)
    else:
        value = tl.load(p + element)
        given = tl.load(g + element)
        first = tl.load(m + element)
        second = tl.load(v + element)
    given = given.to(tl.float32) * clip
    first = first + rest1 * (given - first)
    second = beta2 * second + rest2 * given * given
    value = value.to(tl.float32) * decay - rate * (first / (tl.sqrt(second) * root + eps))
    if MASKED:
        tl.store(p + element, value.to(p.dtype.element_ty), mask=inside)
        tl.store(m + element, first, mask=inside)
        tl.store(v + element, second, mask=inside)
        if MASTER:
            tl.store(copy + element, value.to(copy.dtype.element_ty), mask=inside)
    else:
        tl.store(p + element, value.to(p.dtype.element_ty))
        tl.store(m + element, first)
        tl.store(v + element, second)
        if MASTER:
            tl.store(copy + element, value.to(copy.dtype.element_ty))


@triton.jit
def update(
    pointers, sizes, tensor_of_block, start_of_block, table, tensors, rest1, beta2, rest2, eps,
    P: tl.constexpr, G: tl.constexpr, COPY: tl.constexpr, MASTER: tl.constexpr, ALIGNED: tl.constexpr,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block updates a chunk of one tensor."""
    block = tl.program_id(0)
    which = tl.load(tensor_of_block + block)
    start = tl.load(start_of_block + block)
    left = tl.minimum(tl.load(sizes + which) - start, CHUNK).to(tl.int32)
    p = tl.load(pointers + which).to(tl.pointer_type(P)) + start
    g = tl.load(pointers + tensors + which).to(tl.pointer_type(G)) + start
    m = tl.load(pointers + 2 * tensors + which).to(tl.pointer_type(tl.float32)) + start
    v = tl.load(pointers + 3 * tensors + which).to(tl.pointer_type(tl.float32)) + start
    copy = p
    if MASTER:
        copy = tl.load(pointers + 4 * tensors + which).to(tl.pointer_type(COPY)) + start
    if ALIGNED:
        p, g = tl.multiple_of(p, 16), tl.multiple_of(g, 16)
        m, v = tl.multiple_of(m, 16), tl.multiple_of(v, 16)
        if MASTER:
            copy = tl.multiple_of(copy, 16)
    rate = tl.load(table + which * 4)
    root = tl.load(table + which * 4 + 1)
    decay = tl.load(table + which * 4 + 2)
    clip = tl.load(table + which * 4 + 3)
    # Whole pieces need no mask, and a mask that is no multiple of a vector would make loads narrow.
    whole = left // BLOCK * BLOCK
    for at in range(0, whole, BLOCK):
        element = at + tl.arange(0, BLOCK)
        _piece(copy, p, g, m, v, element, left, rate, root, decay, clip, rest1, beta2, rest2, eps, MASTER, False)
    if whole < left:
        element = whole + tl.arange(0, BLOCK)
        _piece(copy, p, g, m, v, element, left, rate, root, decay, clip, rest1, beta2, rest2, eps, MASTER, True)
