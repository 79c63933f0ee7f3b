"""Memory that Python, generated code and the native runtime share, declared once: as NumPy dtypes with C's alignment.

All state of a thread lies here, so that a barrier, an error or a pause costs nothing but a return.
"""

import numpy as np

WARP = 32
FULL = 0xFFFFFFFF

# Program counters above this mean that the lane does not run; the low bits say where it goes on.
PARKED = 0x40000000
"""At an instruction that waits for other lanes of its mask."""
WAITING = 0x50000000
"""At a barrier of the block."""
EXITED = 0x7FFFFFFF
PC_MASK = 0x0FFFFFFF

# What native code returns.
GO_ON, DONE, BLOCKED, OUT_OF_FUEL, FAULT, NEED_MASKED, STUCK = range(7)

# What native code asks the host for.
EVENTS_FULL, PRINT, ASSERT, ALLOCATE, RELEASE = range(5)

FUEL = 1 << 14
"""Backward branches of a warp's turn."""
POLL_FUEL = 1 << 8
"""What a load that is not weak takes of it: in a loop it asks for what another warp has to write first."""
ROUNDS = 1 << 14
"""Rounds of a block's warps before native code returns."""
HUNGRY_TURNS = 256
"""Of them, turns that used up their fuel."""
NOBODY = 0xFFFFFFFF
LEADER_STEPS = 512
"""Groups of lanes that a leader's turn lasts: long enough for a critical section."""

SCATTERED, NEIGHBOURS, UNIFORM, REFUSED = range(4)
LESSONS = 64
"""A memory instruction learns the first so many patterns of addresses that it meets, then each so many-th."""

FUSED, INTEGER, SATURATED, XOR_BITS, AND_BITS, SUMS = range(6)
"""How mma adds its products (runtime/native/products.py)."""

HOST, SHARED, LOCAL, NOWHERE = range(4)
"""What an address is: the host's, or an offset into the block's shared memory, or into the thread's local memory."""

FAULTS = ("none", "out-of-bounds", "misaligned", "trap", "assert", "host", "barrier-number", "barrier-count")

BARRIERS = 16
CAME = 1 << 16
"""More than threads of a block."""

RESERVED = 1024
"""Bytes of a block's shared memory that are the system's from sm_80 on (CUDA C++ Programming Guide, "Compute Capability
8.x"). They come first, as ptxas lays them out for sm_90, and only in kernels that ask where they are."""
RESERVED_SECOND = 512
"""Where the second of two parts starts (`reserved_smem_offset_1`); the driver chooses it on a GPU. Cooperative groups
keep up to 288 bytes there (cooperative_groups/details/memory.h)."""

BARRIER = np.dtype(
    [
        ("arrived", np.int32),
        ("expected", np.int32),  # threads; 0: all of the block that still run
        ("phase", np.int32),
        ("count", np.int32),  # of threads whose predicate was true (bar.red)
        ("absent", np.int32),  # of `arrived`, lanes of partial warps that no thread has
        ("pending_bytes", np.int64),  # transactions that an mbarrier waits for
    ],
    align=True,
)

BUFFER = np.dtype([("base", np.uint64), ("bytes", np.uint64), ("virtual", np.uint64), ("flags", np.uint64)], align=True)
"""`virtual`: where cudaMalloc would have put it (512-aligned); sectors are counted there."""

READ_ONLY = 1

SITE = np.dtype(
    [
        # What the last pattern of addresses came to: most accesses repeat it, moved.
        ("pattern", np.uint64, (WARP,)),  # less the first lane's address
        ("base", np.uint64),  # the buffer that was found last
        ("bytes", np.uint64),
        ("delta", np.uint64),  # virtual minus host address
        ("requests", np.uint64),
        ("lanes", np.uint64),
        ("units", np.uint64),  # sectors or wavefronts
        ("ideal", np.uint64),
        ("pattern_mask", np.int32),
        ("pattern_phase", np.int32),  # the first address within a sector, or a word
        ("pattern_units", np.uint64),
        ("pattern_ideal", np.uint64),
        ("low", np.uint64),  # the least first address, from its space's start, that such an access may have
        ("room", np.uint64),  # how many there are
        ("shape", np.int32),  # SCATTERED, NEIGHBOURS or UNIFORM
        ("misses", np.int32),  # accesses of another pattern than the last
        ("padding", np.uint8, (24,)),
    ],
    align=True,
)
"""One memory instruction of the kernel. A whole number of cache lines: vectors of addresses never straddle two."""

# Kinds of events: events.EventKind says what each means.
ACCESS, VALUES, ISSUED, COMMITTED, COMPLETED, ARRIVED, OPENED, WARP_SYNC, FENCE, EXIT, MEMBERS = range(11)

EVENT_ROWS = 8
"""The most rows that belong together."""

EVENT = np.dtype(
    [
        ("addresses", np.uint64, (WARP,)),
        ("block", np.uint64),  # linear
        ("site", np.uint32),
        ("warp", np.uint32),
        ("mask", np.uint32),  # of lanes
        ("phase", np.uint32),  # of barrier 0 of the block; of a barrier's own events, its own
        ("kind", np.uint32),
        ("space", np.uint32),  # HOST, SHARED or LOCAL
        ("bytes", np.uint32),  # of a lane
        ("number", np.int32),  # of a barrier, a group of cp.async, or 8 bytes of a value
        (
            "count",
            np.uint32,
        ),  # of threads that a barrier expects (0: the block's), or had; lanes of a cas that exchanged
        ("padding", np.uint8, (20,)),
    ],
    align=True,
)
assert SITE.itemsize % 64 == EVENT.itemsize % 64 == 0
"""What happened; what the site is (order, scope, proxy, source line) stands once in the kernel's list of sites."""

CONTEXT = np.dtype(
    [
        ("params", np.uint64),
        ("symbols", np.uint64),
        ("buffers", np.uint64),
        ("sites", np.uint64),
        ("block_counts", np.uint64),
        ("full", np.uint64),
        ("masked", np.uint64),
        ("host", np.uint64),
        ("block", np.uint64),
        ("workspace", np.uint64),  # of a cooperative launch; 0: it is none
        ("events", np.uint64),
        ("event_count", np.uint64),
        ("event_capacity", np.uint64),
        ("next_block", np.uint64),
        ("end_block", np.uint64),
        ("fault_address", np.uint64),
        ("buffer_count", np.int32),
        ("fault", np.int32),
        ("fault_lane", np.int32),
        ("fault_site", np.int32),
        ("fault_pc", np.int32),
        ("fault_warp", np.int32),
        ("fuel", np.int32),
        ("fuel_slice", np.int32),
        ("warps", np.int32),
        ("threads", np.int32),
        ("warp_bytes", np.int32),
        ("shared_bytes", np.int32),
        ("local_bytes", np.int32),  # of a thread
        ("dynamic_shared", np.int32),
        ("user_shared", np.int32),  # static and dynamic, without what the system has
        ("sms", np.int32),
        ("grid", np.int32, (3,)),
        ("ntid", np.int32, (3,)),
        ("order", np.int32),  # of a block's warps: 0 ascending, else a seed
        ("progress", np.int32),  # warps that ended and barriers that opened
        ("level", np.int32),  # of instrumentation: 0 none, 1 counters, 2 events too
    ],
    align=True,
)
"""Of one host thread."""

BLOCK = np.dtype(
    [
        ("shared", np.uint64),
        ("warps", np.uint64),
        ("linear", np.uint64),
        ("ctaid", np.int32, (3,)),
        ("exited", np.int32),  # threads
        ("done", np.int32),  # warps
        ("rank", np.int32),  # in its cluster
        ("barriers", BARRIER, (BARRIERS,)),
    ],
    align=True,
)

WARP_STATE = np.dtype(
    [
        ("pc", np.int32, (WARP,)),
        ("tid_x", np.int32, (WARP,)),
        ("tid_y", np.int32, (WARP,)),
        ("tid_z", np.int32, (WARP,)),
        ("barrier", np.int32, (WARP,)),  # that the lane waits at; then what its bar.red came to: CAME × threads + true
        ("meeting", np.int32, (WARP,)),  # the mask that the lane waits with at a bar.warp.sync; 0: at none
        ("met", np.int32),  # lanes that waited at a bar.warp.sync whose others have come
        ("scratch", np.uint64, (8 * WARP,)),
        ("block", np.uint64),
        ("local", np.uint64),
        ("queue", np.uint64),  # of cp.async
        ("queued", np.int32),
        ("groups", np.int32, (WARP,)),  # of cp.async, committed by each lane
        ("index", np.int32),
        ("alive", np.int32),  # lanes that exist
        ("done", np.int32),
        ("leader", np.int32),  # the lane whose group runs out of turn; -1: none
        ("patience", np.int32),
        ("tried", np.uint64),  # how the lanes stood when the parked ones last tried
    ],
    align=True,
)
"""Of one warp; its register slots follow at SLOTS."""

COPY = np.dtype(
    [
        ("to", np.uint64),
        ("source", np.uint64),
        ("bytes", np.int32),
        ("fill", np.int32),
        ("lane", np.int32),
        ("group", np.int32),
    ],
    align=True,
)
"""One thread's cp.async on its way."""

QUEUE = 4096
"""Copies that one warp can have on their way."""

SLOTS = (WARP_STATE.itemsize + 63) // 64 * 64

STRUCTS = {
    "Context": CONTEXT,
    "Block": BLOCK,
    "Warp": WARP_STATE,
    "Site": SITE,
    "Buffer": BUFFER,
    "Barrier": BARRIER,
    "Event": EVENT,
    "Copy": COPY,
}


def field_offset(struct: np.dtype[np.void], name: str) -> int:
    """Bytes from the start of a struct to a field."""
    assert struct.fields is not None
    return int(struct.fields[name][1])
