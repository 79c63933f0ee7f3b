"""What is known of each instruction that the runtime is called for: said once, so that an event needs a number only."""

from dataclasses import dataclass

from undertorch.simt.codegen.flow import Flow
from undertorch.simt.errors import PtxError
from undertorch.simt.ptx.instructions import Immediate, Instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One instruction that touches memory, meets lanes or may fault."""

    number: int
    instruction: Instruction
    space: str | None
    """`generic`, `global`, `shared`, `local`, `const`, `param`; None where it touches no memory."""
    bytes: int
    """Of one lane."""
    reads: bool
    writes: bool
    atomic: bool
    order: str
    """`weak`, `relaxed`, `acquire`, `release`, `acq_rel`, `volatile`, `sc`."""
    scope: str | None
    """`cta`, `cluster`, `gpu`, `sys`; None of a weak access."""
    proxy: str = "generic"
    """`generic` or `async`."""
    issuer: str = "lane"
    """The execution group that issues it: `lane`, `warp`, `warpgroup`, `block` or `cluster`."""
    completed_by: str = "program order"
    """`program order`, or what completes an asynchronous one: `group`, `bulk group`, `mbarrier`."""


ROW_OF_MATRIX = 16
"""Bytes that a lane gives the address of (PTX ISA, "ldmatrix")."""


def list_sites(flow: Flow) -> dict[int, Site]:
    """Every site of a kernel by the identity of its instruction; a cp.async's read by that identity negated.

    A cp.async is two accesses: its write has the number that the instruction goes by, its read the next one.
    """
    found: dict[int, Site] = {}
    for block in flow.blocks:
        items = [i for part in block.parts for i in part.instructions if part.step]
        items += [block.end] if block.end else []
        for item in items:
            if item.name == "cp.async":
                found[id(item)] = _copy(len(found), item, "shared")
                found[-id(item)] = _copy(len(found), item, "global")
            else:
                found[id(item)] = _site(len(found), item)
    return found


def _copy(number: int, i: Instruction, space: str) -> Site:
    size = i.sources[2]
    if not isinstance(size, Immediate) or size.bits not in {4, 8, 16}:
        raise PtxError(f"PTX line {i.text_line}: {i.text} copies 4, 8 or 16 bytes, said by a constant.")
    return Site(
        number=number,
        instruction=i,
        space=space,
        bytes=size.bits,
        reads=space == "global",
        writes=space == "shared",
        atomic=False,
        order="weak",
        scope=None,
        proxy="async",
        completed_by="group",
    )


def _site(number: int, i: Instruction) -> Site:
    atomic = i.name in {"atom", "red"}
    matrices = i.name in {"ldmatrix", "stmatrix"}
    touches = atomic or matrices or i.name in {"ld", "st"}
    order, scope = _semantics(i, atomic)
    size = ROW_OF_MATRIX if matrices else i.type.bytes * int(i.options.get("vector", "v1")[1:]) if i.types else 0
    return Site(
        number=number,
        instruction=i,
        space=space_of(i) if touches else None,
        bytes=size if touches else 0,
        reads=atomic or i.name in {"ld", "ldmatrix"},
        writes=atomic or i.name in {"st", "stmatrix"},
        atomic=atomic,
        order=order,
        scope=scope,
    )


def _semantics(i: Instruction, atomic: bool) -> tuple[str, str | None]:
    """Order and scope (PTX ISA, "Memory Consistency Model"): membar is fence.sc, a fence without order acq_rel."""
    if i.name == "fence":
        scope = i.options.get("scope") or {"gl": "gpu"}.get(i.options["level"], i.options["level"])
        return i.options.get("order", "sc" if i.options.get("first") == "membar" else "acq_rel"), scope
    order = i.options.get("order", "relaxed" if atomic else "weak")
    if order == "volatile":
        return order, "sys"
    return order, i.options.get("scope") or ("gpu" if order != "weak" else None)


def space_of(i: Instruction) -> str:
    """The state space of a memory instruction, without what `::` adds."""
    return i.options.get("space", "generic").split("::")[0]
