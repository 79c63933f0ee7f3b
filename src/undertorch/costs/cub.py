"""Launches of CUB's device-wide algorithms, which PyTorch calls for sorting, scanning and picking out unique elements.

Tile sizes are those of CCCL's tuning for compute capability 9.0 (cub/device/dispatch/tuning), as recorded on an H200 in
tests/golden; other GPUs have other tunings, of which these are the nearest known.
"""

from undertorch.costs.building import ceil_div, memset, pytorch
from undertorch.records import Gpu, Kernel, Kind

LIBRARY = "CUB"

RADIX_BITS = 8
"""Bits of a key that one pass of the radix sort orders."""

DIGITS = 1 << RADIX_BITS

ONESWEEP_THREADS = 384
ONESWEEP_ITEMS = {(8, 8): 12, (4, 8): 14, (8, 0): 15}
"""Elements a thread takes in one pass, by bytes of key and value; these were recorded."""

ONESWEEP_SHARED = {(8, 8): 38912, (4, 8): 45056, (8, 0): 48128}

NOMINAL_ITEMS = 23
"""Elements of 4 bytes a thread takes where nothing was recorded: the tuning scales by the larger of key and value."""

HISTOGRAM_THREADS = 128
HISTOGRAM_REGISTERS = {8: 72, 4: 32}
"""Registers of the histogram's kernel, by bytes of the key; they decide how many of its blocks an SM holds."""

SINGLE_TILE_THREADS = 256
SINGLE_TILE_NOMINAL_ITEMS = 19
"""Elements of 4 bytes that a thread takes where one block sorts all (SingleTilePolicy)."""

UNIQUE_TILE = 640 * 7
UNIQUE_THREADS = 640

SCAN_THREADS = 128
SCAN_NOMINAL_ITEMS = 15
"""Elements of 4 bytes that a thread of the scan takes; larger ones in proportion."""

SCAN_BY_KEY_THREADS = 288
SCAN_BY_KEY_TILE = 288 * 14

REDUCE_THREADS = 256
REDUCE_TILE = 256 * 16
"""Integers of 4 bytes, which smaller elements are turned into as they are read (tuning_reduce.cuh, since Pascal)."""
REDUCE_SUBSCRIPTION = 5
"""Times over that the resident blocks may be launched (CUB_SUBSCRIPTION_FACTOR of util_arch.cuh)."""
REDUCE_SHARED = 44

SELECT_THREADS = 384
SELECT_TILE = 384 * 11
"""Of 8-byte items (recorded)."""
SELECT_SHARED = 33792

INIT_THREADS = 128
"""Threads of the kernels that set up tile states, one thread a tile."""


def radix_sort(
    count: int, gpu: Gpu, *, key_bytes: int, value_bytes: int, bits: int | None = None
) -> tuple[Kernel, ...]:
    """cub::DeviceRadixSort of `count` pairs (or keys: value_bytes 0) by their lowest `bits`; None: by all of them."""
    if count == 0:
        return ()
    widest = max(key_bytes, value_bytes, 4)
    pair = key_bytes + value_bytes
    if count <= SINGLE_TILE_THREADS * max(1, SINGLE_TILE_NOMINAL_ITEMS * 4 // widest):
        return (_single_tile(count, pair),)
    passes = ceil_div(key_bytes * 8 if bits is None else bits, RADIX_BITS)
    items = ONESWEEP_ITEMS.get((key_bytes, value_bytes), max(1, NOMINAL_ITEMS * 4 // widest))
    blocks = ceil_div(count, ONESWEEP_THREADS * items)
    onesweep = pytorch(
        "DeviceRadixSortOnesweepKernel",
        Kind.SORT,
        blocks,
        ONESWEEP_THREADS,
        read=count * pair,
        written=count * pair,
        flops=0,
        registers=80,
        shared=ONESWEEP_SHARED.get((key_bytes, value_bytes)),
        library=LIBRARY,
    )
    sweeps = (memset(blocks * DIGITS * 4), onesweep) * passes
    return (memset(passes * 4), memset(passes * DIGITS * 8), *_digit_offsets(count, gpu, key_bytes, passes), *sweeps)


def unique_by_key(count: int, key_bytes: int, value_bytes: int) -> tuple[Kernel, ...]:
    """cub::DeviceSelect::UniqueByKey. What it writes depends on the values; counted as if every key were unique."""
    tiles = ceil_div(count, UNIQUE_TILE)
    return (
        _init("DeviceCompactInitKernel", tiles),
        pytorch(
            "DeviceUniqueByKeySweepKernel",
            Kind.SORT,
            tiles,
            UNIQUE_THREADS,
            read=count * key_bytes,
            written=count * value_bytes,
            flops=0,
            registers=48,
            shared=35840,
            library=LIBRARY,
            note="Counted as if every key were unique.",
        ),
    )


def count(elements: int, gpu: Gpu, *, item_bytes: int) -> tuple[Kernel, ...]:
    """cub::DeviceReduce::Sum of flags as int: one block where one tile holds all, else a second launch adds the sums.

    FLOPs: none, as of all integers here.
    """
    total = 4
    if elements <= REDUCE_TILE:
        return (_reduced("DeviceReduceSingleTileKernel", 1, elements * item_bytes, total, 29),)
    resident = gpu.sms * (gpu.max_threads_per_sm // REDUCE_THREADS) * REDUCE_SUBSCRIPTION
    blocks = min(ceil_div(elements, REDUCE_TILE), resident)
    return (
        _reduced("DeviceReduceKernel", blocks, elements * item_bytes, blocks * total, 30),
        _reduced("DeviceReduceSingleTileKernel", 1, blocks * total, total, 32),
    )


def select_flagged(elements: int, selected: int, *, flag_bytes: int, item_bytes: int) -> tuple[Kernel, ...]:
    """cub::DeviceSelect::Flagged of numbers that are counted and not read: reads flags, writes what they select."""
    tiles = ceil_div(elements, SELECT_TILE)
    setting_up = _init("DeviceCompactInitKernel", tiles)
    if elements == 0:
        return (setting_up,)
    sweep = pytorch(
        "DeviceSelectSweepKernel",
        Kind.SORT,
        tiles,
        SELECT_THREADS,
        read=elements * flag_bytes,
        written=selected * item_bytes,
        flops=0,
        registers=40,
        shared=SELECT_SHARED,
        library=LIBRARY,
    )
    return setting_up, sweep


def scan(count: int, item_bytes: int, flops: int) -> tuple[Kernel, ...]:
    """cub::DeviceScan over `count` elements, which reads and writes each once."""
    if count == 0:
        return ()
    tiles = ceil_div(count, SCAN_THREADS * max(1, SCAN_NOMINAL_ITEMS * 4 // max(item_bytes, 4)))
    return (
        _init("DeviceScanInitKernel", tiles),
        pytorch(
            "DeviceScanKernel",
            Kind.SCAN,
            tiles,
            SCAN_THREADS,
            read=count * item_bytes,
            written=count * item_bytes,
            flops=flops,
            registers={8: 47, 4: 48}.get(item_bytes),
            shared={8: 7184, 4: 7696}.get(item_bytes),
            library=LIBRARY,
        ),
    )


def scan_by_key(count: int, item_bytes: int) -> tuple[Kernel, ...]:
    """cub::DeviceScan::InclusiveSumByKey with keys that are computed and not read."""
    tiles = ceil_div(count, SCAN_BY_KEY_TILE)
    return (
        _init("DeviceScanByKeyInitKernel", tiles),
        pytorch(
            "DeviceScanByKeyKernel",
            Kind.SCAN,
            tiles,
            SCAN_BY_KEY_THREADS,
            read=count * item_bytes,
            written=count * item_bytes,
            flops=0,
            registers=55,
            shared=16144,
            library=LIBRARY,
        ),
    )


def _single_tile(count: int, pair_bytes: int) -> Kernel:
    return pytorch(
        "DeviceRadixSortSingleTileKernel",
        Kind.SORT,
        1,
        SINGLE_TILE_THREADS,
        read=count * pair_bytes,
        written=count * pair_bytes,
        flops=0,
        registers=109,
        shared=33856,
        library=LIBRARY,
    )


def _digit_offsets(count: int, gpu: Gpu, key_bytes: int, passes: int) -> tuple[Kernel, Kernel]:
    """Counts the digits of all passes at once, then turns counts into offsets: one block a pass."""
    registers = HISTOGRAM_REGISTERS.get(key_bytes, HISTOGRAM_REGISTERS[4])
    by_registers = gpu.registers_per_sm // (registers * HISTOGRAM_THREADS)
    blocks = gpu.sms * min(by_registers, gpu.max_threads_per_sm // HISTOGRAM_THREADS)
    counts = passes * DIGITS * 8
    return (
        pytorch(
            "DeviceRadixSortHistogramKernel",
            Kind.SORT,
            blocks,
            HISTOGRAM_THREADS,
            read=count * key_bytes,
            written=counts,
            flops=0,
            registers=registers,
            shared={8: 8192, 4: 4096}.get(key_bytes),
            library=LIBRARY,
        ),
        pytorch(
            "DeviceRadixSortExclusiveSumKernel",
            Kind.SORT,
            passes,
            DIGITS,
            read=counts,
            written=counts,
            flops=0,
            registers=32,
            shared=2336,
            library=LIBRARY,
        ),
    )


def _reduced(name: str, blocks: int, read: int, written: int, registers: int) -> Kernel:
    return pytorch(
        name,
        Kind.REDUCTION,
        blocks,
        REDUCE_THREADS,
        read=read,
        written=written,
        flops=0,
        registers=registers,
        shared=REDUCE_SHARED,
        library=LIBRARY,
    )


def _init(name: str, tiles: int) -> Kernel:
    return pytorch(
        name,
        Kind.SCAN,
        max(1, ceil_div(tiles, INIT_THREADS)),
        INIT_THREADS,
        read=0,
        written=tiles * 16,  # one tile state: a status and a value
        flops=0,
        registers=16,
        shared=0,
        library=LIBRARY,
    )
