"""Constants in PTX: what ptxas takes where, and what they come to.

Which literal fits which type was asked of ptxas (CUDA 13.0), one line each; roundings are those it writes into SASS:
decimal literals to nearest, 1e300 as a float32 is infinity.
"""

import numpy as np
import pytest

import undertorch
from undertorch.simt import PtxError

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .f32 %f<9>; .reg .b16 %h<9>; .reg .f64 %fd<9>;"


def run(body, head="", dtype=np.float32):
    y = np.zeros(2, np.uint64)
    text = f"{HEAD}{head}\n.visible .entry k(.param .u64 p) {{\n{REGISTERS}\nld.param.u64 %rd1,[p];\n{body}\nret;\n}}\n"
    undertorch.ptx(text)["k"][1, 1](y)
    return y.view(dtype)[0]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("mov.f32 %f1,1.5; st.global.f32 [%rd1],%f1;", 1.5),
        ("mov.f32 %f1,-.5; st.global.f32 [%rd1],%f1;", -0.5),
        ("mov.f32 %f1,0d3FF8000000000000; st.global.f32 [%rd1],%f1;", 1.5),
        ("mov.f32 %f1,1e300; st.global.f32 [%rd1],%f1;", np.inf),
        ("mov.f32 %f1,0.1; st.global.f32 [%rd1],%f1;", np.float32(0.1)),
        ("setp.eq.u32 %p1,1,1; selp.f32 %f1,1.5,2.5,%p1; st.global.f32 [%rd1],%f1;", 1.5),
        ("slct.f32.s32 %f1,1.5,2.5,-1; st.global.f32 [%rd1],%f1;", 2.5),
        ("slct.f32.f32 %f1,1.5,2.5,0.5; st.global.f32 [%rd1],%f1;", 1.5),
        ("st.global.f32 [%rd1],1.5;", 1.5),
        ("st.global.v2.f32 [%rd1],{1.5,2.5};", 1.5),
        ("red.global.add.f32 [%rd1],1.5;", 1.5),
        ("atom.global.add.f32 %f1,[%rd1],2.5;", 2.5),
        ("atom.global.exch.b32 %r1,[%rd1],0f3FC00000;", 1.5),
        ("{.param .b32 q; st.param.f32 [q],1.5; ld.param.f32 %f1,[q];} st.global.f32 [%rd1],%f1;", 1.5),
        ("mov.f64 %fd1,0f3FC00000; cvt.rn.f32.f64 %f1,%fd1; st.global.f32 [%rd1],%f1;", 1.5),
        ("mov.b64 %rd2,1.5; cvt.rn.f32.f64 %f1,%rd2; st.global.f32 [%rd1],%f1;", 1.5),
        ("cvt.rn.f16.f32 %h1,1.5; cvt.f32.f16 %f1,%h1; st.global.f32 [%rd1],%f1;", 1.5),
    ],
)
def test_float_literals_have_their_values_in_every_instruction(body, value):
    assert run(body) == value


@pytest.mark.parametrize(
    "statement",
    [
        "mov.f32 %f1,1;", "mov.b32 %r1,1.5;", "mov.u32 %r1,0f3F800000;", "mov.b64 %rd2,0f3F800000;",
        "add.f16 %h1,%h1,1.5;", "add.f16 %h1,%h1,0x3c00;", "fma.rn.f16 %h1,%h1,1.5,%h1;", "add.f16x2 %r1,%r1,1;",
        "selp.f32 %f1,1,2,%p1;", "st.global.f32 [%rd1],1;", "st.global.b32 [%rd1],1.5;", "add.s32 %r1,%r1,1.5;",
        "red.global.add.u32 [%rd1],1.5;", "atom.global.exch.b32 %r1,[%rd1],1.5;", "mov.f32 %f1,1e999;",
        "mov.u32 %r1,09;", "mov.u32 %r1,99999999999999999999999;", "setp.gt.f32 %p1,%f1,1;", "mov.u32 %r1,1/0;",
        f"mov.u32 %r1,{'9' * 10000};", f"mov.u32 %r1,{'(' * 3000}1{')' * 3000};", "mov.u32 %r1,٣;",
    ],
)  # fmt: skip
def test_constants_that_ptxas_refuses_are_refused_by_line(statement):
    with pytest.raises(PtxError, match=r"PTX line 8: "):
        run(statement)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2+3", 5), ("(2+3)*4", 20), ("1<<4|3", 19), ("7>3?8:9", 8), ("~0", 0xFFFFFFFF),
        ("!5", 0), ("-7/2", 0xFFFFFFFD),
        ("17 % 5", 2), ("010", 8), ("0b101", 5), ("WARP_SZ*2", 64), ("1==1&&2!=2", 0), ("0x1FFFFFFFF", 0xFFFFFFFF),
    ],
)  # fmt: skip
def test_constant_expressions_are_c_s(expression, value):
    """PTX ISA, "Constant Expressions": C's operators on integers of 64 bits."""
    assert run(f"mov.u32 %r1,{expression}; st.global.u32 [%rd1],%r1;", dtype=np.uint32) == value


@pytest.mark.parametrize(
    ("head", "statement", "value"),
    [
        (".global .u32 g[2]={1,7};", "ld.global.u32 %r1,g[1];", 7),
        (".global .u32 g[2]={1,7};", "mov.u64 %rd2,g[1]; ld.global.u32 %r1,[%rd2];", 7),
        (".global .u32 g=2+3*4;", "ld.global.u32 %r1,[g];", 14),
        (".global .b32 g=0f3F800000;", "ld.global.u32 %r1,[g];", 0x3F800000),
        (".global .u32 g[2][2]={{1},{3,4}};", "ld.global.u32 %r1,[g+8];", 3),
        (".global .u32 h; .global .u8 g[2]={0xff(h),0xff00(h)};",
         "ld.global.u8 %r2,[g+1]; mov.u64 %rd2,h; cvt.u32.u64 %r1,%rd2; shr.u32 %r1,%r1,8; and.b32 %r1,%r1,255;"
         "sub.u32 %r1,%r1,%r2;", 0),
    ],
)  # fmt: skip
def test_variables_start_with_their_values(head, statement, value):
    assert run(f"{statement} st.global.u32 [%rd1],%r1;", head, np.uint32) == value


@pytest.mark.parametrize(
    "head",
    [
        ".global .f32 g=1;", ".global .f16 g=1.5;", ".global .u32 g=1.5;", ".global .u32 g[2]={1,2,3};",
        ".global .u32 g={1,2};", ".global .u64 g=nothere;", ".global .align 3 .u32 g;", ".global .u32 g[];",
        ".shared .u32 g=1;", ".const .b8 g[65540];", ".global .u32 g; .global .u32 g;",
        ".global .u32 g; .shared .u32 g;",
        ".func f() {ret;}\n.func f() {ret;}", f".global .u32 g[2]={'{' * 3000}1;",
    ],
)  # fmt: skip
def test_declarations_that_ptxas_refuses_are_refused(head):
    with pytest.raises(PtxError):
        run("", head)


@pytest.mark.parametrize(
    "body",
    [
        "A: bra B; A: B:", ".reg .b64 %r1;", ".reg .b32 %q; .reg .b32 %q;", ".reg .b32 %z<4>; .reg .b32 %z2;",
        "ld.global.v2.u32 {%r1,%r2,%r3},[%rd1];", "ld.global.u32 {%r1,%r2},[%rd1];", "ld.global.v2.u32 %r1,[%rd1];",
        "ld.global.u32 %r1,[%rd1+1180591620717411303424];", "ld.param.u32 %r1,[p+8];", "ld.param.u32 %r1,[p+-16];",
        "ld.param.u64 %rd2,[p+4];", "st.param.u32 [p],%r1;", "call k;", "ld.global.u32 %r1,%rd1;",
        "add.u32 %r1,[%rd1],1;",
        "{" * 3000, "{.param .b32 q; st.param.u64 [q],%rd1;}",
    ],
)  # fmt: skip
def test_statements_that_are_no_ptx_are_refused_by_line(body):
    """Each was taken, or was read or written outside of its variable, before."""
    with pytest.raises(PtxError, match=r"PTX line [89]"):
        run(body)


def test_variables_that_no_memory_holds_are_told():
    with pytest.raises(undertorch.BadLaunch, match="no memory"):
        run("ld.global.u32 %r1,[g];", ".global .u32 g[0x7fffffffffff];")


def test_a_module_s_limits_are_said():
    for head, kernel in (
        (HEAD.replace("sm_80", "sm_10"), ".entry k() {ret;}"),
        (HEAD, ".entry k(.param .b8 q[5000]) {ret;}"),
        (HEAD, ".entry k(.param .u64 p, .param .u64 p) {ret;}"),
    ):
        with pytest.raises(PtxError):
            assert undertorch.ptx(f"{head}.visible {kernel}").kernels
    larger = HEAD.replace("8.0", "8.1") + ".visible .entry k(.param .align 4 .b8 q[5000]) {ret;}"
    assert undertorch.ptx(larger)["k"][1, 1](bytes(5000)) is not None
    with pytest.raises(undertorch.BadLaunch, match="reqntid"):
        undertorch.ptx(HEAD + ".visible .entry k() .reqntid 64 {ret;}")["k"][1, 32]()
