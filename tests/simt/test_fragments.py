"""Where fragments lie: the PTX ISA's formulas ("Matrix Fragments for mma"), shape by shape, and places worked by hand.

The ISA counts a thread's elements a0, a1, …, through its registers; groupID is lane >> 2, threadID_in_group lane % 4.
"""

import pytest

from undertorch.simt.ptx.fragments import Product, places


def product(m, n, k, kind, accumulator="f32", **more):
    return Product(m=m, n=n, k=k, d=accumulator, a=kind, b=kind, c=accumulator, **more)


A_FORMULAS = {
    ("f16", 8): lambda g, t, i: (g + 8 * (i >= 2), 2 * t + (i & 1)),
    ("bf16", 16): lambda g, t, i: (g + 8 * (2 <= i < 4 or i >= 6), 2 * t + (i & 1) + 8 * (i >= 4)),
    ("tf32", 4): lambda g, t, i: (g + 8 * i, t),
    ("tf32", 8): lambda g, t, i: (g + 8 * (i in (1, 3)), t + 4 * (i >= 2)),
    ("f64", 4): lambda g, t, i: (g + 8 * i, t),
    ("f64", 8): lambda g, t, i: (g + 8 * (i in (1, 3)), t + 4 * (i >= 2)),
    ("f64", 16): lambda g, t, i: (g + 8 * (i % 2), (2 * i if i % 2 == 0 else 2 * i - 2) + t),
    ("s8", 16): lambda g, t, i: (g + 8 * (i >= 4), 4 * t + (i & 3)),
    ("e4m3", 32): lambda g, t, i: (g + 8 * (4 <= i < 8 or i >= 12), 4 * t + (i & 3) + 16 * (i >= 8)),
    ("u4", 32): lambda g, t, i: (g + 8 * (i >= 8), 8 * t + (i & 7)),
    ("s4", 64): lambda g, t, i: (g + 8 * (8 <= i < 16 or i >= 24), 8 * t + (i & 7) + 32 * (i >= 16)),
}
B_FORMULAS = {
    ("f16", 8): lambda g, t, i: (2 * t + i, g),
    ("bf16", 16): lambda g, t, i: (2 * t + (i & 1) + 8 * (i >= 2), g),
    ("tf32", 4): lambda g, t, i: (t, g),
    ("tf32", 8): lambda g, t, i: (t + 4 * i, g),
    ("f64", 4): lambda g, t, i: (t, g),
    ("f64", 8): lambda g, t, i: (t + 4 * i, g),
    ("f64", 16): lambda g, t, i: (t + 4 * i, g),
    ("s8", 16): lambda g, t, i: (4 * t + i, g),
    ("e4m3", 32): lambda g, t, i: (4 * t + (i & 3) + 16 * (i >= 4), g),
    ("u4", 32): lambda g, t, i: (8 * t + i, g),
    ("s4", 64): lambda g, t, i: (8 * t + (i & 7) + 32 * (i >= 8), g),
}


@pytest.mark.parametrize(("role", "formulas"), [("a", A_FORMULAS), ("b", B_FORMULAS)])
def test_factors_lie_where_the_isa_says(role, formulas):
    for (kind, k), formula in formulas.items():
        fragment = product(16, 8, k, kind).fragment(role)
        for register, lane, element in fragment.elements():
            where = formula(lane >> 2, lane % 4, register * fragment.packed + element)
            assert fragment.position(register, lane, element) == where, (kind, k, register, lane, element)


@pytest.mark.parametrize("kind", ["f32", "f16", "f64", "s32"])
def test_accumulators_lie_where_the_isa_says(kind):
    """c0, c1 in row groupID and c2, c3 in row groupID + 8; the column is 2 * threadID_in_group + (i & 1)."""
    fragment = product(16, 8, 16, "f64" if kind == "f64" else "f16", kind).fragment("c")
    for register, lane, element in fragment.elements():
        i = register * fragment.packed + element
        assert fragment.position(register, lane, element) == ((lane >> 2) + 8 * (i >= 2), 2 * (lane % 4) + (i & 1))


def test_some_places_of_the_figures():
    """m16n8k16 of halves: T0 starts each matrix, T31 ends it; bits of m16n8k256, 32 to a register."""
    halves = product(16, 8, 16, "f16")
    assert [halves.fragment("a").position(r, 0, 0) for r in range(4)] == [(0, 0), (8, 0), (0, 8), (8, 8)]
    assert halves.fragment("a").position(3, 31, 1) == (15, 15)
    assert halves.fragment("b").position(1, 6, 0) == (12, 1)
    assert halves.fragment("d").position(2, 13, 0) == (11, 2)
    bits = product(16, 8, 256, "b1", "s32")
    assert (bits.fragment("a").registers, bits.fragment("b").registers) == (4, 2)
    assert bits.fragment("a").position(2, 1, 0) == (0, 5)  # its word 5: bits 160 to 191
    assert bits.fragment("b").position(1, 4, 0) == (4, 1)


SHAPES = [
    *(((m, n, 16), kind, "f32") for m, n in ((16, 16), (8, 32), (32, 8)) for kind in ("f16", "bf16")),
    *(((m, n, 16), "s8", "s32") for m, n in ((16, 16), (8, 32), (32, 8))),
    ((16, 16, 8), "tf32", "f32"), ((8, 8, 4), "f64", "f64"), ((8, 8, 32), "s4", "s32"), ((8, 8, 128), "b1", "s32"),
]  # fmt: skip
REGISTERS = {
    # Of A, B and C or D, as the PTX ISA counts them under "Matrix Fragments for WMMA".
    ("f16", 16, 16): (8, 8, 8), ("f16", 8, 32): (8, 8, 8), ("f16", 32, 8): (8, 8, 8),
    ("bf16", 16, 16): (4, 4, 8), ("bf16", 8, 32): (2, 8, 8), ("bf16", 32, 8): (8, 2, 8),
    ("s8", 16, 16): (2, 2, 8), ("s8", 8, 32): (1, 4, 8), ("s8", 32, 8): (4, 1, 8),
    ("tf32", 16, 16): (4, 4, 8), ("f64", 8, 8): (1, 1, 2), ("s4", 8, 8): (1, 1, 2), ("b1", 8, 8): (1, 1, 2),
}  # fmt: skip


@pytest.mark.parametrize(("shape", "kind", "accumulator"), SHAPES)
def test_fragments_of_wmma_have_the_isas_registers_and_all_of_the_matrix(shape, kind, accumulator):
    whole = product(*shape, kind, accumulator, wmma=True)
    fragments = [whole.fragment(role) for role in "abc"]
    assert tuple(f.registers for f in fragments) == REGISTERS[kind, *shape[:2]]
    for fragment in fragments:
        every = {(row, column) for row in range(fragment.rows) for column in range(fragment.columns)}
        assert places(fragment).keys() == every
