"""What is known of each instruction that the runtime is called for: said once, so that an event needs a number only."""

from dataclasses import dataclass

from undertorch.simt.codegen.flow import Flow
from undertorch.simt.ptx.instructions import Instruction


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


FAULTING = {"trap", "hostcall"}


def list_sites(flow: Flow) -> dict[int, Site]:
    """Every site of a kernel by the identity of its instruction."""
    found: dict[int, Site] = {}
    for block in flow.blocks:
        items = [i for part in block.parts for i in part.instructions if part.step]
        items += [block.end] if block.end else []
        for item in items:
            found[id(item)] = _site(len(found), item)
    return found


def _site(number: int, i: Instruction) -> Site:
    atomic = i.name in {"atom", "red"}
    touches = atomic or i.name in {"ld", "st", "cp.async"}
    order = i.options.get("order", "relaxed" if atomic else "weak")
    scope = i.options.get("scope")
    if order == "volatile":
        scope = "sys"
    elif atomic:
        scope = scope or "gpu"
    vector = int(i.options.get("vector", "v1")[1:])
    return Site(
        number=number,
        instruction=i,
        space=space_of(i) if touches else None,
        bytes=i.type.bytes * vector if touches and i.types else 0,
        reads=atomic or i.name == "ld",
        writes=atomic or i.name == "st",
        order=order,
        scope=scope,
        proxy="async" if i.name == "cp.async" else "generic",
        completed_by="group" if i.name == "cp.async" else "program order",
    )


def space_of(i: Instruction) -> str:
    """The state space of a memory instruction, without what `::` adds."""
    return i.options.get("space", "generic").split("::")[0]
