"""Special registers that the machine answers (PTX ISA, "Special Registers").

Exact: those of threads, warps, blocks and the grid. Plausible only: `clock`, `clock64`, `globaltimer` (the host's cycle
counter), `smid` (the block's number modulo the SMs: blocks are not placed), `warpid` (the warp's number in its block).
"""

AXES = tuple(f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz")
CLUSTER = tuple(
    f"{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"
)
SPECIAL = frozenset(
    (
        *AXES,
        *CLUSTER,
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
