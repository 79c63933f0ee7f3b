"""What a kernel of Inductor's moves and computes, out of the loops that it is written from, kept in its source.

Each distinct byte counts once, as in the costs of ATen's ops. Of an index that is itself loaded (an embedding) as many
elements count as the loop has, at most the whole buffer: for values that nobody knows, the most.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from undertorch.steps.record.patching import put

ONCE = frozenset(
    (
        *("add", "sub", "mul", "truediv", "div_rn", "reciprocal", "square", "sqrt", "rsqrt", "pow", "exp", "exp2"),
        *("expm1", "log", "log1p", "log2", "log10", "erf", "erfc", "tanh", "sigmoid", "sin", "cos", "tan", "reduction"),
    )
)
"""Operations of Inductor's loops (torch/_inductor/ops_handler.py) that are one FLOP. Comparisons, choices, casts and
signs are none."""
TWICE = frozenset(("fma",))
WELFORD = 5
"""Of an element that is taken into a running mean and variance: subtract, multiply-add, subtract, multiply-add."""

MARK = "# undertorch: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Of one launch."""

    read: int
    """Bytes."""
    written: int
    flops: int | None
    """None: not known."""


def follow() -> None:
    """Has Inductor write into the source of each kernel what it moves. Call once."""
    from torch._inductor.codegen.triton import TritonKernel, TritonScheduling
    from torch._inductor.codegen.triton_combo_kernel import ComboKernel

    for kind in (TritonKernel, ComboKernel):
        write = kind.codegen_kernel

        def written(kernel: Any, *given: Any, _write: Any = write, **named: Any) -> str:
            source: str = _write(kernel, *given, **named)
            found = _of_loops(getattr(kernel, "sub_kernels", [kernel]))
            return f"{source.rstrip()}\n{MARK}{json.dumps(found)}\n"

        put(kind, "codegen_kernel", written)
    define: Any = TritonScheduling.define_kernel

    def defined(scheduling: Any, source: str, nodes: Any, kernel: Any) -> Any:
        if MARK not in source:
            source = f"{source.rstrip()}\n{MARK}{json.dumps(_of_template(nodes, kernel))}\n"
        return define(scheduling, source, nodes, kernel)

    put(TritonScheduling, "define_kernel", defined)


def kept(source: str) -> Moved | None:
    """What stands in a kernel's source; None where nothing does."""
    found = re.search(rf"^\s*{MARK}(.*)$", source, re.MULTILINE)
    return None if found is None else Moved(**json.loads(found[1]))


def _of_loops(kernels: Iterable[Any]) -> dict[str, int]:
    read = written = flops = 0
    for kernel in kernels:
        nodes = list(kernel.features.scheduler_nodes())
        inner = {dependency.name for node in nodes for dependency in node.read_writes.writes}
        read += _bytes((node, one) for node in nodes for one in node.read_writes.reads if one.name not in inner)
        written += _bytes(
            (node, one) for node in nodes for one in node.read_writes.writes if not _removed(kernel, one.name)
        )
        flops += sum(_size(node) * _flops(node) for node in nodes)
    return {"read": read, "written": written, "flops": flops}


def _of_template(nodes: Iterable[Any], kernel: Any) -> dict[str, int | None]:
    """Of a kernel that is written by hand for the most part (flex_attention): all of its buffers, once, and what torch
    counts for the op (torch/utils/flop_counter.py; 2.11 counts none of flex_attention), where the pairs that a mask
    leaves out count too.
    """
    from torch._inductor.fx_utils import count_flops_fx
    from torch._inductor.utils import get_dtype_size
    from torch._inductor.virtualized import V

    def size(names: Iterable[str]) -> int:
        return sum(_hint(V.graph.get_numel(name)) * get_dtype_size(V.graph.get_dtype(name)) for name in names)

    origins = {origin for node in nodes for origin in getattr(node.node, "origins", ())}
    counts = [int(count) for origin in origins if (count := count_flops_fx(origin)) is not None]
    read = [
        name for name in kernel.args.input_buffers if name in V.graph.name_to_buffer or name in V.graph.graph_inputs
    ]
    written = [name for name in kernel.args.output_buffers if not _removed(kernel, name)]
    return {"read": size(read), "written": size(written), "flops": max(counts, default=None)}


def _bytes(accesses: Iterable[tuple[Any, Any]]) -> int:
    """Of a buffer's accesses those that differ add up, to the whole of it at most."""
    from torch._inductor.dependencies import MemoryDep, WeakDep
    from torch._inductor.utils import get_dtype_size
    from torch._inductor.virtualized import V

    elements: dict[str, dict[Any, int]] = defaultdict(dict)
    for node, access in accesses:
        if isinstance(access, MemoryDep):
            elements[access.name][access.index] = min(_hint(access.get_numel()), _size(node))
        elif not isinstance(access, WeakDep):  # the whole buffer
            elements[access.name][None] = _hint(access.get_numel())
    total = 0
    for name, found in elements.items():
        whole = _hint(V.graph.get_numel(name))
        total += min(sum(found.values()), whole) * get_dtype_size(V.graph.get_dtype(name))
    return total


def _removed(kernel: Any, name: str) -> bool:
    """Whether a buffer never leaves the kernel."""
    from torch._inductor.virtualized import V

    homes = (home for owner in (kernel, V.graph) for home in (owner.removed_buffers, owner.inplaced_to_remove))
    return any(name in home for home in homes)


def _size(node: Any) -> int:
    """Turns of a node's loops."""
    turns = 1
    for ranges in node.get_ranges():
        for size in ranges:
            turns *= _hint(size)
    return turns


def _hint(size: Any) -> int:
    from torch._inductor.virtualized import V

    return int(V.graph.sizevars.optimization_hint(size, fallback=0))


def _flops(node: Any) -> int:
    """Of a turn."""
    counts = node._body.op_counts
    flops: int = sum(counts.get(name, 0) for name in ONCE) + 2 * sum(counts.get(name, 0) for name in TWICE)
    if str(node.node.get_reduction_type() or "").startswith("welford"):
        flops += (WELFORD - 1) * counts.get("reduction", 0)
    return flops
