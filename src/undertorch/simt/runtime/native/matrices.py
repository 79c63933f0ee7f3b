"""8×8 matrices of 16-bit elements between shared memory and registers: ldmatrix, stmatrix, movmatrix.

A matrix in a register is its rows one behind the other: lane 4r + t holds elements 2t and 2t + 1 of row r (PTX ISA,
"ldmatrix"). Lane 8j + r gives the address of row r, 16 bytes, of matrix j; so the access is one of 16 bytes by those
lanes. Constants besides access.py's: MATRICES, and TRANSPOSED.
"""


def load_matrices(
    ctx: Context,
    warp: Warp,
    number: i32,
    addresses: P[A],
    offset: i64,
    mask: i32,
    r0: P[i32],
    r1: P[i32],
    r2: P[i32],
    r3: P[i32],
) -> i32:
    """ldmatrix. `mask`: lanes that run; of those that give addresses all have to."""
    giving = mask & row_lanes()
    if giving == 0:
        return GO_ON
    if not rows_approved(ctx, warp, number, addresses, offset, giving):
        return FAULT
    each = array(i64, 32)
    store(each, locate(ctx, warp, addresses, offset))
    load_matrix(each, 0, giving, mask, r0)
    if MATRICES > 1:
        load_matrix(each, 8, giving, mask, r1)
    if MATRICES > 2:
        load_matrix(each, 16, giving, mask, r2)
        load_matrix(each, 24, giving, mask, r3)
    return GO_ON


def store_matrices(
    ctx: Context,
    warp: Warp,
    number: i32,
    addresses: P[A],
    offset: i64,
    mask: i32,
    r0: P[i32],
    r1: P[i32],
    r2: P[i32],
    r3: P[i32],
) -> i32:
    """stmatrix."""
    giving = mask & row_lanes()
    if giving == 0:
        return GO_ON
    if not rows_approved(ctx, warp, number, addresses, offset, giving):
        return FAULT
    rows = array(i32, 128)
    keep_rows(r0, rows + 0)
    if MATRICES > 1:
        keep_rows(r1, rows + 32)
    if MATRICES > 2:
        keep_rows(r2, rows + 64)
        keep_rows(r3, rows + 96)
    if LEVEL > 1:
        note_rows(ctx, warp, number, giving, rows)
    each = array(i64, 32)
    store(each, locate(ctx, warp, addresses, offset))
    left = giving
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        copy(pointer(i8, each[lane]), rows + 4 * lane, 16)
    return GO_ON


def transpose_matrix(out: P[i32], a: P[i32], mask: i32) -> None:
    """movmatrix."""
    new = array(i32, 32)
    transposed(pointer(i16, a), pointer(i16, new))
    keep_lanes(new, mask, out)


def row_lanes() -> i32:
    """The lanes that give addresses."""
    if MATRICES == 4:
        return FULL
    return (1 << (8 * MATRICES)) - 1


def rows_approved(ctx: Context, warp: Warp, number: i32, addresses: P[A], offset: i64, giving: i32) -> i1:
    """Looks the rows' addresses up, counts the access and writes its event."""
    site = pointer(Site, ctx.sites) + number
    block = pointer(Block, warp.block)
    where = locate(ctx, warp, addresses, offset)
    origin = widen(i64, 0)
    if SPACE == SHARED:
        origin = block.shared
    start = widen(i64, addresses[trailing_zeros(giving)]) + offset + origin
    return approve(ctx, warp, site, number, where, start, origin, giving) != REFUSED


def load_matrix(each: P[i64], first: i32, giving: i32, mask: i32, out: P[i32]) -> None:
    """One matrix, whose rows lie where lanes from `first` on say."""
    rows = array(i32, 32)
    for n in range(8):
        if ((giving >> (first + n)) & 1) != 0:
            copy(rows + 4 * n, pointer(i32, each[first + n]), 16)
    if TRANSPOSED:
        turned = array(i32, 32)
        transposed(pointer(i16, rows), pointer(i16, turned))
        keep_lanes(turned, mask, out)
    else:
        keep_lanes(rows, mask, out)


def keep_rows(r: P[i32], rows: P[i32]) -> None:
    """A register's matrix as rows in memory."""
    if TRANSPOSED:
        transposed(pointer(i16, r), pointer(i16, rows))
    else:
        store(rows, load(V[i32], r))


def transposed(a: P[i16], out: P[i16]) -> None:
    """8×8 elements."""
    r0 = load(Row[i16], a)
    r1 = load(Row[i16], a + 8)
    r2 = load(Row[i16], a + 16)
    r3 = load(Row[i16], a + 24)
    r4 = load(Row[i16], a + 32)
    r5 = load(Row[i16], a + 40)
    r6 = load(Row[i16], a + 48)
    r7 = load(Row[i16], a + 56)
    # Three rounds that put the lower, or the upper, halves of two rows between each other.
    a0 = lower_zip(r0, r4)
    a1 = upper_zip(r0, r4)
    a2 = lower_zip(r1, r5)
    a3 = upper_zip(r1, r5)
    a4 = lower_zip(r2, r6)
    a5 = upper_zip(r2, r6)
    a6 = lower_zip(r3, r7)
    a7 = upper_zip(r3, r7)
    b0 = lower_zip(a0, a4)
    b1 = upper_zip(a0, a4)
    b2 = lower_zip(a1, a5)
    b3 = upper_zip(a1, a5)
    b4 = lower_zip(a2, a6)
    b5 = upper_zip(a2, a6)
    b6 = lower_zip(a3, a7)
    b7 = upper_zip(a3, a7)
    store(out, lower_zip(b0, b4))
    store(out + 8, upper_zip(b0, b4))
    store(out + 16, lower_zip(b1, b5))
    store(out + 24, upper_zip(b1, b5))
    store(out + 32, lower_zip(b2, b6))
    store(out + 40, upper_zip(b2, b6))
    store(out + 48, lower_zip(b3, b7))
    store(out + 56, upper_zip(b3, b7))


def keep_lanes(new: P[i32], mask: i32, out: P[i32]) -> None:
    """Writes the active lanes of a register."""
    if mask == FULL:
        store(out, load(V[i32], new))
    else:
        store(out, select(lanes(mask), load(V[i32], new), load(V[i32], out)))


def note_rows(ctx: Context, warp: Warp, number: i32, giving: i32, rows: P[i32]) -> None:
    """What a stmatrix writes: each row's lower 8 bytes, then the upper ones."""
    for half in range(2):
        values = array(i64, 32)
        for lane in range(32):
            values[lane] = load(i64, rows + (4 * lane + 2 * half))
        note_value(ctx, warp, number, giving, half, load(V[i64], values))
