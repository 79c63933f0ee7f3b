"""wmma.load and wmma.store as the loads and stores of single registers that they are.

The PTX ISA leaves open where a fragment's elements lie; here it is where mma has them (ptx/fragments.py). An element's
row is the sum of what its lane and what its register say, and so is its column: a lane's address is computed once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from undertorch.simt.codegen.tensor_steps import check_count, items
from undertorch.simt.errors import PtxError
from undertorch.simt.ptx.fragments import LANES_OF_ROW, MATRICES, Fragment, Product, shape
from undertorch.simt.ptx.instructions import Address, Immediate, Instruction, Label, Operand, Register, Special
from undertorch.simt.ptx.opcodes import match
from undertorch.simt.ptx.types import TYPES

MEMORY_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
"""Of an element in memory."""
Piece = tuple[int, int, int]
"""One access: whole lines down, bytes along, bits."""
Pieces = tuple[Piece, ...]


def with_plain_moves(body: Iterable[Instruction | Label]) -> Iterator[Instruction | Label]:
    """A body without wmma.load and wmma.store."""
    for number, item in enumerate(body):
        if isinstance(item, Instruction) and item.name in {"wmma.load", "wmma.store"}:
            yield from _Moves(item, f"wmma@{number}").write()
        else:
            yield item


@dataclass(slots=True)
class _Moves:
    """What one instruction becomes."""

    instruction: Instruction
    prefix: str
    out: list[Instruction] = field(default_factory=list)
    count: int = 0

    def write(self) -> list[Instruction]:
        i = self.instruction
        store = i.name == "wmma.store"
        address, value, *rest = (*i.sources[:1], *(i.sources[1:] if store else (i.results[0], *i.sources[1:])))
        if not isinstance(address, Address):
            raise PtxError(f"PTX line {i.text_line}: {i.text} takes an address.")
        fragment = _fragment(i)
        registers = items(value)
        check_count(i, "its fragment", len(registers), fragment.registers)
        wide = 32 if isinstance(address.base, Register) and address.base.type.bits == 32 else 64
        row_major = i.options["major"] == "row"
        along = (fragment.columns if row_major else fragment.rows) * fragment.element
        stride = self._stride(rest, along // MEMORY_BITS[i.options["kind"]], wide)
        start = self._start(address, fragment, stride, wide, row_major)
        known: dict[Pieces, Operand] = {}
        for number, register in enumerate(registers):
            pieces = self._pieces(fragment, number, row_major)
            if store:
                self._store(start, pieces, register, stride, wide)
            elif pieces in known:  # the same elements once more
                self.emit("mov.b32", (register,), (known[pieces],), guarded=True)
            else:
                known[pieces] = register
                self._load(start, pieces, register, stride, wide)
        accesses = [n for n, made in enumerate(self.out) if made.name in {"ld", "st"}]
        return [replace(made, counted=n == accesses[0]) for n, made in enumerate(self.out)]

    # -- addresses

    def _stride(self, rest: list[Operand], default: int, wide: int) -> "int | Register":
        """Bytes from one row (or column) to the next; without one they lie behind each other."""
        bits = MEMORY_BITS[self.instruction.options["kind"]]
        given = rest[0] if rest else Immediate(default)
        if isinstance(given, Immediate):
            return given.bits * bits // 8
        widened = self.make("cvt.u64.u32" if wide == 64 else "mov.u32", wide, given)
        return self.make(
            f"shr.u{wide}", wide, self.make(f"mul.lo.u{wide}", wide, widened, Immediate(bits)), Immediate(3)
        )

    def _start(
        self, address: Address, fragment: Fragment, stride: "int | Register", wide: int, row_major: bool
    ) -> Register:
        """Where a lane's first element lies."""
        base = address.base if address.base is not None else Immediate(0)
        lane = self.make("mov.u32", 32, Special("laneid"))
        line = self.make("shr.u32", 32, lane, Immediate(2))
        within = self.make("and.b32", 32, lane, Immediate(LANES_OF_ROW - 1))
        unit = fragment.element // 8 if fragment.element >= 8 else 1
        step = fragment.register // 8 if fragment.role != "c" else 2 * unit
        # B's rows go along a line of lanes, A's and the accumulators' down the lines.
        lines_are_rows = fragment.role != "b"
        one, other = (line, within) if lines_are_rows == row_major else (within, line)
        if one is within:
            major = self.make("mul.lo.u32", 32, within, Immediate(fragment.packed if fragment.role != "c" else 2))
            minor = self.make("mul.lo.u32", 32, other, Immediate(unit))
        else:
            major, minor = line, self.make("mul.lo.u32", 32, within, Immediate(step))
        if wide == 64:
            major, minor = self.make("cvt.u64.u32", 64, major), self.make("cvt.u64.u32", 64, minor)
        by = Immediate(stride) if isinstance(stride, int) else stride
        start = self.make(f"mov.u{wide}", wide, base)
        start = self.make(f"add.u{wide}", wide, start, Immediate(address.offset))
        return self.make(f"mad.lo.u{wide}", wide, major, by, self.make(f"add.u{wide}", wide, start, minor))

    def _pieces(self, fragment: Fragment, register: int, row_major: bool) -> Pieces:
        """What a register is read in: whole lines down, bytes along, bits."""
        found = []
        for element in range(fragment.packed):
            row, column = fragment.position(register, 0, element)
            major, minor = (row, column) if row_major else (column, row)
            found.append((major, minor * fragment.element // 8, fragment.element))
        together = all(major == found[0][0] for major, _, _ in found)
        return ((*found[0][:2], fragment.register),) if together else tuple(found)

    def _place(self, start: Register, piece: Piece, stride: "int | Register", wide: int) -> Address:
        down, along, _ = piece
        if isinstance(stride, int):
            return Address(start, down * stride + along)
        if down:
            start = self.make(f"mad.lo.u{wide}", wide, stride, Immediate(down), start)
        return Address(start, along)

    # -- accesses

    def _load(
        self,
        start: Register,
        pieces: Pieces,
        register: Operand,
        stride: "int | Register",
        wide: int,
    ) -> None:
        if len(pieces) == 1:
            self._access("ld", self._place(start, pieces[0], stride, wide), register, pieces[0][2])
            return
        whole: Register | None = None
        for number, piece in enumerate(pieces):
            one = self.fresh(32)
            self._access("ld", self._place(start, piece, stride, wide), one, piece[2])
            if number:
                one = self.make("shl.b32", 32, one, Immediate(number * piece[2]))
            whole = one if whole is None else self.make("or.b32", 32, whole, one)
        assert whole is not None
        self.emit("mov.b32", (register,), (whole,), guarded=True)

    def _store(
        self,
        start: Register,
        pieces: Pieces,
        register: Operand,
        stride: "int | Register",
        wide: int,
    ) -> None:
        for number, piece in enumerate(pieces):
            one = register
            if number:
                one = self.make("shr.u32", 32, register, Immediate(number * piece[2]))
            self._access("st", self._place(start, piece, stride, wide), one, piece[2])

    def _access(self, name: str, place: Address, register: Operand, bits: int) -> None:
        space = self.instruction.options.get("space")
        opcode = f"{name}.{space}.b{bits}" if space else f"{name}.b{bits}"
        if name == "ld":
            self.emit(opcode, (register,), (place,), guarded=True)
        else:
            self.emit(opcode, (), (place, register), guarded=True)

    # -- instructions

    def fresh(self, bits: int) -> Register:
        """A register of its own."""
        self.count += 1
        return Register(f"%{self.prefix}.{self.count}", TYPES[f"b{bits}"])

    def make(self, opcode: str, bits: int, *sources: Operand) -> Register:
        """An instruction with a result of its own."""
        result = self.fresh(bits)
        self.emit(opcode, (result,), sources)
        return result

    def emit(
        self, opcode: str, results: tuple[Operand, ...], sources: tuple[Operand, ...], *, guarded: bool = False
    ) -> None:
        """An instruction at the place of this one; only what can be seen from outside has its guard."""
        found = match(opcode)
        assert found is not None, opcode
        i = self.instruction
        self.out.append(
            replace(
                i,
                name=found.form.name,
                types=found.types,
                options=found.options,
                results=results,
                sources=sources,
                guard=i.guard if guarded else None,
                guard_negated=i.guard_negated if guarded else False,
            )
        )


def _fragment(i: Instruction) -> Fragment:
    m, n, k = shape(i.options["shape"])
    kind = i.options["kind"]
    whole = Product(m=m, n=n, k=k, d=kind, a=kind, b=kind, c=kind, wmma=True)
    return next(whole.fragment(role) for role in MATRICES if role == i.options["role"])
