"""Memory that Python and the native race detector share, declared once."""

import numpy as np

from undertorch.simt.runtime.layout import BARRIERS, EVENT

GO, NEW_BLOCK, ASK, SYNC, ENDED, CROWDED = range(6)
"""What native code returns: rows are used up; a block needs memory; whether two accesses are ordered; a row that
releases, acquires or lets pass on; a block that knew of others ended; the table of pairs is full."""

READS, WRITES, ATOMIC, STRONG, WIDE, RELEASES, ACQUIRES, NC, ASYNC, VOLATILE, IGNORED, WAITS, CAS = (
    1 << n for n in range(13)
)
"""Of an instruction. WIDE: its scope is the GPU or the system. WAITS: of a barrier, its threads wait there. CAS:
not all lanes write."""

MASK_BITS, THREAD_SHIFT, THREAD_BITS, NC_BIT, WRITE_BIT, SITE_SHIFT = 0xF, 4, 0x3FF << 4, 1 << 14, 1 << 15, 16
"""A remembered access is two words: its stamp, and this: bytes of the word, thread, whether it is ld.global.nc, whether
it writes, and the instruction."""
MOST_SITES = 1 << 16
PENDING = 1 << 31
"""Of the stamp of a copy (cp.async) that was issued: until it is known to be completed it is ordered with nothing."""
MESSAGE_SHIFT = 8
"""In a word's last plane: bytes that were written (0-3), bytes whose value is known (4-7), and the number of the
message that a strong write left there."""
EMPTY = 1
"""Of a region: what it holds at first is not to be read."""
RING = 8
"""Groups of cp.async of a thread whose completion is kept."""
PAIRS = 1 << 12
"""Different pairs of instructions that are kept."""

RACE, PARTIAL, NC_WRITE, UNINITIALIZED, PARTED, ENDED_BEFORE, COUNTS, LEFT_OVER, BAD_MASK = range(9)
"""Kinds of pairs. PARTED: threads wait at one barrier in two places; ENDED_BEFORE: threads ended before a barrier;
COUNTS: threads expect different numbers; LEFT_OVER: an arrival that nobody waits for."""
SAME_WARP, SAME_BLOCK, OTHER_BLOCK = range(3)

FACTS = np.dtype(
    [
        ("flags", np.uint32),
        ("bytes", np.uint32),  # of a lane
        ("element", np.uint32),  # of one element of a vector access
        ("line", np.uint32),  # a number for each source line
    ],
    align=True,
)
"""One instruction of the kernel."""

REGION = np.dtype(
    [
        ("base", np.uint64),
        ("bytes", np.uint64),
        ("planes", np.uint64),
        ("stride", np.uint64),  # bytes from plane to plane
        ("flags", np.uint64),
    ],
    align=True,
)
"""One buffer of the launch, with its shadow: 8 planes of 4 bytes for each 4 bytes of the buffer (last write: stamp,
access; two others: stamp, access, twice; value of the last write; what MESSAGE_SHIFT says)."""
PLANES = 8

MEETING = np.dtype(
    [
        ("waiting", np.uint32),  # threads
        ("arrived", np.uint32),  # threads that do not wait
        ("site", np.uint32),  # of who came first
        ("thread", np.uint32),
        ("expected", np.uint32),
        ("came", np.uint32),  # whether anybody did
    ],
    align=True,
)
"""One barrier of a block, in its present phase."""

SLOT = np.dtype(
    [
        ("block", np.uint64),
        ("planes", np.uint64),  # of shared memory
        ("stride", np.uint64),
        ("know", np.uint64),  # threads × threads: the stamp up to which one knows the other
        ("warp_floor", np.uint64),  # up to which all lanes of a warp know each other
        ("fences", np.uint64),  # (stamp, floor, warp floor) × (any scope, gpu) of each thread's last fence
        ("fenced", np.uint64),  # lanes of each warp that fenced, (any scope, gpu)
        ("pending", np.uint64),  # lanes of each warp that read a message and may acquire it by a fence
        ("seen", np.uint64),  # the message that each thread read last
        ("done", np.uint64),  # groups of cp.async that each thread completed
        ("completed", np.uint64),  # when: RING stamps a thread
        ("came", np.uint64),  # when each thread came to each barrier without waiting
        ("waiters", np.uint64),  # lanes of each warp at each barrier
        ("arrivers", np.uint64),
        ("known", np.uint64),  # of each other block the stamp up to which all threads here know all threads there
        ("start", np.uint32),  # the stamp that the block began with
        ("floor", np.uint32),  # up to which all threads of the block know each other
        ("now", np.uint32),
        ("passed", np.uint32),  # whether something was released at `now`: later accesses need a new stamp
        ("exited", np.uint32),
        ("exit_site", np.uint32),
        ("exit_thread", np.uint32),
        ("apart", np.uint32),  # whether `know` holds more than lanes of their own warp
        ("foreign", np.uint32),  # whether a thread acquired anything
        ("meetings", MEETING, (BARRIERS,)),
    ],
    align=True,
)
"""One block that is on the machine. Stamps are counted over the whole launch, and each belongs to one block."""

PAIR = np.dtype(
    [
        ("count", np.uint64),
        ("address", np.uint64),
        ("first_block", np.uint64),
        ("second_block", np.uint64),
        ("used", np.uint32),
        ("kind", np.uint32),
        ("level", np.uint32),
        ("same", np.uint32),  # both write the same value
        ("first", np.uint32),  # sites
        ("second", np.uint32),
        ("first_thread", np.uint32),
        ("second_thread", np.uint32),
        ("shared", np.uint32),
        ("bytes", np.uint32),  # mask
        ("pending", np.uint32),  # a copy that was not waited for
    ],
    align=True,
)
"""Two instructions that a finding is about, how often, and the first example."""

DETECTOR = np.dtype(
    [
        ("rows", np.uint64),
        ("count", np.uint64),
        ("at", np.uint64),  # the row that is looked at
        ("facts", np.uint64),
        ("regions", np.uint64),
        ("slots", np.uint64),
        ("slot_of", np.uint64),  # of each block the number of its slot from 1, 0: none
        ("free", np.uint64),  # numbers of free slots
        ("owner", np.uint64),  # the block of each stamp
        ("pairs", np.uint64),
        ("met", np.uint64),  # lanes of each warp that a barrier let go on, then those that had come
        ("region_count", np.uint32),
        ("free_count", np.uint32),
        ("stamp", np.uint32),  # the last one
        ("threads", np.uint32),  # of a block
        ("warps", np.uint32),
        ("syncs", np.uint32),  # whether the kernel has fences, or accesses that release or acquire
        ("has_nc", np.uint32),
        ("met_all", np.uint32),
        ("reserved", np.uint32),  # first bytes of shared memory that are the system's, and that it sets
        # The access under way.
        ("lane", np.uint32),
        ("word", np.uint32),
        ("planes", np.uint64),
        ("stride", np.uint64),
        ("address", np.uint64),
        ("shared", np.uint32),
        ("empty", np.uint32),
        ("thread", np.uint32),
        ("mask", np.uint32),  # bytes of the word
        ("site", np.uint32),
        ("flags", np.uint32),
        ("element", np.uint32),
        ("value", np.uint32),
        ("valued", np.uint32),
        ("last_region", np.uint32),
        ("sync_lanes", np.uint32),
        ("pair_count", np.uint32),
        # What is asked: is this access, of a thread of a block, known to the thread?
        ("asked", np.uint32),
        ("asked_stamp", np.uint32),
        ("asked_thread", np.uint32),
        ("asked_block", np.uint64),
        ("answers", np.uint32, (4,)),  # of the three remembered accesses: 0 not asked, 1 ordered, 2 not
    ],
    align=True,
)

STRUCTS = {
    "Facts": FACTS,
    "Region": REGION,
    "Meeting": MEETING,
    "Slot": SLOT,
    "Pair": PAIR,
    "Detector": DETECTOR,
    "Event": EVENT,
}
