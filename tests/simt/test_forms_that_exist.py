"""What the table takes, ptxas takes: tests/golden/ptx_forms.json.gz has its answers for every spelling of the rows."""

import gzip
import json
from itertools import product
from pathlib import Path

import pytest

from undertorch.simt.ptx.opcodes import match

GOLDEN = json.loads(gzip.decompress((Path(__file__).parents[1] / "golden" / "ptx_forms.json.gz").read_bytes()))
TAKEN = set(GOLDEN["sm_80"]) | set(GOLDEN["sm_90"])
TYPES = [
    "b8",
    "b16",
    "b32",
    "b64",
    "u8",
    "u16",
    "u32",
    "u64",
    "s8",
    "s16",
    "s32",
    "s64",
    "f16",
    "bf16",
    "f16x2",
    "bf16x2",
    "f32",
    "f64",
]
COMPARED = [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "lo",
    "ls",
    "hi",
    "hs",
    "equ",
    "neu",
    "ltu",
    "leu",
    "gtu",
    "geu",
    "num",
    "nan",
]
ROUNDED = ["", ".rn", ".rz", ".rm", ".rp", ".rni", ".rzi", ".rmi", ".rpi", ".rna"]
SPACES = ["", ".global", ".shared", ".shared::cta"]


ORDERS = ["", ".weak", ".relaxed", ".acquire", ".release", ".acq_rel", ".volatile", ".mmio"]
OTHERS = [
    "mov", "selp", "mul.wide", "mul.lo", "mad.wide", "abs", "neg", "abs.ftz", "ex2.approx", "ex2.approx.ftz",
    "tanh.approx", "tanh.approx.ftz", "cvta.global", "ldu", "popc",
]  # fmt: skip


def spellings():
    """More than PTX has: every type with every modifier that one of them takes."""
    for word, space, op, kind in product(
        ("atom", "red"), SPACES, ["add", "min", "max", "inc", "dec", "and", "or", "xor"], TYPES
    ):
        yield f"{word}{space}.{op}.{kind}"
    for space, op, kind in product(SPACES, ("exch", "cas"), TYPES):
        yield f"atom{space}.{op}.{kind}"
    for compare, boolean, ftz, kind in product(COMPARED, ("", ".and"), ("", ".ftz"), TYPES):
        yield f"setp.{compare}{boolean}{ftz}.{kind}"
    for compare, ftz, to, kind in product(COMPARED, ("", ".ftz"), TYPES, TYPES):
        yield f"set.{compare}{ftz}.{to}.{kind}"
    for rounding, ftz, sat, to, kind in product(ROUNDED, ("", ".ftz"), ("", ".sat"), TYPES, TYPES):
        yield f"cvt{rounding}{ftz}{sat}.{to}.{kind}"
    for op, ftz, nan, sign, size, kind in product(
        ("min", "max"), ("", ".ftz"), ("", ".NaN"), ("", ".xorsign"), ("", ".abs"), TYPES
    ):
        yield f"{op}{ftz}{nan}{sign}{size}.{kind}"
    for op, rounding, ftz, sat, relu, kind in product(
        ("fma", "mad"), ROUNDED, ("", ".ftz"), ("", ".sat"), ("", ".relu"), TYPES
    ):
        yield f"{op}{rounding}{ftz}{sat}{relu}.{kind}"
    for op, kind in product(OTHERS, TYPES):
        yield f"{op}.{kind}"
    for word, vector, kind in product(("ld", "st", "ld.global", "st.shared", "ld.param"), ("", ".v2", ".v4"), TYPES):
        yield f"{word}{vector}.{kind}"
    for word, order, scope, space in product(
        ("ld", "st"), ORDERS, ("", ".gpu"), (*SPACES, ".local", ".param", ".const")
    ):
        yield f"{word}{order}{scope}{space}.u32"
    for word, cop, space in product(
        ("ld", "st"), [".ca", ".cg", ".cs", ".lu", ".cv", ".wb", ".wt", ".nc"], (*SPACES, ".const")
    ):
        yield f"{word}{space}{cop}.u32"
    for word, scope in product(("membar", "fence", "fence.sc"), ("cta", "gl", "gpu", "sys", "cluster")):
        yield f"{word}.{scope}"


@pytest.mark.parametrize(
    "word",
    ["atom", "red", "setp", "set", "cvt", "min", "max", "fma", "mad", "mov", "ld", "st", "membar", "fence", "other"],
)
def test_a_form_is_taken_where_ptxas_takes_it_and_nowhere_else(word):
    """Before, `atom.min.f32`, `atom.xor.f32`, `atom.inc.s64` and thousands more ran, and gave something."""
    words = ["atom", "red", "setp", "set", "cvt", "min", "max", "fma", "mad", "mov", "ld", "st", "membar", "fence"]
    asked = {o for o in spellings() if (o.split(".")[0] == word or (word == "other" and o.split(".")[0] not in words))}
    assert {o for o in asked if match(o) is not None} == asked & TAKEN


def test_all_that_ptxas_takes_of_the_table_is_taken():
    assert [opcode for opcode in TAKEN if match(opcode) is None] == []
