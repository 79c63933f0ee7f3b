"""A kernel's flow as an LLVM module: one function that runs a warp from a program counter on.

There are two of them. `full` has no masks: all 32 lanes run, a branch that all take the same way goes straight to its
block, and one that splits them writes the counters and returns. `masked` runs some of the lanes, and is compiled when
a warp first needs it. Both return to the dispatcher (runtime/native/turns.py) with one of layout.py's codes.
"""

from dataclasses import dataclass, field
from typing import Literal

from undertorch.simt.codegen import converts, floats, halves, integers, moves, narrow  # noqa: F401  (they register emitters)
from undertorch.simt.codegen.flow import Block, Flow, Part
from undertorch.simt.codegen.lanes import CHUNK, Lanes, Names
from undertorch.simt.codegen.native import Native
from undertorch.simt.codegen.sites import Site
from undertorch.simt.codegen.specials import Addresses
from undertorch.simt.codegen.steps import StepWriter
from undertorch.simt.errors import PtxError, located
from undertorch.simt.numerics import TensorNumerics
from undertorch.simt.ptx.instructions import Immediate, Instruction, Operand
from undertorch.simt.runtime.layout import (
    BARRIERS,
    CONTEXT,
    FAULT,
    FULL,
    GO_ON,
    OUT_OF_FUEL,
    SLOTS,
    WARP_STATE,
    field_offset,
)

Mode = Literal["full", "masked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    """IR text of one mode, and the runtime's functions that it calls."""

    text: str
    natives: tuple[Native, ...]


@dataclass(slots=True, kw_only=True)
class KernelWriter:
    """Writes one mode of a kernel."""

    flow: Flow
    addresses: Addresses
    sites: dict[int, Site]
    """By the instruction's identity in the flow."""
    mode: Mode
    level: int
    numerics: TensorNumerics | None = None
    """How mma adds; None: by fused multiply-adds."""
    names: Names = field(default_factory=Names)
    out: list[str] = field(default_factory=list)
    natives: dict[str, tuple[Native, str]] = field(default_factory=dict)
    mask: str = "-1"
    stubs: int = 0

    def write(self) -> KernelCode:
        """The module."""
        masked = self.mode == "masked"
        prefix = "S" if masked else "F"
        extra = ", i32 %mask0, i32 %limit" if masked else ""
        head = [f"define i32 @{self.mode}(ptr %ctx, ptr %warp, i32 %pc{extra}) {{", "entry:"]
        self._entry()
        if masked:
            self.line("%MASK = alloca i32, align 4")
            self.line("store i32 %mask0, ptr %MASK")
        cases = " ".join(f"i32 {b.number}, label %{prefix}{b.number}" for b in self.flow.blocks)
        self.line(f"switch i32 %pc, label %fault [ {cases} ]")
        for block in self.flow.blocks:
            self.out.append(f"{prefix}{block.number}:")
            self._block(block)
        self.out += ["fault:", f"  ret i32 {FAULT}", "}"]
        declared = [declaration for _, declaration in self.natives.values()]
        text = "\n".join([*declared, *sorted(self.names.declared), *head, *self.out])
        return KernelCode(text=text, natives=tuple(native for native, _ in self.natives.values()))

    # -- text

    def line(self, text: str) -> None:
        """One line."""
        self.out.append("  " + text)

    def op(self, text: str) -> str:
        """One line that gives a value."""
        name = self.names.fresh()
        self.line(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        """The start of an LLVM block."""
        self.out.append(f"{name}:")

    def fresh_label(self) -> str:
        """A label that was not used."""
        self.stubs += 1
        return f"L{self.stubs}"

    def call(self, native: Native, arguments: list[str], result: str = "i32") -> str:
        """Calls a function of the runtime; arguments with their types."""
        types = ", ".join(a.split()[0] for a in arguments)
        self.natives[native.symbol] = (native, f"declare {result} @{native.symbol}({types})")
        text = f"call {result} @{native.symbol}({', '.join(arguments)})"
        if result == "void":
            self.line(text)
            return ""
        return self.op(text)

    def field(self, struct: str, name: str, type: str) -> str:
        """A field of the context or the warp."""
        layout = {"ctx": CONTEXT, "warp": WARP_STATE}[struct]
        at = self.op(f"getelementptr i8, ptr %{struct}, i64 {field_offset(layout, name)}")
        return self.op(f"load {type}, ptr {at}")

    def _entry(self) -> None:
        for name, struct, field_name in (
            ("params", CONTEXT, "params"),
            ("symbols", CONTEXT, "symbols"),
            ("counts", CONTEXT, "block_counts"),
        ):
            self.line(f"%{name}.at = getelementptr i8, ptr %ctx, i64 {field_offset(struct, field_name)}")
            self.line(f"%{name} = load ptr, ptr %{name}.at")
        self.line(f"%block.at = getelementptr i8, ptr %warp, i64 {field_offset(WARP_STATE, 'block')}")
        self.line("%block = load ptr, ptr %block.at")

    # -- blocks

    def _block(self, block: Block) -> None:
        if self.mode == "masked":
            self.mask = self.op("load i32, ptr %MASK")
        if self.level:
            self._counters(block)
        for number, part in enumerate(block.parts):
            if part.step:
                with located(part.instructions[0]):
                    StepWriter(self, part.instructions[0], block.number, first=number == 0).write()
            else:
                self._segment(part)
        self._end(block)

    def _counters(self, block: Block) -> None:
        lanes = "32"
        if self.mode == "masked":
            self.names.declared.add("declare i32 @llvm.ctpop.i32(i32)")
            lanes = self.op(f"zext i32 {self.op(f'call i32 @llvm.ctpop.i32(i32 {self.mask})')} to i64")
        for place, more in ((2 * block.number, "1"), (2 * block.number + 1, lanes)):
            at = self.op(f"getelementptr i64, ptr %counts, i64 {place}")
            old = self.op(f"load i64, ptr {at}")
            self.line(f"store i64 {self.op(f'add i64 {old}, {more}')}, ptr {at}")

    def _segment(self, part: Part) -> None:
        """A loop of four over 8 lanes."""
        start, loop, done = self.fresh_label(), self.fresh_label(), self.fresh_label()
        chunk, following = self.names.fresh(), self.names.fresh()
        self.line(f"br label %{start}")
        self.label(start)
        self.line(f"br label %{loop}")
        self.label(loop)
        tail = len(self.out)
        self.line("")  # the counter: its last block is known at the end
        lanes = Lanes(self.names, self.flow.slots, self.out, self.addresses.of, self.addresses.special)
        lanes.pointers = {0: chunk} | {
            bits: self.op(
                f"getelementptr i8, ptr %warp, i32 {chunk if bits == 1 else self.op(f'mul i32 {chunk}, {bits}')}"
            )
            for bits in (1, 8, 16, 32, 64)
        }
        if self.mode == "masked":
            at = self.op(f"getelementptr i8, ptr %MASK, i32 {chunk}")
            lanes.mask = self.op(f"bitcast i8 {self.op(f'load i8, ptr {at}')} to <{CHUNK} x i1>")
        for instruction in part.instructions:
            with located(instruction):
                lanes.emit(instruction)
        for name, register in lanes.defined.items():
            if name in part.live_after and name in self.flow.slots:
                value, type = lanes.current[name]
                lanes.write_slot(register, value, type)
        self.out[tail] = f"  {chunk} = phi i32 [ 0, %{start} ], [ {following}, %{loop} ]"
        self.line(f"{following} = add i32 {chunk}, 1")
        self.line(f"br i1 {self.op(f'icmp ult i32 {following}, {32 // CHUNK}')}, label %{loop}, label %{done}")
        self.label(done)

    # -- ends of blocks

    def _end(self, block: Block) -> None:
        end = block.end
        if end is None:
            self._go(block, block.number + 1)
        elif end.name == "bra":
            self._branch(block, end)
        elif end.name == "exit":
            site = self.sites[id(end)].number
            self.call(Native("leave"), ["ptr %ctx", "ptr %warp", f"i32 {site}", f"i32 {self.mask}"])
            self.line(f"ret i32 {GO_ON}")
        elif end.name == "trap":
            site = self.sites[id(end)].number
            self.line(
                f"ret i32 {self.call(Native('trap'), ['ptr %ctx', 'ptr %warp', f'i32 {site}', f'i32 {self.mask}'])}"
            )
        else:
            self._barrier(block, end)

    def _branch(self, block: Block, end: Instruction) -> None:
        if end.guard is None:
            self._go(block, block.target)
            return
        slot = self.slot(end.guard.name)
        bits = self.op(f"load i32, ptr {slot}")
        if end.guard_negated:
            bits = self.op(f"xor i32 {bits}, -1")
        if self.mode == "masked":
            bits = self.op(f"and i32 {bits}, {self.mask}")
        taken, others, nobody, split = (self.fresh_label() for _ in range(4))
        self.line(f"br i1 {self.op(f'icmp eq i32 {bits}, {self.mask}')}, label %{taken}, label %{others}")
        self.label(taken)
        self._go(block, block.target)
        self.label(others)
        self.line(f"br i1 {self.op(f'icmp eq i32 {bits}, 0')}, label %{nobody}, label %{split}")
        self.label(nobody)
        self._go(block, block.number + 1)
        self.label(split)
        self._write_counters(bits, block.target, block.number + 1)
        # A split backward branch uses fuel too: a loop in which lanes part every time would never return otherwise.
        if block.target <= block.number:
            self._fuel(f"ret i32 {GO_ON}", f"ret i32 {OUT_OF_FUEL}")
        else:
            self.line(f"ret i32 {GO_ON}")

    def spend(self, units: int) -> str:
        """Takes fuel; what is left."""
        at = self.op(f"getelementptr i8, ptr %ctx, i64 {field_offset(CONTEXT, 'fuel')}")
        left = self.op(f"sub i32 {self.op(f'load i32, ptr {at}')}, {units}")
        self.line(f"store i32 {left}, ptr {at}")
        return left

    def _fuel(self, with_fuel: str, without: str) -> None:
        """Takes one unit; then does the one or the other."""
        left = self.spend(1)
        empty, go = self.fresh_label(), self.fresh_label()
        self.line(f"br i1 {self.op(f'icmp slt i32 {left}, 0')}, label %{empty}, label %{go}")
        self.label(empty)
        self.line(without)
        self.label(go)
        self.line(with_fuel)

    def _write_counters(self, bits: str, target: int, other: int) -> None:
        arguments = ["ptr %warp", f"i32 {bits}", f"i32 {target}", f"i32 {other}", f"i32 {self.mask}"]
        self.call(Native("branch"), arguments, "void")

    def _go(self, block: Block, target: int) -> None:
        """All lanes of the mask go on at a block: straight, unless fuel is out or other lanes have to run first."""
        straight = f"br label %{'S' if self.mode == 'masked' else 'F'}{target}"
        if target <= block.number:
            enough, empty = self.fresh_label(), self.fresh_label()
            self._fuel(f"br label %{enough}", f"br label %{empty}")
            self.label(empty)
            self._write_counters(EVERYBODY, target, target)
            self.line(f"ret i32 {OUT_OF_FUEL}")
            self.label(enough)
        if self.mode == "full":
            self.line(straight)
            return
        go, others_first = self.fresh_label(), self.fresh_label()
        self.line(f"br i1 {self.op(f'icmp ult i32 {target}, %limit')}, label %{go}, label %{others_first}")
        self.label(others_first)
        self._write_counters(EVERYBODY, target, target)
        self.line(f"ret i32 {GO_ON}")
        self.label(go)
        self.line(straight)

    def _barrier(self, block: Block, end: Instruction) -> None:
        steps = StepWriter(self, end, block.number, first=False)
        sources = list(end.sources)
        yes = sources.pop() if end.name == "bar.red" else None
        _check_barrier(end, sources)
        ids = steps.slot_of(sources[0], "i32", 0)
        counts = steps.slot_of(sources[1] if len(sources) > 1 else Immediate(0), "i32", 1)
        then = f"i32 {block.number + 1}"
        common = ["ptr %ctx", "ptr %warp", f"i32 {self.sites[id(end)].number}", f"ptr {ids}", f"ptr {counts}"]
        has = f"i32 {int(len(sources) > 1)}"
        if end.name == "bar.arrive":
            status = self.call(Native("barrier_arrive"), [*common, then, f"i32 {self.mask}"])
        elif yes is None:
            status = self.call(Native("barrier_wait"), [*common, has, then, f"i32 {self.mask}"])
        else:
            status = self.call(
                Native("barrier_reduce"), [*common, has, then, f"i32 {self.mask}", f"i32 {steps.predicate(yes)}"]
            )
        self.line(f"ret i32 {status}")

    def slot(self, name: str) -> str:
        """Where a register's slot starts."""
        return self.op(f"getelementptr i8, ptr %warp, i64 {SLOTS + self.flow.slots[name]}")


def _check_barrier(end: Instruction, sources: list[Operand]) -> None:
    """Constants that ptxas refuses (PTX ISA, "bar, barrier": 16 barriers, counts of whole warps)."""
    number, count = (operand.bits if isinstance(operand, Immediate) else None for operand in (*sources, None)[:2])
    if number is not None and not 0 <= number < BARRIERS:
        raise PtxError(f"PTX line {end.text_line}: there is no barrier {number} ({end.text}); they are 0 to 15.")
    if count is not None and (count <= 0 or count % 32):
        raise PtxError(f"PTX line {end.text_line}: {end.text} counts {count} threads; they have to be whole warps.")


EVERYBODY = str(FULL - (1 << 32))
"""All lanes, as LLVM writes it."""
