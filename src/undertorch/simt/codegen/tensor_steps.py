"""Steps on matrices that a whole warp holds: mma and wmma, ldmatrix, stmatrix, movmatrix."""

from typing import TYPE_CHECKING

from undertorch.simt.codegen.native import Native, matrices_function
from undertorch.simt.codegen.tensor import how_of, mma_constants
from undertorch.simt.errors import PtxError, Unsupported
from undertorch.simt.ptx.fragments import MATRICES, Product, shape
from undertorch.simt.ptx.instructions import Address, Group, Immediate, Instruction, Operand, Register

if TYPE_CHECKING:
    from undertorch.simt.codegen.steps import StepWriter

CONSTANTS = 6
"""Different constants that the registers of one instruction may be (scratch regions 0 to 5)."""


def product(i: Instruction) -> Product:
    """Shape and types of an mma or wmma (whose A and B are f16, where they are not named)."""
    m, n, k = shape(i.options["shape"])
    d, a, b, c = (i.options.get(name, "f16") for name in "dabc")
    return Product(m=m, n=n, k=k, d=d, a=a, b=b, c=c, wmma=i.name == "wmma")


def items(operand: Operand) -> tuple[Operand, ...]:
    """The registers of a fragment; one needs no braces."""
    return operand.items if isinstance(operand, Group) else (operand,)


def check_count(i: Instruction, name: str, given: int, needed: int) -> None:
    """Raises PtxError where a fragment has another number of registers."""
    if given != needed:
        raise PtxError(f"PTX line {i.text_line}: {i.text} names {given} registers for {name}; it has {needed}.")


def write_mma(steps: "StepWriter") -> None:
    """All of it in one call, on the slots of the four matrices."""
    i, kernel = steps.instruction, steps.kernel
    whole = product(i)
    how = how_of(whole.a, saturates="satfinite" in i.options, operation=i.options.get("bits", "xor"))
    slots: list[str] = []
    constants: dict[int, str] = {}
    for role, operand in zip(MATRICES, (*i.results, *i.sources), strict=True):
        fragment = whole.fragment(role)
        given = items(operand)
        check_count(i, role.upper(), len(given), fragment.registers)
        for one in given:
            slots.append(_slot(steps, one, fragment.register, constants, result=role == "d"))
    native = Native("mma", mma_constants(whole, how, kernel.numerics, masked=kernel.mode == "masked"))
    kernel.call(native, [*(f"ptr {slot}" for slot in slots), f"i32 {steps.active()}"], "void")


def _slot(steps: "StepWriter", one: Operand, bits: int, constants: dict[int, str], *, result: bool) -> str:
    if result:
        return steps.result(one, bits, 7)
    if isinstance(one, Immediate):
        if one.bits not in constants:
            if len(constants) == CONSTANTS:
                i = steps.instruction
                raise Unsupported(f"PTX line {i.text_line}: {i.text} names more than {CONSTANTS} constants.")
            constants[one.bits] = steps.slot_of(one, f"i{bits}", len(constants))
        return constants[one.bits]
    if not isinstance(one, Register):
        i = steps.instruction
        raise PtxError(f"PTX line {i.text_line}: {i.text} takes registers.")
    return steps.slot_of(one, f"i{bits}", 0)


def write_matrices(steps: "StepWriter") -> None:
    """ldmatrix and stmatrix."""
    i = steps.instruction
    store = i.name == "stmatrix"
    address, value = (i.sources[0], i.sources[1]) if store else (i.sources[0], i.results[0])
    if not isinstance(address, Address):
        raise PtxError(f"PTX line {i.text_line}: {i.text} takes an address.")
    given, count = items(value), int(i.options["count"][1:])
    check_count(i, "its matrices", len(given), count)
    slots = [steps.slot_of(one, "i32", 0) if store else steps.result(one, 32, 1 + n) for n, one in enumerate(given)]
    slots += [slots[0]] * (4 - count)
    space = steps.space(address)
    where, width = steps.address(address, space)
    native = matrices_function(
        store=store, count=count, transposed="trans" in i.options, space=space, address=width, level=steps.kernel.level
    )
    steps.reach(native, where, address, slots)


def write_transposition(steps: "StepWriter") -> None:
    """movmatrix."""
    i = steps.instruction
    out, a = steps.result(i.results[0], 32, 0), steps.slot_of(i.sources[0], "i32", 1)
    steps.kernel.call(Native("transpose_matrix"), [f"ptr {out}", f"ptr {a}", f"i32 {steps.active()}"], "void")
