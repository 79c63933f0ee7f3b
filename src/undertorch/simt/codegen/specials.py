"""Special registers, addresses of variables and bases of windows, as 8 lanes each."""

from dataclasses import dataclass

from undertorch.simt.codegen.integers import lane_numbers
from undertorch.simt.codegen.lanes import CHUNK, Lanes
from undertorch.simt.codegen.places import Places
from undertorch.simt.errors import Unsupported
from undertorch.simt.ptx.instructions import Symbol
from undertorch.simt.runtime.layout import BLOCK, CONTEXT, RESERVED, RESERVED_SECOND, WARP_STATE, field_offset

AXIS = {"x": 0, "y": 1, "z": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses(Places):
    """Places, as IR."""

    def of(self, w: Lanes, symbol: Symbol) -> str:
        """A variable's address in its space, as <8 x i64>."""
        name, plus = symbol.name, symbol.offset
        for offsets in (self.shared, self.local):
            if name in offsets:
                return w.constant("i64", offsets[name] + plus)
        return w.splat("i64", self.scalar(w, symbol))

    def scalar(self, w: Lanes, symbol: Symbol) -> str:
        """The host address of a global, const or kernel parameter variable, as an i64."""
        if symbol.name in self.parameters:
            at = w.op("ptrtoint ptr %params to i64")
            return w.op(f"add i64 {at}, {self.parameters[symbol.name] + symbol.offset}")
        if symbol.name not in self.symbols:
            raise Unsupported(f"{symbol.name} is not a variable of this file.")
        at = w.op(f"getelementptr i64, ptr %symbols, i64 {self.symbols[symbol.name]}")
        value = w.op(f"load i64, ptr {at}")
        return w.op(f"add i64 {value}, {symbol.offset}")

    def special(self, w: Lanes, name: str) -> str:
        """A special register, or one of the machine's own: `shared base`, `local bytes`, `param NAME` (a pointer)."""
        key = f"special {name}"
        if name.startswith("param "):
            return w.op(f"getelementptr i8, ptr %params, i64 {self.parameters[name[6:]]}")
        if name in {"clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"}:
            return _clock(w, name)
        if key not in w.current:
            w.current[key] = (_special(w, name), "")
        return w.current[key][0]


def _of(w: Lanes, struct: str, name: str, plus: int = 0, type: str = "i32") -> str:
    layout = {"ctx": CONTEXT, "block": BLOCK, "warp": WARP_STATE}[struct]
    at = w.op(f"getelementptr i8, ptr %{struct}, i64 {field_offset(layout, name) + plus}")
    return w.op(f"load {type}, ptr {at}")


def _special(w: Lanes, name: str) -> str:
    stem, _, axis = name.partition(".")
    plus = 4 * AXIS.get(axis, 0)
    match stem:
        case "tid":
            at = w.op(f"getelementptr i8, ptr {w.pointers[32]}, i64 {field_offset(WARP_STATE, f'tid_{axis}')}")
            return w.op(f"load <{CHUNK} x i32>, ptr {at}, align 4")
        case "ntid":
            return w.splat("i32", _of(w, "ctx", "ntid", plus))
        case "ctaid" | "clusterid":
            return w.splat("i32", _of(w, "block", "ctaid", plus))
        case "nctaid" | "nclusterid":
            return w.splat("i32", _of(w, "ctx", "grid", plus))
        case "cluster_ctaid" | "cluster_ctarank":
            return w.constant("i32", 0)
        case "cluster_nctaid" | "cluster_nctarank":
            return w.constant("i32", 1)
        case "laneid":
            return lane_numbers(w, w.op(f"shl i32 {w.pointers[0]}, 3"))
        case "warpid":
            return w.splat("i32", _of(w, "warp", "index"))
        case "nwarpid":
            return w.splat("i32", _of(w, "ctx", "warps"))
        case "smid":
            linear = w.op(f"trunc i64 {_of(w, 'block', 'linear', type='i64')} to i32")
            return w.splat("i32", w.op(f"urem i32 {linear}, {_of(w, 'ctx', 'sms')}"))
        case "nsmid":
            return w.splat("i32", _of(w, "ctx", "sms"))
        case "gridid":
            return w.constant("i64", 1)
        case "dynamic_smem_size":
            return w.splat("i32", _of(w, "ctx", "dynamic_shared"))
        case "total_smem_size":
            return w.splat("i32", _of(w, "ctx", "user_shared"))
        case "envreg1" | "envreg2":
            address = _of(w, "ctx", "workspace", type="i64")
            half = w.op(f"lshr i64 {address}, {32 if name == 'envreg1' else 0}")
            return w.splat("i32", w.op(f"trunc i64 {half} to i32"))
        case "reserved_smem_offset_begin" | "reserved_smem_offset_0":
            return w.constant("i32", 0)
        case "reserved_smem_offset_end" | "reserved_smem_offset_cap":
            return w.constant("i32", RESERVED)
        case "reserved_smem_offset_1":
            return w.constant("i32", RESERVED_SECOND)
        case "shared base":
            return w.splat("i64", _of(w, "block", "shared", type="i64"))
        case "shared bytes" | "local bytes":
            size = w.op(f"zext i32 {_of(w, 'ctx', stem.replace(' ', '_'))} to i64")
            return w.splat("i64", size)
        case "local base":
            base = w.splat("i64", _of(w, "warp", "local", type="i64"))
            size = w.splat("i64", w.op(f"zext i32 {_of(w, 'ctx', 'local_bytes')} to i64"))
            lane = w.cast("zext", _special(w, "laneid"), "i32", "i64")
            return w.bin("add", "i64", base, w.bin("mul", "i64", lane, size))
    return _lane_mask(w, name)


def _lane_mask(w: Lanes, name: str) -> str:
    one = w.bin("shl", "i32", w.constant("i32", 1), _special(w, "laneid"))
    below = w.bin("sub", "i32", one, w.constant("i32", 1))
    upto = w.bin("or", "i32", one, below)
    ones = w.constant("i32", -1)
    match name:
        case "lanemask_eq":
            return one
        case "lanemask_lt":
            return below
        case "lanemask_le":
            return upto
        case "lanemask_gt":
            return w.bin("xor", "i32", upto, ones)
        case "lanemask_ge":
            return w.bin("xor", "i32", below, ones)
    raise Unsupported(f"The special register %{name} is not supported.")


def _clock(w: Lanes, name: str) -> str:
    """The host's cycle counter: it grows, which is all that may be relied on."""
    w.names.declared.add("declare i64 @llvm.readcyclecounter()")
    now = w.op("call i64 @llvm.readcyclecounter()")
    if name in {"clock64", "globaltimer"}:
        return w.splat("i64", now)
    if name.endswith("_hi"):
        now = w.op(f"lshr i64 {now}, 32")
    return w.splat("i32", w.op(f"trunc i64 {now} to i32"))
