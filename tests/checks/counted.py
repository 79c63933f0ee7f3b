"""What benchmarks/counters.py has counted on an H200, and the machine counts here: single accesses of one warp, and
launches of whole kernels.

Each pattern is one `ld.volatile` or `st.volatile` (or ldmatrix) in a kernel that has no other access of its space: its
lanes' offsets come as a parameter, so that a kernel's counts are the access's.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from undertorch.simt import launch

GPU = "H200"
ROOM = 17 << 10
"""Bytes of shared memory, and of the buffer in global memory."""
WIDTHS = (1, 2, 4, 8, 16)
EVERY = 0xFFFFFFFF
TYPES = {1: "u8", 2: "u16", 4: "b32", 8: "b64", 16: "v4.b32"}
REGISTERS = {1: "%h0", 2: "%h0", 4: "%r4", 8: "%d4", 16: "{%r4, %r5, %r6, %r7}"}
MATRICES = {"x1": "{%r4}", "x2": "{%r4, %r5}", "x4": "{%r4, %r5, %r6, %r7}"}
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One access of a warp."""

    name: str
    kernel: str
    """`shared_ld_8`: space, operation, bytes of a lane."""
    offsets: tuple[int, ...]
    active: int = EVERY

    @property
    def bytes(self) -> int:
        """Of a lane."""
        return 16 if "ldmatrix" in self.kernel else int(self.kernel.rsplit("_", maxsplit=1)[1])

    @property
    def arguments(self):
        """Of its launch."""
        return (np.array(self.offsets, np.uint32).tobytes(), self.active, np.zeros(ROOM, np.uint8))


@cache
def text() -> str:
    """All kernels of patterns as PTX."""
    accesses = {
        f"{space}_{op}_{width}": f"{op}.volatile.{space}.{TYPES[width]} "
        + (f"{REGISTERS[width]}, [ADDRESS]" if op == "ld" else f"[ADDRESS], {REGISTERS[width]}")
        for space in ("shared", "global")
        for op in ("ld", "st")
        for width in WIDTHS
    }
    for count, registers in MATRICES.items():
        for how in ("", ".trans"):
            accesses[f"shared_ldmatrix{how.replace('.', '_')}_{count}"] = (
                f"ldmatrix.sync.aligned.m8n8.{count}{how}.shared.b16 {registers}, [ADDRESS]"
            )
    return "\n".join([".version 8.0\n.target sm_80\n.address_size 64", *(_kernel(*item) for item in accesses.items())])


def _kernel(name: str, access: str) -> str:
    shared = name.startswith("shared")
    guard = "" if "ldmatrix" in name else "@%p "
    return f"""
.visible .entry {name}(.param .align 4 .b8 {name}_0[128], .param .u32 {name}_1, .param .u64 {name}_2)
{{
    .reg .pred %p;
    .reg .b16 %h<2>;
    .reg .b32 %r<10>;
    .reg .b64 %d<6>;
    {f".shared .align 1024 .b8 {name}_room[{ROOM}];" if shared else ""}
    mov.u32 %r0, %tid.x;
    mov.b64 %d0, {name}_0;
    mul.wide.u32 %d1, %r0, 4;
    add.s64 %d0, %d0, %d1;
    ld.param.u32 %r1, [%d0];
    ld.param.u32 %r2, [{name}_1];
    ld.param.u64 %d2, [{name}_2];
    shr.u32 %r2, %r2, %r0;
    and.b32 %r2, %r2, 1;
    setp.ne.u32 %p, %r2, 0;
    mov.u16 %h0, 1;
    mov.u32 %r4, 1; mov.u32 %r5, 2; mov.u32 %r6, 3; mov.u32 %r7, 4;
    mov.u64 %d4, 5;
    {f"mov.u32 %r8, {name}_room; add.u32 %r8, %r8, %r1;" if shared else "cvt.u64.u32 %d3, %r1; add.s64 %d2, %d2, %d3;"}
    {guard}{access.replace("ADDRESS", "%r8" if shared else "%d2")};
    ret;
}}"""


LANES = np.arange(32)
SHARING = {
    "one address": LANES * 0,
    "an address for each half": LANES // 16,
    "an address for each quarter": LANES // 8,
    "an address for four lanes": LANES // 4,
    "an address for two lanes": LANES // 2,
    "two addresses in turn": LANES % 2,
    "four addresses in turn": LANES % 4,
    "eight addresses in turn": LANES % 8,
    "both halves alike": LANES % 16,
    "reversed": 31 - LANES,
    "halves swapped": LANES ^ 16,
    "neighbours swapped": LANES ^ 1,
    "quarters mirrored": LANES ^ 7,
    "one lane apart": np.where(LANES == 13, 40, 0),
    "two rows in turn": LANES % 2 * 32 + LANES // 2,
    "lane and its opposite": np.minimum(LANES, 31 - LANES),
}
"""Elements that lanes access."""


@cache
def patterns() -> tuple[Pattern, ...]:
    """Every pattern, the most telling first: a run that is cut short has those."""
    found: list[Pattern] = []
    for make in (_sharing, _joined, _strides, _random, _partial, _matrices, _misaligned, _global, _stores):
        found += make()
    assert len({p.name for p in found}) == len(found)
    return tuple(found)


def _pattern(kernel: str, what: str, offsets, active: int = EVERY) -> Pattern:
    return Pattern(
        name=f"{kernel}: {what}", kernel=kernel, offsets=tuple(int(o) for o in offsets), active=int(active) & EVERY
    )


def _sharing():
    """Lanes that share addresses, as wide accesses' rule is not written down anywhere."""
    for width in (8, 16, 4):
        for what, elements in SHARING.items():
            yield _pattern(f"shared_ld_{width}", what, elements * width)
    for width in (8, 16):
        random = np.random.default_rng(width)
        for n in range(48):
            several = (2, 3, 4, 6, 8, 12, 16, 24)[n % 8]
            places = random.integers(0, 256, several) * width if n < 32 else random.choice(64, several, False) * width
            yield _pattern(f"shared_ld_{width}", f"{several} addresses among the lanes, {n}",
                           places[random.integers(0, several, 32)])  # fmt: skip


def _joined():
    """Lanes that share addresses with a neighbour, over one, or in a part of the warp only: which passes are joined?"""
    for width in (8, 16):
        for apart in (1, 2, 4, 8):
            partner = LANES & ~apart  # the lane whose number has that bit cleared
            for stride in (1, 2, 4, 8, 32):
                yield _pattern(f"shared_ld_{width}", f"lanes {apart} apart share, stride {stride}",
                               partner * stride * width)  # fmt: skip
        for lanes in (4, 8, 16, 24):
            for apart in (1, 2):
                elements = np.where(lanes > LANES, LANES & ~apart, LANES)
                yield _pattern(f"shared_ld_{width}", f"the first {lanes} lanes share with the one {apart} apart",
                               elements * width)  # fmt: skip
        mixed = np.where(LANES < 16, LANES & ~1, LANES & ~2)
        yield _pattern(f"shared_ld_{width}", "one half shares by 1, the other by 2", mixed * width)
        yield _pattern(f"shared_ld_{width}", "one half shares by 1, the other by 2, stride 4", mixed * 4 * width)
        quarters = np.where(LANES // 8 % 2 == 0, LANES & ~1, LANES & ~2)
        yield _pattern(f"shared_ld_{width}", "quarters share by 1 and by 2 in turn", quarters * width)
        for lane in (0, 5, 13, 16, 31):
            yield _pattern(f"shared_ld_{width}", f"all but lane {lane} share with their neighbour",
                           np.where(lane == LANES, 200, LANES & ~1) * width)  # fmt: skip
        for mask in (0x55555555, 0x33333333, 0xAAAAAAAA, 0x0000FFFF, 0x5555, 0x11111111, 0x99999999, 0x00FF00FF):
            yield _pattern(f"shared_ld_{width}", f"lanes {mask:#x} side by side", LANES * width, mask)
            yield _pattern(f"shared_ld_{width}", f"lanes {mask:#x}, stride 4", LANES * 4 * width, mask)
            yield _pattern(f"shared_ld_{width}", f"lanes {mask:#x} share with their neighbour", (LANES & ~1) * width,
                           mask)  # fmt: skip
        random = np.random.default_rng(500 + width)
        for n in range(12):
            apart = 1 + n % 2
            places = random.integers(0, 512, 32)
            mask = EVERY if n < 8 else int(random.integers(1, 1 << 32))
            yield _pattern(f"shared_ld_{width}", f"random pairs {apart} apart, {n}", places[LANES & ~apart] * width,
                           mask)  # fmt: skip


def _strides():
    for width in (4, 8, 16):
        for stride in (*range(1, 34),):
            yield _pattern(f"shared_ld_{width}", f"stride {stride}", LANES * stride * width)
    for width in (1, 2):
        for stride in (1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 64, 128):
            yield _pattern(f"shared_ld_{width}", f"stride {stride}", LANES * stride * width)


def _random():
    for width in WIDTHS:
        random = np.random.default_rng(100 + width)
        for n in range(6):
            yield _pattern(f"shared_ld_{width}", f"random, {n}", random.integers(0, ROOM // width, 32) * width)
        yield _pattern(f"shared_ld_{width}", "a permutation", random.permutation(32) * width)
    for pitch in (32, 33, 36, 40):
        for column in (0, 5):
            yield _pattern("shared_ld_4", f"column {column} of rows of {pitch} words", (LANES * pitch + column) * 4)
    yield _pattern("shared_ld_4", "column 5, swizzled", (LANES * 32 + (5 ^ LANES)) * 4)
    rows, parts = LANES % 8, LANES // 8
    for part in range(2):
        yield _pattern("shared_ld_16", f"rows of 128 bytes, swizzled, {part}",
                       rows * 128 + ((parts + 4 * part) ^ rows) * 16)  # fmt: skip


def _partial():
    masks = {"16 lanes": 0xFFFF, "the upper half": 0xFFFF0000, "every other lane": 0x55555555, "one lane": 1 << 20,
             "8 lanes": 0xFF00, "lanes 4-27": 0x0FFFFFF0, "a lane of each eight": 0x01010101}  # fmt: skip
    for width in (4, 8, 16):
        random = np.random.default_rng(200 + width)
        for what, mask in masks.items():
            yield _pattern(f"shared_ld_{width}", f"{what}, side by side", LANES * width, mask)
            yield _pattern(f"shared_ld_{width}", f"{what}, stride 8", LANES * 8 * width, mask)
        for _ in range(4):
            mask = int(random.integers(1, 1 << 32))
            yield _pattern(f"shared_ld_{width}", f"random lanes {mask:#x}", random.integers(0, 512, 32) * width, mask)
        for _ in range(4):
            mask = int(random.integers(1, 1 << 32))
            places = random.choice(128, 6, False) * width
            yield _pattern(f"shared_ld_{width}", f"6 addresses among lanes {mask:#x}",
                           places[random.integers(0, 6, 32)], mask)  # fmt: skip
    yield _pattern("shared_ld_4", "no lane", LANES * 4, 0)


def _matrices():
    for count in MATRICES:
        for pitch in (16, 32, 64, 80, 128, 144):
            yield _pattern(f"shared_ldmatrix_{count}", f"rows {pitch} bytes apart", LANES * pitch)
        swizzled = LANES % 8 * 128 + ((LANES // 8) ^ (LANES % 8)) * 16
        yield _pattern(f"shared_ldmatrix_{count}", "rows of 128 bytes, swizzled", swizzled)
        yield _pattern(f"shared_ldmatrix_{count}", "one row", LANES * 0)
    for pitch in (16, 128, 144):
        yield _pattern("shared_ldmatrix_trans_x4", f"rows {pitch} bytes apart", LANES * pitch)


def _misaligned():
    for start in (4, 8, 16, 28, 60, 64, 124):
        yield _pattern("global_ld_4", f"from byte {start} on", LANES * 4 + start)
        yield _pattern("shared_ld_4", f"from byte {start} on", LANES * 4 + start)
    for start in (8, 16, 24, 120):
        yield _pattern("global_ld_8", f"from byte {start} on", LANES * 8 + start)
        yield _pattern("shared_ld_8", f"from byte {start} on", LANES * 8 + start)
    for start in (16, 48, 112):
        yield _pattern("global_ld_16", f"from byte {start} on", LANES * 16 + start)
        yield _pattern("shared_ld_16", f"from byte {start} on", LANES * 16 + start)
    for start in (1, 3, 31):
        yield _pattern("global_ld_1", f"from byte {start} on", LANES + start)


def _global():
    for width in WIDTHS:
        for stride in (1, 2, 3, 4, 7, 8, 9, 16, 31, 32, 33):
            yield _pattern(f"global_ld_{width}", f"stride {stride}", LANES * stride * width)
        for what in ("one address", "an address for two lanes", "both halves alike", "reversed"):
            yield _pattern(f"global_ld_{width}", what, SHARING[what] * width)
        random = np.random.default_rng(300 + width)
        for n in range(2):
            yield _pattern(f"global_ld_{width}", f"random, {n}", random.integers(0, ROOM // width, 32) * width)
        for what, mask in {"16 lanes": 0xFFFF, "every other lane": 0x55555555, "5 lanes": 0x1F00}.items():
            yield _pattern(f"global_ld_{width}", what, LANES * width, mask)


def _stores():
    for width in WIDTHS:
        for stride in (1, 2, 4, 8, 17, 32, 33):
            yield _pattern(f"shared_st_{width}", f"stride {stride}", LANES * stride * width)
            if stride in {1, 2, 8, 33}:
                yield _pattern(f"global_st_{width}", f"stride {stride}", LANES * stride * width)
        random = np.random.default_rng(400 + width)
        yield _pattern(f"shared_st_{width}", "random", random.integers(0, ROOM // width, 32) * width)
        yield _pattern(f"global_st_{width}", "random", random.integers(0, ROOM // width, 32) * width)
        yield _pattern(f"shared_st_{width}", "one address", LANES * 0)
        yield _pattern(f"shared_st_{width}", "both halves alike", LANES % 16 * width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A launch of a whole kernel."""

    name: str
    file: Path
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[object, ...]
    dynamic_shared: int = 0


def _whole(kernel: str, grid, block, *arguments, what: str = "", shared: int = 0, file: str = "classics") -> Whole:
    folder = FOLDER / "kernels" if file == "branches" else FOLDER.parent / "simt/kernels"
    three = [(*size, 1, 1)[:3] if isinstance(size, tuple) else (size, 1, 1) for size in (grid, block)]
    return Whole(name=f"{kernel}: {what}" if what else kernel, file=folder / f"{file}.ptx", kernel=kernel,
                 grid=three[0], block=three[1], arguments=arguments, dynamic_shared=shared)  # fmt: skip


def branches() -> list[Whole]:
    """Kernels whose warps part."""
    asked: dict[str, list[tuple[int, tuple[int, ...]]]] = {
        "loop_by_lane": [(32, (0, 1)), (32, (10, 0)), (32, (1, 2)), (64, (5, 1)), (48, (0, 3)), (17, (2, 1))],
        "loop_by_hash": [(32, (8,)), (64, (32,)), (128, (57,)), (96, (100,)), (40, (3,))],
        "early_return": [(32, (2,)), (64, (3,)), (64, (8,)), (128, (32,)), (100, (5,)), (32, (1,))],
        "early_return_of_a_tail": [(32, (1,)), (64, (33,)), (128, (100,)), (256, (129,)), (64, (64,))],
        "two_arms": [(32, (1,)), (32, (16,)), (64, (32,)), (128, (8,)), (128, (64,)), (50, (4,))],
        "four_arms": [(32, (1,)), (32, (8,)), (64, (16,)), (128, (32,)), (128, (4,)), (72, (2,))],
        "nested": [(32, (16, 8)), (32, (32, 1)), (64, (31, 30)), (128, (5, 2)), (96, (20, 20))],
        "leaves_a_loop": [(32, (1,)), (32, (4,)), (64, (8,)), (128, (32,)), (90, (3,))],
        "predicated": [(32, (50,)), (64, (10,)), (128, (99,))],
        "collatz_steps": [(32, ()), (64, ()), (128, ()), (500, ())],
    }
    values = np.random.default_rng(0).integers(0, 100, 1024, np.int32)
    return [
        _whole(kernel, 1, threads, *((values,) if kernel == "predicated" else ()), np.zeros(1024, np.int32), *numbers,
               what=f"{threads} threads, {', '.join(map(str, numbers)) or 'no number'}", file="branches")
        for kernel, launches in asked.items()
        for threads, numbers in launches
    ]  # fmt: skip


def wholes() -> list[Whole]:
    """Kernels as people write them."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 128, 128)).astype(np.float32)
    c, n = np.zeros((128, 128), np.float32), 128
    ints = random.integers(-1000, 1000, 4096, np.int32)
    found = [_whole(kernel, (4, 4), (32, 32), a, c, n) for kernel in (
        "naive_transpose", "conflicting_transpose", "padded_transpose")]  # fmt: skip
    found += [_whole("naive_transpose", (3, 3), (32, 32), a, c, 75, what="75 rows")]
    found += [
        _whole("tiled_matmul", (4, 4), (32, 32), a, b, c, n),
        _whole("naive_matmul", (8, 8), (16, 16), a, b, c, n),
        _whole("register_tiled_matmul", (1, 1), 256, a, b, c, n),
    ]
    for kernel in ("reduce_interleaved", "reduce_strided", "reduce_sequential"):
        found += [_whole(kernel, 32, 128, ints, np.zeros(32, np.int32), ints.size, shared=512)]
    found += [
        _whole("reduce_last_warp", 16, 128, ints, np.zeros(16, np.int32), ints.size, shared=512),
        _whole("reduce_shuffle", 7, 256, ints, np.zeros(1, np.int32), ints.size),
        _whole("histogram", 9, 96, random.integers(0, 256, 20011, np.uint8), np.zeros(256, np.uint32), 20011),
        _whole("collatz", 4, 128, np.arange(1, 501, dtype=np.int32), np.zeros(500, np.int32), 500),
        _whole("strided_gather", 2, 128, a.reshape(-1), np.zeros(256, np.float32), 5003, 31),
        _whole("doubling", 8, 128, np.zeros(1024, np.float32), 1000),
    ]
    return found


Counts = tuple[int, int, int, int]
"""Wavefronts of shared memory, the ideal, sectors of global memory, the ideal."""


def launched(item: Pattern | Whole):
    """The machine's counters of one."""
    if isinstance(item, Pattern):
        found = launch(text(), item.kernel, 1, 32, item.arguments, gpu=GPU, instrument="counters")
    else:
        ptx = item.file.read_text(encoding="utf-8")
        found = launch(ptx, item.kernel, item.grid, item.block, item.arguments, gpu=GPU, instrument="counters",
                       dynamic_shared=item.dynamic_shared)  # fmt: skip
    return found.counters


def of_machine(item: Pattern | Whole) -> Counts:
    """As the machine counts."""
    accesses = launched(item).accesses
    return (
        sum(a.wavefronts or 0 for a in accesses),
        sum(a.ideal for a in accesses if a.space == "shared"),
        sum(a.sectors or 0 for a in accesses if a.space == "global"),
        sum(a.ideal for a in accesses if a.space == "global"),
    )


def of_gpu(item: Pattern | Whole, row: dict[str, int]) -> Counts:
    """As a recording has them.

    Wavefronts of a single access are those of the hardware's counter, which has one more for the launch. ncu's count by
    instruction (memory_l1_wavefronts_shared) is made by software, and differs where lanes share addresses
    (test_counters_of_h200.py); of whole kernels it is all there is, since the counter has other things in it.
    """
    taken = row["wavefronts"]
    if isinstance(item, Pattern) and item.kernel.startswith("shared"):
        taken = row["wavefronts_by_l1tex"] - 1
    return taken, row["wavefronts_ideal"], row["sectors"], row["sectors_ideal"]
