"""Which of a kernel's loops wait for others, and which only compute."""

from undertorch.simt.codegen.flow import Block, Flow, following
from undertorch.simt.ptx.instructions import Instruction, Sink


def computing(flow: Flow) -> frozenset[int]:
    """Blocks of loops that ask memory for nothing that others write: they end by themselves, or never do.

    What asks is a load that is not weak (compilers take a weak one out of a loop that waits), and an atomic operation
    whose result is used.
    """
    blocks = flow.blocks
    found: set[int] = set()
    for loop in _loops([following(block, blocks) for block in blocks]):
        if not any(_asks(i) for number in loop for i in _instructions(blocks[number])):
            found |= loop
    return frozenset(found)


def waiting(flow: Flow) -> frozenset[int]:
    """Blocks of the other loops: what they run depends on when others come."""
    loops = _loops([following(block, flow.blocks) for block in flow.blocks])
    return frozenset[int]().union(*loops) - computing(flow)


def _instructions(block: Block) -> list[Instruction]:
    return [i for part in block.parts for i in part.instructions]


def _asks(i: Instruction) -> bool:
    if i.name == "ld":
        return i.options.get("order", "weak") != "weak"
    return i.name == "atom" and not all(isinstance(result, Sink) for result in i.results)


def _loops(after: list[list[int]]) -> list[set[int]]:
    """Strongly connected components with a cycle (Kosaraju: orders of a graph, and of it reversed)."""
    before: list[list[int]] = [[] for _ in after]
    for number, targets in enumerate(after):
        for target in targets:
            before[target].append(number)
    seen: set[int] = set()
    order = [number for start in range(len(after)) for number in _postorder(start, after, seen)]
    seen, found = set(), []
    for start in reversed(order):
        members = set(_postorder(start, before, seen))
        if len(members) > 1 or (start in after[start] and members):
            found.append(members)
    return found


def _postorder(start: int, edges: list[list[int]], seen: set[int]) -> list[int]:
    """What can be reached from `start` and was not seen, each behind what it leads to."""
    if start in seen:
        return []
    seen.add(start)
    out, stack = [], [(start, iter(edges[start]))]
    while stack:
        number, left = stack[-1]
        target = next((n for n in left if n not in seen), None)
        if target is None:
            out.append(number)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(edges[target])))
    return out
