"""Rows of the table for tensor cores: products, the moves of their tiles, and conversions of 8-bit floats."""

from undertorch.simt.ptx.forms import Form, row


def _mma(shapes: str, types: str, since: tuple[int, int], target: int, middle: str = "", end: str = "") -> Form:
    """`types` of D, A, B and C, in this order."""
    d, a, b, c = types.split()
    pattern = f"mma.sync.aligned.<shape:{shapes}>.row.col{middle}.<d:{d}>.<a:{a}>.<b:{b}>.<c:{c}>{end}"
    return row(pattern, "d a b c", name="mma", cost="tensor", since=since, target=target, converge=True)


def _wmma(  # the columns of the table
    shapes: str,
    types: str,
    target: int,
    middle: str = "",
    end: str = "",
    first: str = "mma",
    majors: str = "<major>.<major>",
) -> Form:
    """`types` of D, A, B and C; of D and C alone, where A and B are f16."""
    names = "dabc" if len(types.split()) == 4 else "dc"
    pairs = ".".join(f"<{name}:{kind}>" for name, kind in zip(names, types.split(), strict=True))
    pattern = f"wmma.{first}.sync.aligned.{majors}.<shape:{shapes}>{middle}.{pairs}{end}"
    return row(pattern, "d a b c", name="wmma", cost="tensor", target=target, converge=True)


def _wmma_load(role: str, shapes: str, kinds: str, target: int, major: str = "row|col") -> Form:
    pattern = f"wmma.load.<role:{role}>.sync.aligned.<major:{major}>.<shape:{shapes}>.<space:far>?.<kind:{kinds}>"
    return row(pattern, "d [a] b?", name="wmma.load", cost="memory", target=target)


def _wmma_store(shapes: str, kinds: str, target: int) -> Form:
    pattern = f"wmma.store.<role:d>.sync.aligned.<major:major>.<shape:{shapes}>.<space:far>?.<kind:{kinds}>"
    return row(pattern, "[a] b c?", name="wmma.store", cost="memory", target=target)


SQUARES = "m16n16k16|m8n32k16|m32n8k16"
TENSOR = (
    row(
        "ldmatrix.sync.aligned.m8n8.<count:x1|x2|x4>.trans?.<space:near>?.b16",
        "d [a]",
        name="ldmatrix",
        cost="memory",
        target=75,
        converge=True,
    ),
    row(
        "stmatrix.sync.aligned.m8n8.<count:x1|x2|x4>.trans?.<space:near>?.b16",
        "[a] b",
        name="stmatrix",
        cost="memory",
        since=(7, 8),
        target=90,
        converge=True,
    ),
    row(
        "movmatrix.sync.aligned.m8n8.trans.b16",
        "d a",
        name="movmatrix",
        since=(7, 8),
        target=75,
        cost="shuffle",
        converge=True,
    ),
    _mma("m16n8k8", "f16 f16 f16 f16", (7, 0), 75),
    _mma("m16n8k8", "f32 f16 f16 f32", (7, 0), 75),
    _mma("m16n8k16", "f16 f16 f16 f16", (7, 0), 80),
    _mma("m16n8k16", "f32 f16 f16 f32", (7, 0), 80),
    _mma("m16n8k8|m16n8k16", "f32 bf16 bf16 f32", (7, 0), 80),
    _mma("m16n8k4|m16n8k8", "f32 tf32 tf32 f32", (7, 0), 80),
    _mma("m16n8k32", "f32 fp8 fp8 f32", (8, 4), 89),
    _mma("m16n8k16", "f16 fp8 fp8 f16", (8, 7), 89),
    _mma("m16n8k16", "f32 fp8 fp8 f32", (8, 7), 89),
    _mma("m16n8k32", "f16 fp8 fp8 f16", (8, 7), 89),
    _mma("m8n8k4", "f64 f64 f64 f64", (7, 0), 80),
    _mma("m16n8k4|m16n8k8|m16n8k16", "f64 f64 f64 f64", (7, 8), 90),
    _mma("m8n8k16", "s32 s8s s8s s32", (7, 0), 75, middle=".satfinite?"),
    _mma("m16n8k16|m16n8k32", "s32 s8s s8s s32", (7, 0), 80, middle=".satfinite?"),
    _mma("m8n8k32", "s32 s4s s4s s32", (7, 0), 75, middle=".satfinite?"),
    _mma("m16n8k32|m16n8k64", "s32 s4s s4s s32", (7, 0), 80, middle=".satfinite?"),
    _mma("m8n8k128", "s32 b1 b1 s32", (7, 0), 75, end=".<bits:xor|and>.popc"),
    _mma("m16n8k128|m16n8k256", "s32 b1 b1 s32", (7, 0), 80, end=".<bits:xor|and>.popc"),
    _wmma(SQUARES, "f16|f32 f16|f32", 70),
    _wmma(SQUARES, "f32 bf16 bf16 f32", 80),
    _wmma("m16n16k8", "f32 tf32 tf32 f32", 80),
    _wmma("m8n8k4", "f64 f64 f64 f64", 80, middle=".<rounding:rn>?"),
    _wmma(SQUARES, "s32 s8 s8 s32", 72, end=".satfinite?"),
    _wmma(SQUARES, "s32 u8 u8 s32", 72, end=".satfinite?"),
    _wmma("m8n8k32", "s32 s4 s4 s32", 75, end=".satfinite?", majors="row.col"),
    _wmma("m8n8k32", "s32 u4 u4 s32", 75, end=".satfinite?", majors="row.col"),
    _wmma("m8n8k128", "s32 b1 b1 s32", 75, first="mma.<bits:xor|and>.popc", majors="row.col"),
    _wmma_load("a|b", SQUARES, "f16", 70),
    _wmma_load("c", SQUARES, "f16|f32", 70),
    _wmma_store(SQUARES, "f16|f32", 70),
    _wmma_load("a|b", SQUARES, "bf16", 80),
    _wmma_load("a|b", "m16n16k8", "tf32", 80),
    _wmma_load("c", "m16n16k8", "f32", 80),
    _wmma_store("m16n16k8", "f32", 80),
    _wmma_load("a|b|c", "m8n8k4", "f64", 80),
    _wmma_store("m8n8k4", "f64", 80),
    _wmma_load("a|b", SQUARES, "s8s", 72),
    _wmma_load("c", SQUARES, "s32", 72),
    _wmma_store(SQUARES, "s32", 72),
    _wmma_load("a", "m8n8k32", "s4s", 75, major="row"),
    _wmma_load("b", "m8n8k32", "s4s", 75, major="col"),
    _wmma_load("a", "m8n8k128", "b1", 75, major="row"),
    _wmma_load("b", "m8n8k128", "b1", 75, major="col"),
    _wmma_load("c", "m8n8k32|m8n8k128", "s32", 75),
    _wmma_store("m8n8k32|m8n8k128", "s32", 75),
)

NARROW = (
    row("cvt.rn.satfinite.relu?.<e4m3x2|e5m2x2>.f32", "d a b", name="cvtto8", cost="convert", since=(8, 1), target=89),
    row("cvt.rn.satfinite.relu?.<e4m3x2|e5m2x2>.f16x2", "d a", name="cvtto8", cost="convert", since=(8, 1), target=89),
    row("cvt.rn.relu?.f16x2.<e4m3x2|e5m2x2>", "d a", name="cvtfrom8", cost="convert", since=(8, 1), target=89),
)
