"""Triton's replicas: where a program has more threads than a tile has elements, several hold the same one.

Each of them loads it and computes with it; to global memory one of them stores, to the shared memory that is the
compiler's all store the same. By the letter these are races; nobody wrote them, nobody can mend them, and no result
depends on them: what a replica loads too late goes nowhere.
"""

from typing import TYPE_CHECKING

from undertorch.checks import layout
from undertorch.checks.told import Told
from undertorch.simt.codegen.sites import Site
from undertorch.simt.ptx.instructions import Address

if TYPE_CHECKING:
    import numpy as np


def is_of_replicas(told: Told, pair: "np.void") -> bool:
    """Whether a race in a Triton kernel is between replicas: a store of the same value to shared memory; or a load and
    a store of one program at one address (the same register, so the same element of the tile in both threads) where no
    two threads store to one place. Indices that repeat within a tile do the latter, and are a lost update."""
    if bool(pair["same"]) and bool(pair["shared"]):
        return True
    if int(pair["level"]) == layout.OTHER_BLOCK or bool(pair["shared"]):
        return False
    numbers = [int(pair["first"]), int(pair["second"])]
    stores = [number for number in numbers if told.flags[number] & layout.WRITES]
    if len(stores) != 1 or any(told.flags[number] & layout.ATOMIC for number in numbers):
        return False
    first, second = (address_of(told.site(number)) for number in numbers)
    return first is not None and first == second and not _stored_twice(told, stores[0])


def address_of(site: Site) -> Address | None:
    """The address operand of a load or store."""
    operands = (*site.instruction.sources, *site.instruction.results)
    return next((operand for operand in operands if isinstance(operand, Address)), None)


def _stored_twice(told: Told, store: int) -> bool:
    """Whether two threads of a program race with each other at a store."""
    return any(
        int(pair["kind"]) == layout.RACE
        and int(pair["first"]) == int(pair["second"]) == store
        and int(pair["level"]) != layout.OTHER_BLOCK
        for pair in told.pairs
    )
