"""The kernels do what is counted for them: compiled, and run by the GPU in software."""

import numpy as np
import pytest

import undertorch
from undertorch.gpus.calibrating.sources import SOURCES


@pytest.fixture(scope="module")
def random():
    return np.random.default_rng(20)


@pytest.mark.parametrize("loads", [1, 2, 4, 8])
def test_a_copy_copies_each_byte(random, loads):
    """Three blocks of 256 threads, 16 bytes a load."""
    source = random.integers(0, 2**32, 3 * 256 * loads * 4, dtype=np.uint32)
    target = np.zeros_like(source)
    undertorch.cuda(SOURCES["copy"])[f"copy_{loads}"][3, 256](target, source)
    assert (target == source).all()


@pytest.mark.parametrize("loads", [1, 2, 4, 8])
def test_a_write_writes_each_vector(loads):
    target = np.zeros(3 * 256 * loads * 4, np.uint32)
    undertorch.cuda(SOURCES["write"])[f"write_{loads}"][3, 256](target, target)
    assert (target.reshape(-1, 4) == [1, 2, 3, 4]).all()


@pytest.mark.parametrize("loads", [1, 2, 4, 8])
def test_reading_writes_nothing_and_reads_each_byte_once(random, loads):
    source = random.integers(0, 2**32, 3 * 256 * loads * 4, dtype=np.uint32)
    target = np.zeros(4, np.uint32)
    sectors = counted("read", f"read_{loads}", 3, target, source)
    assert not target.any()
    assert sectors == 3 * 256 * loads * 16 // 32


def test_the_l2_is_read_a_chunk_of_16_kib_a_block_and_pass(random):
    """Two blocks of three chunks each, five passes."""
    found = random.integers(0, 2**32, 2 * 3 * 16384 // 4, dtype=np.uint32)
    target = np.zeros(4, np.uint32)
    sectors = counted("l2", "l2_read", 2, target, found, 3, 5)
    assert not target.any()
    assert sectors == 2 * 5 * 16384 // 32


@pytest.mark.parametrize("chunk", [0, 1, 2])
def test_no_block_reads_what_is_anothers_in_the_l2(chunk):
    """The two words that make a thread write stand in one chunk of the second block: it writes if it came there, and
    in two passes neither block has come to its third."""
    found = np.zeros((2, 3, 4096), np.uint32)
    found[1, chunk, :2] = 0x9E3779B9
    target = np.zeros(4, np.uint32)
    undertorch.cuda(SOURCES["l2"])["l2_read"][1, 256](target, found.reshape(-1), 3, 3)
    assert not target.any()  # the first block alone
    undertorch.cuda(SOURCES["l2"])["l2_read"][2, 256](target, found.reshape(-1), 3, 2)
    assert target.any() == (chunk < 2)


def test_shared_memory_is_read_without_bank_conflicts():
    """A warp's 512 bytes are four wavefronts of 128. Two blocks of eight warps, four loads, three passes; and as much
    written once."""
    target = np.zeros(4, np.uint32)
    with undertorch.machine(gpu="H200", instrument="counters"):
        result = undertorch.cuda(SOURCES["shared"])["shared_read"][2, 256](target, 3)
    loads = 2 * 8 * 4 * 3
    assert sum(one.wavefronts or 0 for one in result.counters.accesses) == 4 * (loads + 2 * 8 * 4)
    assert not target.any()


def test_spinning_ends():
    undertorch.cuda(SOURCES["spin"])["spin"][1, 1](1000)
    undertorch.cuda(SOURCES["empty"])["empty"][1, 1]()


def counted(source: str, kernel: str, grid: int, *arguments) -> int:
    """Sectors of global memory that the kernel read."""
    with undertorch.machine(gpu="H200", instrument="counters"):
        result = undertorch.cuda(SOURCES[source])[kernel][grid, 256](*arguments)
    return sum(one.sectors for one in result.counters.accesses if one.sectors is not None)
