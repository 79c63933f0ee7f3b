"""Rows of the table that compute in registers: integers, logic, floats, halves, comparisons, moves and conversions."""

from undertorch.simt.ptx.forms import Form, row

INTEGER = (
    row("add.sat?.s32", "d a b"),
    row("<add|sub>.cc.<word>", "d a b", name="carry", cost="alu"),
    row("<addc|subc>.<cc:cc>?.<word>", "d a b", name="carry"),
    row("<mad|madc>.<half:hi|lo>.<cc:cc>?.<word>", "d a b c", name="madcarry", cost="imad"),
    row("add.<int>", "d a b"),
    row("add.<u16x2|s16x2>", "d a b", since=(8, 0), target=90, name="add2"),
    row("sub.sat?.s32", "d a b"),
    row("sub.<int>", "d a b"),
    row("mul.<half:hi|lo>.<int>", "d a b", cost="imad"),
    row("mul.<half:wide>.<u16|u32|s16|s32>", "d a b", cost="imad"),
    row("mad.<half:hi|lo>.<int>", "d a b c", cost="imad"),
    row("mad.<half:wide>.<u16|u32|s16|s32>", "d a b c", cost="imad"),
    row("mad.hi.<sat:sat>.s32", "d a b c", cost="imad", name="madsat"),
    row("<mul24|mad24>.<half:hi|lo>.<i32>", "d a b c?", cost="imad", name="mul24"),
    row("sad.<int>", "d a b c"),
    row("div.<int>", "d a b", cost="call"),
    row("rem.<int>", "d a b", cost="call"),
    row("abs.<s16|s32|s64>", "d a"),
    row("neg.<s16|s32|s64>", "d a"),
    row("min.<int>", "d a b"),
    row("max.<int>", "d a b"),
    row("popc.<b32|b64>", "d a", cost="quarter"),
    row("clz.<b32|b64>", "d a", cost="quarter"),
    row("bfind.<shiftamt:shiftamt>?.<word>", "d a", cost="quarter"),
    row("brev.<b32|b64>", "d a", cost="quarter"),
    row("bfe.<word>", "d a b c"),
    row("bfi.<b32|b64>", "d a b c e"),
    row("bmsk.<mode:clamp|wrap>.b32", "d a b", since=(7, 6)),
    row("szext.<mode:clamp|wrap>.<i32>", "d a b", since=(7, 6)),
    row("dp4a.<i32>.<i32>", "d a b c", cost="imad"),
    row("dp2a.<half:lo|hi>.<i32>.<i32>", "d a b c", cost="imad"),
)

LOGIC = (
    row("<op:and|or|xor>.<logic>", "d a b", name="logic"),
    row("not.<logic>", "d a"),
    row("cnot.<bits>", "d a"),
    row("lop3.b32", "d a b c e"),
    row("shl.<bits>", "d a b"),
    row("shr.<b16|b32|b64|u16|u32|u64|s16|s32|s64>", "d a b"),
    row("shf.<way:l|r>.<mode:clamp|wrap>.b32", "d a b c"),
    row("prmt.b32.<mode:f4e|b4e|rc8|ecl|ecr|rc16>?", "d a b c"),
)

FLOAT = (
    row("<op:add|sub|mul>.<rounding:rounding>?.ftz?.sat?.f32", "d a b", name="farith", cost="fma"),
    row("<op:add|sub|mul>.<rounding:rounding>?.f64", "d a b", name="farith", cost="f64"),
    row("<op:fma|mad>.<rounding:rounding>.ftz?.sat?.f32", "d a b c", name="ffma", cost="fma"),
    row("<op:fma|mad>.<rounding:rounding>.f64", "d a b c", name="ffma", cost="f64"),
    row("div.<rounding:approx|full|rn|rz|rm|rp>.ftz?.f32", "d a b", name="fdiv", cost="call"),
    row("div.<rounding:rounding>.f64", "d a b", name="fdiv", cost="call"),
    row("rcp.<rounding:approx|rn|rz|rm|rp>.ftz?.f32", "d a", name="frcp", cost="sfu"),
    row("rcp.<rounding:rounding>.f64", "d a", name="frcp", cost="call"),
    row("rcp.<rounding:approx>.ftz.f64", "d a", name="frcp64approx", cost="sfu"),
    row("rsqrt.<rounding:approx>.ftz.f64", "d a", name="frsqrt64approx", cost="sfu"),
    row("sqrt.<rounding:approx|rn|rz|rm|rp>.ftz?.f32", "d a", name="fsqrt", cost="sfu"),
    row("sqrt.<rounding:rounding>.f64", "d a", name="fsqrt", cost="call"),
    row("rsqrt.approx.ftz?.f32", "d a", name="frsqrt", cost="sfu"),
    row("rsqrt.approx.f64", "d a", name="frsqrt", cost="call"),
    row("<op:sin|cos|lg2|ex2>.approx.ftz?.f32", "d a", name="fapprox", cost="sfu"),
    row("<op:tanh>.approx.f32", "d a", name="fapprox", cost="sfu", target=75),
    row("<op:abs|neg>.ftz?.f32", "d a", name="fsign"),
    row("<op:abs|neg>.f64", "d a", name="fsign"),
    row("<op:min|max>.ftz?.NaN?.f32", "d a b", name="fminmax"),
    row("<op:min|max>.ftz?.NaN?.<xorsign:xorsign>.<xabs:abs>.f32", "d a b", name="fminmax"),
    row("<op:min|max>.f64", "d a b", name="fminmax", cost="f64"),
    row("testp.<op:finite|infinite|number|notanumber|normal|subnormal>.<f32|f64>", "d a"),
    row("copysign.<f32|f64>", "d a b"),
)

HALF = (
    row("<op:add|sub|mul>.<rounding:rn>?.ftz?.sat?.<f16s>", "d a b", name="harith", cost="half"),
    row("<op:add|sub|mul>.<rounding:rn>?.<bf16s>", "d a b", name="harith", cost="half", since=(7, 8), target=90),
    row("<op:fma>.rn.ftz?.sat?.<f16s>", "d a b c", name="harith", cost="half"),
    row("<op:fma>.rn.ftz?.<relu:relu>.<f16s>", "d a b c", name="harith", cost="half", target=80),
    row("<op:fma>.rn.relu?.<bf16s>", "d a b c", name="harith", cost="half", target=80),
    row("<op:abs|neg>.ftz?.<f16s>", "d a", name="hsign"),
    row("<op:abs|neg>.<bf16s>", "d a", name="hsign"),
    row("<op:min|max>.ftz?.NaN?.<f16s>", "d a b", name="hminmax", target=80),
    row("<op:min|max>.ftz?.NaN?.<xorsign:xorsign>.<xabs:abs>.<f16s>", "d a b", name="hminmax", target=80),
    row("<op:min|max>.NaN?.<bf16s>", "d a b", name="hminmax", target=80),
    row("<op:min|max>.NaN?.<xorsign:xorsign>.<xabs:abs>.<bf16s>", "d a b", name="hminmax", target=80),
    row("<op:ex2>.approx.<f16s>", "d a", name="happrox", cost="sfu", target=75),
    row("<op:ex2>.approx.<ftz:ftz>.<bf16s>", "d a", name="happrox", cost="sfu", target=75),
    row("<op:tanh>.approx.<half>", "d a", name="happrox", cost="sfu", target=75),
)


def _compared(word: str, name: str, ends: str) -> tuple[Form, ...]:
    """Comparisons of one kind of numbers: `setp` or `set`, and what follows the boolean operator."""
    return tuple(
        row(f"{word}.<compare:{compare}>.<boolean:boolean>?.{end}", "d a b c?", name=name)
        for compare, end in (row.split() for row in ends.split(";"))
    )


COMPARE = (
    *_compared(
        "setp",
        "",
        "equal <bits>;ordered <signed>;sizes <unsigned>;floats ftz?.<f16|f16x2|f32>;floats <bf16|bf16x2|f64>",
    ),
    *_compared(
        "set",
        "",
        "equal <u32|s32|f16|bf16|f32>.<bits>;ordered <u32|s32|f16|bf16|f32>.<signed>;"
        "sizes <u32|s32|f16|bf16|f32>.<unsigned>;floats ftz?.<u32|s32|f16>.<f16|f32>;floats ftz?.f32.f32;"
        "floats ftz?.u16.f16;floats <u32|s32>.<bf16|f64>;floats bf16.<f16|bf16|f32|f64>;floats <f16|f32>.f64;"
        "floats u16.bf16",
    ),
    *_compared("set", "set2", "floats ftz?.f16x2.f16x2;floats bf16x2.bf16x2"),
    row("selp.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64>", "d a b p"),
    row("slct.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64>.s32", "d a b c"),
    row("slct.ftz?.<b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64>.f32", "d a b c"),
)

MOVE = (
    row("mov.<register>", "d a"),
    row("mov.b128", "d a", since=(8, 3)),
    *(
        row(f"cvt.{end}", "d a", cost="convert")
        for end in (
            "<anyint>.<anyint>",
            "<sat:sat>.s8.<s16|s32|s64|u8|u16|u32|u64>",
            "<sat:sat>.u8.<s8|s16|s32|s64|u16|u32|u64>",
            "<sat:sat>.s16.<s32|s64|u16|u32|u64>",
            "<sat:sat>.u16.<s8|s16|s32|s64|u32|u64>",
            "<sat:sat>.s32.<s64|u32|u64>",
            "<sat:sat>.u32.<s8|s16|s32|s64|u64>",
            "<sat:sat>.s64.u64",
            "<sat:sat>.u64.<s8|s16|s32|s64>",
            "<f16|bf16>.<f16|bf16>",
            "ftz?.f32.<f16|bf16|f32>",
            "ftz?.f64.f32",
            "f64.<f16|bf16|f64>",
            "<sat:sat>.f16.f16",
            "ftz?.<sat:sat>.f32.<f16|f32>",
            "ftz?.<sat:sat>.f64.f32",
            "<sat:sat>.f64.<f16|f64>",
            "<rounding:rounding>.bf16.<f16|f64|u16|u32|u64|s16|s32|s64>",
            "<rounding:rounding>.ftz?.bf16.f32",
            "<rounding:rounding>.<f16|f64>.bf16",
            "<rounding:rounding>.ftz?.f32.bf16",
            "<rounding:rounding>.ftz?.sat?.f16.f32",
            "<rounding:rounding>.sat?.f16.<f64|u8|u16|u32|u64|s8|s16|s32|s64>",
            "<rounding:rounding>.ftz?.sat?.f32.<f64|u8|u16|u32|u64|s8|s16|s32|s64>",
            "<rounding:rounding>.sat?.f64.<anyint>",
            "<rounding:whole>.bf16.bf16",
            "<rounding:whole>.sat?.f16.f16",
            "<rounding:whole>.ftz?.sat?.f32.f32",
            "<rounding:whole>.sat?.f64.f64",
            "<rounding:whole>.<int>.bf16",
            "<rounding:whole>.sat?.<anyint>.<f16|f64>",
            "<rounding:whole>.ftz?.sat?.<anyint>.f32",
        )
    ),
    row("cvt.<rounding:rna>.<satfinite:satfinite>?.tf32.f32", "d a", name="cvttf32", cost="convert", target=80),
    row("cvt.<rounding:rn|rz>.relu?.tf32.f32", "d a", name="cvttf32", cost="convert", target=80),
    row(
        "cvt.<rounding:rn|rz>.relu?.<satfinite:satfinite>?.<f16|bf16>.f32", "d a", name="cvt", cost="convert", target=80
    ),
    row(
        "cvt.<rounding:rn|rz>.relu?.<satfinite:satfinite>?.<f16x2|bf16x2>.f32",
        "d a b",
        name="cvt2",
        cost="convert",
        target=80,
    ),
    row("cvt.pack.sat.<u16|s16>.s32", "d a b", name="cvtpack", cost="convert", target=72),
    row("cvt.pack.sat.<u8|s8>.s32.b32", "d a b c", name="cvtpack8", cost="convert", target=72),
    row("cvta.<space:window>.u64", "d a"),
    row("cvta.to.<space:window>.u64", "d a", name="cvtato"),
    row("isspacep.<space:global|shared::cta|shared|local>", "d a"),
)
