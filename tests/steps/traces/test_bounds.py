"""What a measured copy between host and GPU waited for: rates by hand, over a link of 64 GB/s (the H200's)."""

import pytest

from steps_by_hand import kernel
from undertorch import gpus
from undertorch.records import Bound, Kind
from undertorch.steps.traces.bounds import bound

H200 = gpus.find("H200")


@pytest.mark.parametrize(
    ("name", "size", "us", "expected"),
    [
        pytest.param("Memcpy HtoD (Pinned -> Device)", 4_194_304, 78, Bound.LINK, id="53.7 GB/s"),
        pytest.param("Memcpy HtoD (Pageable -> Device)", 4_194_304, 351, Bound.LINK, id="as fast as the CPU copies"),
        pytest.param("Memcpy DtoH (Device -> Pinned)", 8, 1.2, Bound.LATENCY, id="one number"),
        pytest.param("Memcpy DtoD", 3_000_000_000, 1000, Bound.MEMORY, id="within the GPU, 3 of 4.8 TB/s"),
    ],
)
def test_a_copy_over_the_link_waits_for_the_link(name, size, us, expected):
    copy = kernel(name, Kind.MEMCPY, grid=None, block=None, written=size)
    assert bound(copy, us, H200) is expected
