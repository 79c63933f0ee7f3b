"""What an instruction has to keep to beyond its form: constants that fit, vectors of their size, parameters within."""

from collections.abc import Mapping
from dataclasses import replace

from undertorch.simt.errors import PtxError
from undertorch.simt.ptx.constants import as_type
from undertorch.simt.ptx.instructions import Address, Group, Immediate, Instruction, Operand, Symbol
from undertorch.simt.ptx.types import Type

VECTORS = {"v2": 2, "v4": 4, "v8": 8}
MOST = 16
"""Bytes of a vector (PTX ISA, "Vectors"); 32 from sm_100 on, which is not here."""
OTHERWISE = {"createpolicy", "wmma", "wmma.load", "wmma.store", "mma", "bra", "call", "cp.async"}
"""Instructions whose constants are not of their type."""
SELECTED = {"selp", "setp", "set", "set2"}
"""Their third source is a predicate."""


def checked(i: Instruction, parameters: Mapping[str, int], inputs: frozenset[str]) -> Instruction:
    """The instruction with constants of its types.

    `parameters`: bytes of `.param` variables by name; `inputs`: those that the function was called with. Raises
    PtxError where it is not PTX.
    """
    if i.name in {"ld", "st"}:
        _check_vector(i)
        _check_parameter(i, parameters, inputs)
    if not i.types or i.converge or i.name in OTHERWISE:
        return i
    sources = tuple(_typed(operand, _type(i, number), i) for number, operand in enumerate(i.sources))
    return i if sources == i.sources else replace(i, sources=sources)


def _type(i: Instruction, number: int) -> Type | None:
    if i.name in SELECTED and number == 2:
        return None
    if i.name == "slct":
        return i.types[1] if number == 2 else i.types[0]
    return i.types[-1]


def _typed(operand: Operand, type: Type | None, i: Instruction) -> Operand:
    if type is None:
        return operand
    if isinstance(operand, Immediate):
        return as_type(operand, type, i.text_line)
    if isinstance(operand, Group) and i.name == "st":
        return Group(tuple(_typed(item, type, i) for item in operand.items))
    return operand


def _check_vector(i: Instruction) -> None:
    """A vector access has as many registers in braces."""
    wanted = VECTORS.get(i.options.get("vector", ""), 1)
    given = i.results[0] if i.name == "ld" else i.sources[1]
    count = len(given.items) if isinstance(given, Group) else 1
    if count != wanted or (wanted > 1 and not isinstance(given, Group)):
        raise PtxError(f"PTX line {i.text_line}: {i.text} moves {wanted} elements, and {count} are named.")
    if wanted * i.type.bytes > MOST:
        raise PtxError(f"PTX line {i.text_line}: {i.text} moves more than {MOST} bytes a thread.")


def _check_parameter(i: Instruction, parameters: Mapping[str, int], inputs: frozenset[str]) -> None:
    address = i.sources[0]
    assert isinstance(address, Address)
    if not i.options.get("space", "").startswith("param") or not isinstance(address.base, Symbol):
        return
    name = address.base.name
    if name not in parameters:
        raise PtxError(f"PTX line {i.text_line}: {name} is no parameter here ({i.text}).")
    if i.name == "st" and name in inputs:
        raise PtxError(f"PTX line {i.text_line}: {name} is an input of the function, and not written to ({i.text}).")
    size = i.type.bytes * VECTORS.get(i.options.get("vector", ""), 1)
    if address.offset < 0 or address.offset + size > parameters[name]:
        raise PtxError(
            f"PTX line {i.text_line}: {i.text} reaches {size} bytes at {address.offset} of {name}, which has "
            f"{parameters[name]}."
        )
    if address.offset % i.type.bytes:
        raise PtxError(f"PTX line {i.text_line}: {i.text} is misaligned: {address.offset} is no multiple of {size}.")
