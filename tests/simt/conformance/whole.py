"""Whole kernels (tests/simt/kernels), with arguments: what they leave in memory hangs on no order of threads."""

import struct
from pathlib import Path

import numpy as np

from simt.conformance.cases import Case
from simt.conformance.inputs import random_bits

KERNELS = Path(__file__).parents[1] / "kernels"


def reals(seed, *shape):
    """float32 in [-2, 2), on a grid fine enough to round."""
    words = random_bits(seed, int(np.prod(shape))) >> np.uint64(40)
    return (words.astype(np.float32) / np.float32(2**22) - np.float32(2)).reshape(shape)


def whole(seed, count, below, dtype=np.int32):
    return (random_bits(seed, count) % np.uint64(below)).astype(dtype)


def ints(*shape):
    return np.zeros(shape, np.int32)


def _classics():
    yield "doubling", 8, 128, (reals(1, 1024), 1000)
    for kernel, grid, block, n in (
        ("naive_matmul", (5, 20), (16, 4), 77), ("tiled_matmul", (3, 3), (32, 32), 96),
        ("register_tiled_matmul", 1, 256, 128),
    ):  # fmt: skip
        yield kernel, grid, block, (reals(2, n, n), reals(3, n, n), np.zeros((n, n), np.float32), n)
    for kernel in ("naive_transpose", "conflicting_transpose", "padded_transpose"):
        yield kernel, (3, 3), (32, 32), (reals(4, 75, 75), np.zeros((75, 75), np.float32), 75)
    for kernel, each in (
        ("reduce_interleaved", 1),
        ("reduce_strided", 1),
        ("reduce_sequential", 1),
        ("reduce_last_warp", 2),
    ):
        blocks = -(-3000 // (128 * each))
        yield kernel, blocks, 128, (whole(5, 3000, 2000), ints(blocks), 3000), {"dynamic_shared": 512}
    yield "reduce_shuffle", 7, 256, (whole(6, 10007, 2000), ints(1), 10007)
    yield "histogram", 9, 96, (whole(7, 20011, 256, np.uint8), np.zeros(256, np.uint32), 20011)
    yield "look_back_scan", 12, 256, (whole(8, 3000, 100), ints(3000), ints(12), ints(12), 3000)
    yield "spin_lock", 4, 64, (ints(1), ints(1))
    yield "grid_barrier", 12, 64, (ints(1), whole(9, 768, 99), ints(1536), 768)
    yield "collatz", 4, 128, (np.arange(1, 501, dtype=np.int32), ints(500), 500)
    yield "strided_gather", 2, 128, (reals(10, 5003), np.zeros(256, np.float32), 5003, 31)


def _features():
    yield "double_buffer", 1, 128, (reals(11, 5, 128, 4), np.zeros((5, 128, 4), np.float32), 5)
    yield "shuffles", 1, 32, (whole(12, 32, 1000), ints(6 * 32))
    yield "parted_shuffles", 1, 32, (whole(13, 32, 1000), ints(32))
    yield "meeting", 1, 32, (whole(14, 32, 1000), ints(32))
    yield "votes", 1, 32, (whole(15, 32, 8), np.zeros(8 * 32 + 32, np.uint32))
    yield "device_function", 1, 40, (struct.pack("<f4xd3h2x", 1.5, 10.25, 3, -4, 100), np.zeros(40))
    yield "variables", 1, 32, (np.zeros(32, np.float32), ints(4))
    yield "local_array", 1, 64, (whole(16, 64, 1000), ints(64))
    yield "generic_pointers", 1, 32, (whole(17, 32, 1000), ints(32))
    yield "named_barriers", 1, 128, (ints(64),)
    yield "counting_barriers", 1, 70, (whole(18, 70, 100), ints(3, 70))
    half = reals(19, 256).astype(np.float16)
    yield "halves", 1, 32, (half[:64], half[64:128], np.zeros(64, np.float16), whole(20, 64, 0x7000, np.uint16),
                            np.zeros(64, np.uint16))  # fmt: skip
    numbers = reals(21, 128).astype(np.float64) * 1.1
    yield "doubles", 1, 64, (numbers[:64], numbers[64:], np.zeros(64))
    long = random_bits(22, 128).view(np.int64) >> 2
    yield "long_integers", 1, 64, (long[:64], np.abs(long[64:]) + 1, np.zeros(64, np.int64), np.zeros(64, np.uint64))
    yield (
        "atomics",
        3,
        50,
        (ints(4), np.zeros(3, np.uint32), np.zeros(1, np.float32), np.zeros(1), np.zeros(1, np.uint64)),
    )
    yield "ends_early", 1, 64, (ints(64), 40)
    yield "transcendentals", 1, 512, (reals(23, 500), np.zeros((10, 500), np.float32), 500), {"bounded": True}


def whole_cases():
    """Cases without expectations: test_classics.py and test_features.py have these; goldens are recorded of them."""
    for file, kernels in (("classics", _classics), ("features", _features)):
        text = (KERNELS / f"{file}.ptx").read_text()
        for kernel, grid, block, arguments, *more in kernels():
            yield Case(f"kernel {kernel}", (), text, _three(grid), _three(block), arguments, {}, kernel=kernel,
                       **(more[0] if more else {}))  # fmt: skip


def _three(size):
    return (*((size,) if isinstance(size, int) else size), 1, 1)[:3]
