"""Pictures of launches: worked by hand, and against the occupancy rules."""

import re
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged import paged
from steps_by_hand import kernel, launch, with_launches
from undertorch import gpus
from undertorch.gpus.occupancy import occupancy
from undertorch.records import Phase
from undertorch.reports.page.geometry import Waves, block_picture, blocks_per_sm, grid_picture, sm_picture, waves

H200 = gpus.find("H200")


@given(st.sampled_from(gpus.names()), st.integers(1, 1024), st.integers(8, 255), st.integers(0, 100_000))
def test_resident_blocks_follow_from_the_occupancy(name, threads, registers, shared):
    """The page knows a launch's occupancy and not how many blocks that is; on every GPU the way back is exact."""
    gpu = gpus.find(name)
    found = occupancy(gpu, registers=registers, shared_bytes=shared, threads=threads)
    run = launch(kernel("k", block=(threads, 1, 1)), (0,), Phase.FORWARD, 0, 1, occupancy=found.share)
    assert blocks_per_sm(run, gpu) == found.blocks_per_sm


def test_waves_of_a_grid_worked_by_hand():
    """24,576 blocks, 16 an SM on 132 SMs: 11 full waves of 2,112 and 1,344 blocks more."""
    of = waves(kernel("k", grid=(24_576, 1, 1)), 16, H200)
    assert of == Waves(blocks=24_576, places=2112)
    assert of.count == pytest.approx(11.636, abs=1e-3)
    assert of.tail == pytest.approx(1344 / 2112)
    assert of.bars == (1.0, 1.0, None, 1.0, of.tail)


@pytest.mark.parametrize(
    ("blocks", "bars"),
    [
        (24, (24 / 132,)),
        (132, (1.0,)),
        (133, (1.0, 1 / 132)),
        (264, (1.0, 1.0)),
        (5 * 132, (1.0,) * 5),
        (5 * 132 + 66, (1.0, 1.0, None, 1.0, 0.5)),
    ],
)
def test_each_wave_is_a_bar_and_the_last_one_shows_its_tail(blocks, bars):
    assert Waves(blocks=blocks, places=132).bars == pytest.approx(bars)


def test_waves_need_a_grid_and_an_occupancy():
    assert waves(kernel("k", grid=None, block=None), 16, H200) is None
    assert waves(kernel("k"), None, H200) is None
    assert waves(kernel("k"), 0, H200) is None


def test_a_block_that_does_not_fill_its_last_warp():
    """1,000 threads: 31 warps of 32 and one with 8."""
    of = block_picture(1000, 32)
    assert (of.warps, of.full, of.rest) == (32, 31, 8)
    assert block_picture(1024, 32).rest == 0
    assert block_picture(20, 64).warps == 1


def test_a_grid_larger_than_its_picture_fades():
    assert grid_picture((16, 8, 1)).fades == ""
    assert grid_picture((17, 8, 1)).fades == "x"
    assert grid_picture((2, 66, 1)).fades == "y"
    assert grid_picture((64, 32, 12)).fades == "xy"
    assert (grid_picture((2, 66, 1)).columns, grid_picture((2, 66, 1)).rows) == (2, 8)
    assert grid_picture((1, 1, 2)).sheets == 2


@given(st.integers(1, 32), st.integers(1, 32), st.sampled_from([32, 48, 64]))
def test_an_sm_has_a_place_for_each_warp(warps, blocks, places):
    """Each resident warp is one square, no two at one place, and neighbouring blocks differ."""
    of = sm_picture(warps, blocks, places)
    even, odd = (re.findall(r"M(\d+) (\d+)", path) for path in (of.even, of.odd))
    assert len(even) + len(odd) == of.resident == min(warps * blocks, places)
    assert len({*even, *odd}) == of.resident
    assert len(even) == sum(min(warps, of.resident - begin) for begin in range(0, of.resident, 2 * warps))
    assert all(int(y) < ceil(places / 16) * 6 for _, y in (*even, *odd))


def test_a_kernel_too_small_for_the_gpu_says_how_much_of_it_it_takes():
    """24 blocks of 1,024 threads: two fit an SM, 264 the GPU."""
    small = launch(kernel("k", grid=(24, 1, 1), block=(32, 32, 1)), (0,), Phase.FORWARD, 0, 1, occupancy=1.0)
    text = paged(with_launches(small), gpus={"H200": H200}).one("table", class_="kernels").text
    assert "24 of 264 places, 9.1 %" in text
    assert "32 × 32 threads" in text


def test_a_memset_has_no_grid_and_no_block():
    text = paged(
        with_launches(launch(kernel("Memset", grid=None, block=None), (0,), Phase.FORWARD, 0, 1, occupancy=None)),
        gpus={"H200": H200},
    ).one("table", class_="kernels")
    assert "no grid" in text.text
    assert text.find("svg", class_="grid") == []


def test_amds_warps_have_64_lanes():
    amd = gpus.find("MI300X")
    step = replace(with_launches(launch(kernel("k"), (0,), Phase.FORWARD, 0, 1, occupancy=None)), gpu="MI300X")
    assert "4 warps of 64 lanes" in [one.children[0] for one in paged(step, gpus={"MI300X": amd}).find("title")]
