"""Steps: instructions that a call to the runtime does for all lanes, on register slots in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from undertorch.simt.codegen.flow import WHOLE_WARP
from undertorch.simt.codegen.lanes import immediate_bits
from undertorch.simt.codegen.native import Native, access_function, async_function, atomic_function
from undertorch.simt.codegen.sites import space_of
from undertorch.simt.codegen.tensor_steps import write_matrices, write_mma, write_transposition
from undertorch.simt.errors import PtxError, Unsupported
from undertorch.simt.ptx.instructions import (
    Address,
    Group,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
)
from undertorch.simt.runtime.layout import (
    ALLOCATE,
    ASSERT,
    FENCE,
    FULL,
    GO_ON,
    HOST,
    LOCAL,
    POLL_FUEL,
    PRINT,
    RELEASE,
    SHARED,
    WARP_STATE,
    WARP_SYNC,
    field_offset,
)

if TYPE_CHECKING:
    from undertorch.simt.codegen.kernel import KernelWriter

SHUFFLES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
VOTES = {"all": 0, "any": 1, "uni": 2, "ballot": 3}
ANSWERS = {"vprintf": PRINT, "__assertfail": ASSERT, "malloc": ALLOCATE, "free": RELEASE}
REDUCED = {"popc": 0, "and": 1, "or": 2}
INTEGER_ATOMICS = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg"}


@dataclass(slots=True)
class StepWriter:
    """Writes the call of one step."""

    kernel: "KernelWriter"
    instruction: Instruction
    block: int
    first: bool
    """Whether it starts its block: only there may lanes wait for others."""

    def write(self) -> None:
        """The call, and what follows from its answer."""
        name = self.instruction.name
        if self.instruction.converge and name != "bar.result":
            self._meet()
        match name:
            case "ld" | "st":
                self._access()
            case "atom" | "red":
                self._atomic()
            case "shfl.sync":
                self._shuffle()
            case "vote.sync":
                self._each_mask(self._vote)
            case "match.sync":
                self._each_mask(self._match)
            case "redux.sync":
                self._each_mask(self._redux)
            case "activemask":
                out = self.result(self.instruction.results[0], 32, 0)
                self._void("active_mask", (), [f"ptr {out}", f"i32 {self.kernel.mask}"])
            case "bar.result":
                self._barrier_result()
            case "bar.warp.sync":
                if self.kernel.mode == "full" or not self.first:
                    self._note(WARP_SYNC)
            case "fence":
                self._note(FENCE)
            case "hostcall":
                self._host()
            case "cp.async" | "cp.async.commit" | "cp.async.wait":
                self._asynchronous()
            case "mma" | "wmma":
                write_mma(self)
            case "ldmatrix" | "stmatrix":
                write_matrices(self)
            case "movmatrix":
                write_transposition(self)

    # -- operands in memory

    def scratch(self, region: int) -> str:
        """A place of 256 bytes in the warp's state."""
        offset = field_offset(WARP_STATE, "scratch") + 256 * region
        return self.kernel.op(f"getelementptr i8, ptr %warp, i64 {offset}")

    def slot_of(self, operand: Operand, type: str, region: int) -> str:
        """Where an operand's 32 values lie; constants are written to a scratch region first."""
        kernel = self.kernel
        if isinstance(operand, Register):
            self._fits(operand, int(type[1:]))
            return kernel.slot(operand.name)
        place = self.scratch(region)
        v = f"<32 x {type}>"
        if isinstance(operand, Immediate):
            bits = immediate_bits(operand, type) & ((1 << int(type[1:])) - 1)
            kernel.line(f"store {v} splat ({type} {bits}), ptr {place}, align 8")
            return place
        if isinstance(operand, Symbol):
            scalar = self._symbol(operand)
            scalar = scalar if type == "i64" else kernel.op(f"trunc i64 {scalar} to {type}")
            one = kernel.op(f"insertelement {v} poison, {type} {scalar}, i32 0")
            kernel.line(
                f"store {v} {kernel.op(f'shufflevector {v} {one}, {v} poison, <32 x i32> zeroinitializer')}, "
                f"ptr {place}, align 8"
            )
            return place
        if isinstance(operand, Special):
            raise Unsupported(
                f"PTX line {self.instruction.text_line}: %{operand.name} cannot be used in {self.instruction.text}"
            )
        return place

    def _symbol(self, symbol: Symbol) -> str:
        addresses = self.kernel.addresses
        for offsets in (addresses.shared, addresses.local):
            if symbol.name in offsets:
                return str(offsets[symbol.name] + symbol.offset)
        if symbol.name in addresses.parameters:
            at = self.kernel.op("ptrtoint ptr %params to i64")
            return self.kernel.op(f"add i64 {at}, {addresses.parameters[symbol.name] + symbol.offset}")
        if symbol.name not in addresses.symbols:
            raise Unsupported(f"PTX line {self.instruction.text_line}: {symbol.name} is not a variable of this file.")
        at = self.kernel.op(f"getelementptr i64, ptr %symbols, i64 {addresses.symbols[symbol.name]}")
        return self.kernel.op(f"add i64 {self.kernel.op(f'load i64, ptr {at}')}, {symbol.offset}")

    def result(self, operand: Operand, bits: int, region: int) -> str:
        """Where a result goes; nobody reads what goes to `_`."""
        if isinstance(operand, Register):
            self._fits(operand, bits)
            return self.kernel.slot(operand.name)
        return self.scratch(region)

    def _fits(self, register: Register, bits: int) -> None:
        """The runtime reads and writes whole slots: a register of another width would be its neighbour's ruin."""
        if register.type.bits != bits:
            i = self.instruction
            raise PtxError(
                f"PTX line {i.text_line}: {register.name} has {register.type.bits} bits, and {i.text} needs {bits}."
            )

    def predicate(self, operand: Operand) -> str:
        """A predicate's 32 bits."""
        kernel = self.kernel
        if isinstance(operand, Immediate):
            return "-1" if operand.bits else "0"
        register = operand.register if isinstance(operand, Negated) else operand
        if not isinstance(register, Register):
            raise PtxError(f"PTX line {self.instruction.text_line}: {self.instruction.text} needs a predicate.")
        self._fits(register, 1)
        bits = kernel.op(f"load i32, ptr {kernel.slot(register.name)}")
        return kernel.op(f"xor i32 {bits}, -1") if isinstance(operand, Negated) else bits

    def active(self) -> str:
        """The mask, with the guard."""
        guard, kernel = self.instruction.guard, self.kernel
        if guard is None:
            return kernel.mask
        bits = self.predicate(Negated(guard) if self.instruction.guard_negated else guard)
        return kernel.op(f"and i32 {bits}, {kernel.mask}")

    def _number(self) -> str:
        """The site's number, as an argument."""
        return f"i32 {self.kernel.sites[id(self.instruction)].number}"

    def _note(self, kind: int) -> None:
        """With events, one that has no addresses."""
        if self.kernel.level > 1:
            self._void(
                "note_step", (), ["ptr %ctx", "ptr %warp", self._number(), f"i32 {kind}", f"i32 {self.active()}"]
            )

    def _void(self, name: str, constants: tuple[tuple[str, object], ...], arguments: list[str]) -> None:
        self.kernel.call(Native(name, constants), arguments, "void")

    def _or_fault(self, status: str) -> None:
        kernel = self.kernel
        go = kernel.fresh_label()
        kernel.line(f"br i1 {kernel.op(f'icmp eq i32 {status}, {GO_ON}')}, label %{go}, label %fault")
        kernel.label(go)

    # -- memory

    def address(self, address: Address, space: int) -> tuple[str, int]:
        """Where the addresses lie, and their width."""
        if isinstance(address.base, Register):
            if address.base.type.bits not in {32, 64}:
                self._fits(address.base, 64)
            return self.kernel.slot(address.base.name), address.base.type.bits
        if isinstance(address.base, Symbol):
            return self.slot_of(address.base, "i64", 7), 64
        return self.slot_of(Immediate(0), "i64", 7), 64

    def space(self, address: Address) -> int:
        """The space of an access, as layout.py counts them."""
        space = space_of(self.instruction)
        if space == "shared":
            return SHARED
        if space == "local" or (space == "param" and isinstance(address.base, Symbol)):
            return LOCAL
        return HOST

    def _access(self) -> None:
        i, kernel = self.instruction, self.kernel
        store = i.name == "st"
        address, value = (i.sources[0], i.sources[1]) if store else (i.sources[0], i.results[0])
        assert isinstance(address, Address)
        items = value.items if isinstance(value, Group) else (value,)
        if len(items) > 4 or i.type.bits > 64:
            raise Unsupported(
                f"PTX line {i.text_line}: {i.text} moves more than 16 bytes a thread, which is not supported."
            )
        space = self.space(address)
        widths = {o.type.bits for o in items if isinstance(o, Register)} or {max(16, i.type.bits)}
        if len(widths) > 1:
            raise Unsupported(f"PTX line {i.text_line}: {i.text} names registers of different widths.")
        (register,) = widths
        if register < i.type.bits:
            raise PtxError(f"PTX line {i.text_line}: {i.text} names a register of {register} bits.")
        slots = [
            self.slot_of(o, f"i{register}", n) if store else self.result(o, register, n) for n, o in enumerate(items)
        ]
        slots += [slots[0]] * (4 - len(slots))
        where, width = self.address(address, space)
        native = access_function(
            space=space,
            store=store,
            memory=i.type.bits,
            register=register,
            signed=i.type.signed and not store,
            count=len(items),
            address=width,
            level=kernel.level,
        )
        self.reach(native, where, address, slots)
        if not store and kernel.sites[id(i)].order != "weak":
            kernel.spend(POLL_FUEL)

    def _atomic(self) -> None:
        i, kernel = self.instruction, self.kernel
        results, sources = i.results, i.sources
        address = sources[0]
        assert isinstance(address, Address)
        space, t = self.space(address), f"i{i.type.bits}"
        kind, op, floating, up = atomic_operation(i)
        if op == "fadd" and i.type.name == "f32" and space == HOST:
            kind = 5
        out = self.result(results[0], i.type.bits, 0) if results else self.scratch(0)
        a = self.slot_of(sources[1], t, 1)
        b = self.slot_of(sources[2], t, 2) if i.options["op"] == "cas" else a  # the last one may be a cache policy
        where, width = self.address(address, space)
        native = atomic_function(
            space=space, bits=i.type.bits, address=width, level=kernel.level, kind=kind, op=op, floating=floating, up=up
        )
        self.reach(native, where, address, (out, a, b))
        if results and i.options["op"] in {"cas", "exch"}:  # in a loop it asks for what others have to write, as a lock
            kernel.spend(POLL_FUEL)

    def reach(self, native: Native, where: str, address: Address, slots: Sequence[str]) -> None:
        """The runtime reaches into memory for the active lanes, from and into slots."""
        arguments = [
            "ptr %ctx",
            "ptr %warp",
            self._number(),
            f"ptr {where}",
            f"i64 {address.offset}",
            f"i32 {self.active()}",
            *(f"ptr {slot}" for slot in slots),
        ]
        self._or_fault(self.kernel.call(native, arguments))

    # -- lanes together

    def _meet(self) -> None:
        """Lanes whose member mask has not come yet wait. Where all 32 run, everybody is here."""
        kernel, i = self.kernel, self.instruction
        if kernel.mode == "full" or not self.first:
            self._note_members()
            return
        members = self.slot_of(Immediate(FULL) if i.name in WHOLE_WARP else i.sources[-1], "i32", 6)
        arguments = ["ptr %ctx", "ptr %warp", f"ptr {members}", f"i32 {self.block}", f"i32 {kernel.mask}"]
        if i.name == "bar.warp.sync":  # it notes by itself who met
            ready = kernel.call(Native("synchronised"), [*arguments, self._number()])
        else:
            ready = kernel.call(Native("together"), arguments)
        nobody, go = kernel.fresh_label(), kernel.fresh_label()
        kernel.line(f"br i1 {kernel.op(f'icmp eq i32 {ready}, 0')}, label %{nobody}, label %{go}")
        kernel.label(nobody)
        kernel.line(f"ret i32 {GO_ON}")
        kernel.label(go)
        kernel.line(f"store i32 {ready}, ptr %MASK")
        kernel.mask = ready
        self._note_members()

    def _note_members(self) -> None:
        """With events, masks that leave out the lane itself or name lanes that have ended."""
        kernel, i = self.kernel, self.instruction
        members = i.sources[-1] if i.name not in WHOLE_WARP else Immediate(FULL)
        whole = isinstance(members, Immediate) and members.bits & FULL == FULL
        if kernel.level < 2 or (kernel.mode == "full" and whole):
            return
        asked = f"ptr {self.slot_of(members, 'i32', 6)}"
        gone = (("GONE", int(i.name != "bar.warp.sync")),)  # who met there may have ended by now
        self._void("note_members", gone, ["ptr %ctx", "ptr %warp", self._number(), asked, f"i32 {kernel.mask}"])

    def _each_mask(self, write: Callable[[], None]) -> None:
        """Writes a step for each member mask among the lanes that run: two tiles of 16 come here together."""
        kernel, members = self.kernel, self.instruction.sources[-1]
        if isinstance(members, Immediate):
            write()
            return
        whole, (start, loop, done) = kernel.mask, (kernel.fresh_label() for _ in range(3))
        left, rest = kernel.names.fresh(), kernel.names.fresh()
        kernel.line(f"br label %{start}")
        kernel.label(start)
        kernel.line(f"br label %{loop}")
        kernel.label(loop)
        kernel.line(f"{left} = phi i32 [ {whole}, %{start} ], [ {rest}, %{loop} ]")
        kernel.mask = kernel.call(Native("same_mask"), [f"ptr {self.slot_of(members, 'i32', 6)}", f"i32 {left}"])
        write()
        kernel.line(f"{rest} = xor i32 {left}, {kernel.mask}")
        kernel.line(f"br i1 {kernel.op(f'icmp eq i32 {rest}, 0')}, label %{done}, label %{loop}")
        kernel.label(done)
        kernel.mask = whole

    def _shuffle(self) -> None:
        i = self.instruction
        out, valid = self._two_results()
        a, b, c = (f"ptr {self.slot_of(s, 'i32', 2 + n)}" for n, s in enumerate(i.sources[:3]))
        arguments = ["ptr %warp", f"ptr {out}", f"ptr {valid}", a, b, c, f"i32 {self.kernel.mask}"]
        self._void("shuffle", (("MODE", SHUFFLES[i.options["mode"]]),), arguments)

    def _two_results(self) -> tuple[str, str]:
        result = self.instruction.results[0]
        first, second = (result.first, result.second) if isinstance(result, Pair) else (result, Sink())
        return self.result(first, 32, 0), self.result(second, 1, 1)

    def _vote(self) -> None:
        i = self.instruction
        out = self.result(i.results[0], 32 if i.options["mode"] == "ballot" else 1, 0)
        arguments = [f"ptr {out}", f"i32 {self.predicate(i.sources[0])}", f"i32 {self.kernel.mask}"]
        self._void("vote", (("MODE", VOTES[i.options["mode"]]),), arguments)

    def _match(self) -> None:
        i = self.instruction
        out, valid = self._two_results()
        t = f"i{i.type.bits}"
        arguments = [f"ptr {out}", f"ptr {valid}", f"ptr {self.slot_of(i.sources[0], t, 2)}", f"i32 {self.kernel.mask}"]
        self._void(f"match_{i.options['mode']}", (("A", t),), arguments)

    def _redux(self) -> None:
        i = self.instruction
        op = i.options["op"]
        signed = 2 if i.type.signed and op in {"min", "max"} else 0
        mode = {"add": 0, "min": 1, "max": 2, "and": 5, "or": 6, "xor": 7}[op] + signed
        arguments = [
            f"ptr {self.result(i.results[0], 32, 0)}",
            f"ptr {self.slot_of(i.sources[0], 'i32', 1)}",
            f"i32 {self.kernel.mask}",
        ]
        self._void("reduce", (("MODE", mode),), arguments)

    def _barrier_result(self) -> None:
        i = self.instruction
        out = self.result(i.results[0], 32 if i.options["op"] == "popc" else 1, 0)
        arguments = [
            "ptr %warp",
            f"ptr {out}",
            f"i32 {self.kernel.mask}",
        ]
        self._void("barrier_result", (("MODE", REDUCED[i.options["op"]]),), arguments)

    # -- the host

    def _host(self) -> None:
        kernel, i = self.kernel, self.instruction
        function = i.sources[1]
        assert isinstance(function, Symbol)
        kind = ANSWERS[function.name]
        host = kernel.field("ctx", "host", "ptr")
        status = kernel.op(
            f"call i32 {host}(ptr %ctx, ptr %warp, i32 {kind}, i32 {kernel.sites[id(i)].number}, i32 {kernel.mask})"
        )
        self._or_fault(status)

    def _asynchronous(self) -> None:
        i, kernel = self.instruction, self.kernel
        if i.name == "cp.async.commit":
            self._void("async_commit", (), ["ptr %ctx", "ptr %warp", self._number(), f"i32 {self.active()}"])
            return
        if i.name == "cp.async.wait":
            keep = i.sources[0].bits if i.sources and isinstance(i.sources[0], Immediate) else 0
            everything = int(not i.sources)
            groups = [f"i32 {keep}", f"i32 {everything}"]
            self._void("async_wait", (), ["ptr %ctx", "ptr %warp", self._number(), *groups, f"i32 {self.active()}"])
            return
        to, source, size = i.sources[:3]
        assert isinstance(to, Address)
        assert isinstance(source, Address)
        assert isinstance(size, Immediate)
        rest = [s for s in i.sources[3:] if not (isinstance(s, Register) and s.type.bits == 64)]
        count = self.slot_of(rest[0] if rest else size, "i32", 2)
        where_to, to_width = self.address(to, SHARED)
        where_from, from_width = self.address(source, HOST)
        native = async_function(bytes=size.bits, to=to_width, source=from_width)
        arguments = [
            "ptr %ctx",
            "ptr %warp",
            self._number(),
            f"ptr {where_to}",
            f"i64 {to.offset}",
            f"ptr {where_from}",
            f"i64 {source.offset}",
            f"ptr {count}",
            f"i32 {self.active()}",
        ]
        self._or_fault(kernel.call(native, arguments))


def atomic_operation(i: Instruction) -> tuple[int, str, str, bool]:
    """How it is done: its kind (runtime/native/atomics.py), LLVM's name, the float type, whether it counts up."""
    op, integer = i.options["op"], f"i{i.type.bits}"
    if op == "cas":
        return 1, "add", integer, False
    if op in {"inc", "dec"}:
        return 3, "add", integer, op == "inc"
    if i.type.floating and op == "add":
        if i.type.lanes == 2 or i.type.kind == "brain":
            return 4, "fadd", "half" if i.type.kind == "float" else "f32", False
        return 2, "fadd", {16: "half", 32: "f32", 64: "f64"}[i.type.bits], False
    if op in {"min", "max"}:
        return 0, op if i.type.signed else f"u{op}", integer, False
    return 0, INTEGER_ATOMICS[op], integer, False
