"""Special registers that the machine answers (PTX ISA, "Special Registers").

Exact: those of threads, warps, blocks and the grid. Plausible only: `clock`, `clock64`, `globaltimer` (the host's cycle
counter), `smid` (the block's number modulo the SMs: blocks are not placed), `warpid` (the warp's number in its block).

Of `envreg`, which is the driver's, those two in which cooperative groups look for a cooperative launch's workspace: a
64-bit address, its high half in `envreg1`.
"""

from undertorch.simt.ptx.instructions import Label, Module, Register, Special, Symbol

AXES = tuple(f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz")
CLUSTER = tuple(
    f"{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"
)
WORKSPACE = ("envreg1", "envreg2")
RESERVED = tuple(f"reserved_smem_offset_{name}" for name in ("begin", "end", "cap", "0", "1"))
SPECIAL = frozenset(
    (
        *AXES,
        *CLUSTER,
        *WORKSPACE,
        *RESERVED,
        "cluster_ctarank",
        "cluster_nctarank",
        "laneid",
        "warpid",
        "nwarpid",
        "smid",
        "nsmid",
        "gridid",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "dynamic_smem_size",
        "total_smem_size",
    )
)


def special_registers(module: Module, kernel: str) -> frozenset[str]:
    """Those that a kernel reads, or a function that it names or may reach through a pointer."""
    found: set[str] = set()
    seen, names = {kernel}, [kernel]
    while names:
        for item in module.functions[names.pop()].body:
            if isinstance(item, Label):
                continue
            found |= {operand.name for operand in item.sources if isinstance(operand, Special)}
            named = {operand.name for operand in item.sources if isinstance(operand, Symbol)}
            if item.name == "call" and isinstance(item.sources[1], Register):
                named |= set(module.pointed_to)
            fresh = {name for name in named - seen if name in module.functions}
            seen |= fresh
            names += fresh
    return frozenset(found)
