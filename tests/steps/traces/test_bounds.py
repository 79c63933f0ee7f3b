"""What a measured launch waited for. Of copies between host and GPU: rates by hand, over a link of 64 GB/s (the
H200's). Of kernels: times that the H200 took for them, in tests/golden/h200_gpt2_train.json.gz."""

from dataclasses import replace

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


ELEMENTWISE, UNROLLED, CAT = (
    "elementwise_kernel<128, 4, direct_copy>",
    "unrolled_elementwise_kernel<direct_copy>",
    "CatArrayBatchedCopy",
)


@pytest.mark.parametrize(
    ("name", "grid", "threads", "registers", "read", "written", "us", "expected"),
    [
        # 302 MB at a quarter of the peak, by blocks that fill the GPU many times over: each element's place is worked
        # out with divisions.
        pytest.param(ELEMENTWISE, 147_456, 128, 18, 150_994_944, 150_994_944, 231, Bound.COMPUTE, id="strided copy"),
        pytest.param(UNROLLED, 804_864, 128, 32, 824_180_736, 1_648_361_472, 1179, Bound.COMPUTE, id="cast, 44 %"),
        pytest.param(CAT, 792, 512, 25, 150_994_944, 150_994_944, 289, Bound.MEMORY, id="cat, as full as can be"),
        pytest.param(UNROLLED, 2, 128, 32, 1536, 3072, 2.05, Bound.LATENCY, id="two blocks"),
        pytest.param(ELEMENTWISE, 147_456, 128, 18, 150_994_944, 150_994_944, 2310, None, id="ten times as long"),
    ],
)
def test_only_what_is_too_small_for_the_gpu_is_called_so(name, grid, threads, registers, read, written, us, expected):
    copy = kernel(name, Kind.COPY, grid=(grid, 1, 1), block=(threads, 1, 1), read=read, written=written)
    assert bound(replace(copy, registers=registers, shared_bytes=0, flops=0), us, H200) is expected
