"""D = A·B + C of small dense matrices: what mma does once its fragments are unpacked (codegen/tensor.py).

Rows of A, B and C lie one behind the other; D takes C's place. Constants: M, N, K, T (elements: f32, f64 or i32), HOW
(one of layout.py's: FUSED multiply-adds in T, k ascending; INTEGER, SATURATED; XOR_BITS, AND_BITS, of 32-bit words;
or SUMS, as a tensor core adds: numerics.py). Of SUMS: TERMS products to a sum, FRACTION, KEPT (bits of the result's
fraction), HALF (D is float16), HALF_SUM (so is each sum), ADDED_LAST (C is added to the finished sum, rounded), LEAST
and LEAST_C (exponents of the smallest normal numbers of A and B, and C).
"""


def multiply(a: P[T], b: P[T], c: P[T]) -> None:
    """All tiles of 8×8."""
    for m in range(M // 8):
        for n in range(N // 8):
            if HOW == SUMS:
                summed_tile(a + m * 8 * K, b + n * 8, c + (m * 8 * N + n * 8))
            else:
                tile(a + m * 8 * K, b + n * 8, c + (m * 8 * N + n * 8))


def tile(a: P[T], b: P[T], c: P[T]) -> None:
    """8×8 elements: a row of B is read once for 8 rows of A."""
    c0 = begun(c)
    c1 = begun(c + N)
    c2 = begun(c + 2 * N)
    c3 = begun(c + 3 * N)
    c4 = begun(c + 4 * N)
    c5 = begun(c + 5 * N)
    c6 = begun(c + 6 * N)
    c7 = begun(c + 7 * N)
    for k in range(K):
        y = load(Row[T], b + k * N)
        at = a + k
        c0 = added(at[0], y, c0)
        c1 = added(at[K], y, c1)
        c2 = added(at[2 * K], y, c2)
        c3 = added(at[3 * K], y, c3)
        c4 = added(at[4 * K], y, c4)
        c5 = added(at[5 * K], y, c5)
        c6 = added(at[6 * K], y, c6)
        c7 = added(at[7 * K], y, c7)
    end(c, c0)
    end(c + N, c1)
    end(c + 2 * N, c2)
    end(c + 3 * N, c3)
    end(c + 4 * N, c4)
    end(c + 5 * N, c5)
    end(c + 6 * N, c6)
    end(c + 7 * N, c7)


def begun(c: P[T]) -> Row[T]:
    """What a row of sums starts with: C, or zeros where C is added at the end."""
    start = load(Row[T], c)
    if HOW == SATURATED:
        return start ^ start
    return start


def added(x: T, y: Row[T], c: Row[T]) -> Row[T]:
    """c + x·y."""
    if HOW == FUSED:
        return fused(eight(x), y, c)
    if (HOW == INTEGER) or (HOW == SATURATED):
        return c + eight(x) * y
    if HOW == XOR_BITS:
        return c + population(eight(x) ^ y)
    if HOW == AND_BITS:
        return c + population(eight(x) & y)


def end(c: P[T], total: Row[T]) -> None:
    """Writes a row of D."""
    if HOW == SATURATED:
        store(c, saturating_sum(load(Row[T], c), total))
    else:
        store(c, total)


def summed_tile(a: P[f32], b: P[f32], c: P[f32]) -> None:
    """8×8 elements, each by one fused sum behind the other."""
    for row in range(8):
        at = c + row * N
        total = load(Row[f32], at)
        if ADDED_LAST:
            total = as_bits(f32, eight(0))
        for block in range(K // TERMS):
            total = fused_sum(a + row * K, b, total, block)
        if ADDED_LAST:
            total = nearest(nearest(total) + load(Row[f32], at))
        store(at, nearest(total))


def nearest(x: Row[f32]) -> Row[f32]:
    """A float32 as D's type."""
    if HALF:
        return widen_float(f32, narrow_float(half, x))
    return x


def place(block: i32, k: i32) -> i32:
    """Which product comes k-th in a sum; of 8-bit floats every second pair of them, as registers hold them."""
    if ADDED_LAST:
        return (k // 2) * 4 + 2 * block + k % 2
    return block * TERMS + k


def fused_sum(a: P[f32], b: P[f32], c: Row[f32], block: i32) -> Row[f32]:
    """c + a·b of TERMS products: exact products, aligned to the largest exponent, cut off, added, cut off.

    The exponent of a product is the sum of its factors', so that its significand may be up to 4; numbers of 52 bits
    hold all of it. Zeros count as if they had float32's least exponent (arXiv 2511.10909).
    """
    wide = widen_float(f64, c)
    top = select(c == 0, eight(-126), exponent(c, LEAST_C))
    plain = wide
    for k in range(TERMS):
        x = eight(a[place(block, k)])
        y = load(Row[f32], b + place(block, k) * N)
        p = widen_float(f64, x) * widen_float(f64, y)
        e = select(p == 0, eight(-126), exponent(x, LEAST) + exponent(y, LEAST))
        top = select(signed_less(top, e), e, top)
        plain = plain + p
    scale = power(eight(FRACTION) - top)
    total = truncated(wide * scale)
    for k in range(TERMS):
        at = place(block, k)
        p = widen_float(f64, eight(a[at])) * widen_float(f64, load(Row[f32], b + at * N))
        total = total + truncated(p * scale)
    total = total * power(top - eight(FRACTION)) + 0
    result = rounded(total)
    special = narrow_float(f32, plain)
    return select((plain - plain) == 0, result, special)


def exponent(x: Row[f32], least: i32) -> Row[i32]:
    """As the hardware reads it: that of the smallest normal number for what lies below."""
    e = ((as_bits(i32, x) >> 23) & 255) - 127
    return select(signed_less(e, eight(least)), eight(least), e)


def power(n: Row[i32]) -> Row[f64]:
    """2 to the n-th."""
    return as_bits(f64, widen_signed(i64, n + 1023) << 52)


def rounded(x: Row[f64]) -> Row[f32]:
    """Towards zero, to KEPT bits of fraction; of HALF to nearest even, as float16."""
    if HALF_SUM:
        # Through float32, rounded to odd: then to float16 as if once (24 bits are enough, Boldo and Melquiond 2008).
        down = cut(x, 29)
        odd = as_bits(i32, narrow_float(f32, down))
        inexact = (x - down) != 0
        odd = select(inexact, odd | 1, odd)
        return widen_float(f32, narrow_float(half, as_bits(f32, odd)))
    down = narrow_float(f32, cut(x, 52 - KEPT))
    # Below float32's normal numbers: a whole number of its smallest ones.
    small = size_of(x) < power(eight(-126))
    lifted = truncated(x * power(eight(149))) * power(eight(-149))
    return select(small, narrow_float(f32, lifted), down)


def cut(x: Row[f64], bits: i64) -> Row[f64]:
    """Without the last bits of its significand."""
    ones = ~widen(i64, eight(0))
    return as_bits(f64, as_bits(i64, x) & (ones << eight(bits)))
