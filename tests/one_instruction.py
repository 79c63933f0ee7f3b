"""A kernel that executes one PTX instruction on arrays of operands, one thread an element."""

import numpy as np

from undertorch.gpus import find
from undertorch.simt import launch

LOADS = {16: ("b16", "%h", "u16"), 32: ("b32", "%r", "u32"), 64: ("b64", "%d", "u64"), 8: ("b16", "%h", "u8")}
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def execute(instruction, inputs, result_bits, target="sm_90", version="8.8"):
    """`instruction` names its operands {d}, {a}, {b}, {c}, {e}; `inputs` are arrays of unsigned integers, the bits of
    the operands (bool: a predicate). Returns the result's bits; `result_bits` 1 is a predicate, as 0 or 1.
    """
    count = len(inputs[0])
    lines, names = [], {}
    for number, (letter, values) in enumerate(zip("abce", inputs, strict=False)):
        bits = 32 if values.dtype == bool else values.dtype.itemsize * 8
        kind, _, load = LOADS[bits]
        lines += [
            f"ld.param.u64 %p{number}, [kernel_param_{number + 1}];",
            f"mad.wide.u32 %p{number}, %t, {bits // 8}, %p{number};",
        ]
        if values.dtype == bool:
            lines += [f"ld.global.u32 %r{number}, [%p{number}];", f"setp.ne.u32 %q{number}, %r{number}, 0;"]
            names[letter] = f"%q{number}"
        else:
            prefix = {"b16": "%h", "b32": "%r", "b64": "%d"}[kind]
            lines.append(f"ld.global.{load} {prefix}{number}, [%p{number}];")
            names[letter] = f"{prefix}{number}"
    names["d"] = {1: "%q9", 8: "%h9", 16: "%h9", 32: "%r9", 64: "%d9"}[result_bits]
    store = {1: "u32", 8: "u8", 16: "u16", 32: "u32", 64: "u64"}[result_bits]
    lines += [line.format(**names) for line in instruction.split("\n")]
    stored = names["d"]
    if result_bits == 1:
        lines.append("selp.u32 %r9, 1, 0, %q9;")
        stored = "%r9"
    size = max(8, result_bits if result_bits > 1 else 32) // 8
    parameters = ", ".join(f".param .u64 kernel_param_{n}" for n in range(len(inputs) + 1))
    text = f"""
.version {version}
.target {target}
.address_size 64
.visible .entry kernel({parameters}, .param .u32 kernel_count)
{{
    .reg .pred %q<10>; .reg .b16 %h<10>; .reg .b32 %r<10>, %t, %n; .reg .b64 %d<10>, %p<10>, %out; .reg .pred %done;
    mov.u32 %t, %ctaid.x; mov.u32 %n, %ntid.x; mul.lo.u32 %t, %t, %n; mov.u32 %n, %tid.x; add.u32 %t, %t, %n;
    ld.param.u32 %n, [kernel_count];
    setp.ge.u32 %done, %t, %n;
    @%done ret;
    ld.param.u64 %out, [kernel_param_0];
    mad.wide.u32 %out, %t, {size}, %out;
    {" ".join(lines)}
    st.global.{store} [%out], {stored};
    ret;
}}
"""
    out = np.zeros(count, UNSIGNED[size * 8])
    arrays = [v.astype(np.uint32) if v.dtype == bool else np.ascontiguousarray(v) for v in inputs]
    launch(text, "kernel", -(-count // 128), 128, (out, *arrays, count), gpu=find("H200"))
    return out


def bits(value, width):
    """An integer as `width` bits."""
    return value & ((1 << width) - 1)


def signed(value, width):
    """Bits as a signed integer."""
    return value - (1 << width) if value >> (width - 1) else value


def integers(width, count=400, seed=0):
    """Extremes, small numbers, powers of two and random ones."""
    rng = np.random.default_rng([width, seed])
    special = [0, 1, 2, 3, (1 << width) - 1, (1 << width) - 2, 1 << (width - 1), (1 << (width - 1)) - 1]
    powers = [1 << n for n in range(width)]
    values = rng.choice(np.array(special + powers, np.uint64), count)
    dense = (
        rng.integers(0, 1 << width, count, np.uint64) if width < 64 else rng.integers(0, 2**64 - 1, count, np.uint64)
    )
    small = rng.integers(0, 70, count).astype(np.uint64)
    pick = rng.integers(0, 3, count)
    return np.choose(pick, [values, dense, small]).astype(UNSIGNED[width])


def floats(width, count=600, seed=0):
    """Bits of NaN, ±inf, ±0, subnormals, extremes, neighbours of 1, and random numbers of any and of near magnitude."""
    rng = np.random.default_rng([width, seed, 1])
    fraction = {16: 10, 32: 23, 64: 52}[width]
    infinity = ((1 << (width - 1 - fraction)) - 1) << fraction
    one = infinity // 2 & ~((1 << fraction) - 1)
    special = [
        0,
        1,
        (1 << fraction) - 1,
        1 << fraction,
        infinity - 1,
        infinity,
        infinity | 1 << (fraction - 1) | 5,
        one,
        one - 1,
        one + 1,
        one + (1 << fraction),
        one + (3 << (fraction - 1)),
    ]
    sign = rng.integers(0, 2, count).astype(np.uint64) << np.uint64(width - 1)
    chosen = rng.choice(np.array(special, np.uint64), count)
    anything = rng.integers(0, infinity, count).astype(np.uint64)
    spread = 8 if width > 16 else 3
    apart = rng.integers(-(spread << fraction), spread << fraction, count)
    near = np.uint64(one) + apart.astype(np.uint64)
    pick = rng.integers(0, 4, count)
    values = np.choose(pick, [chosen, anything, near, near])
    return (values | sign).astype(UNSIGNED[width])
