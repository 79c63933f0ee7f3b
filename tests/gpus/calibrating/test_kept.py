"""What is kept on disk, and what is made of it."""

from dataclasses import replace

import pytest

from gpus.calibrating.made_up import MadeUp
from undertorch import gpus
from undertorch.gpus.calibrating import calibrate
from undertorch.gpus.calibrating.kept import folder, keep, keep_sheet, newest, sheet
from undertorch.gpus.sheet import parse


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def calibration(copy: float = 4.27e12, date: str = "2026-11-30T11:00:00+00:00"):
    gpu = MadeUp(rates={"global copy": copy, "l2 read": 8.1e12})
    return replace(calibrate(gpu, clock=gpu.clock), date=date)


def test_it_comes_back_as_it_was():
    found = calibration()
    keep(found)
    assert newest("H200") == found


def test_the_newest_of_that_gpu_counts():
    for date in ("2026-11-29T00:00:00+00:00", "2026-11-30T12:00:00+00:00", "2026-11-30T11:00:00+00:00"):
        keep(calibration(date=date))
    keep(replace(calibration(date="2027-01-01T00:00:00+00:00"), gpu="L4"))
    assert newest("H200").date == "2026-11-30T12:00:00+00:00"
    assert len(list(folder().glob("*.json"))) == 4


def test_the_name_of_the_file_tells_gpu_driver_and_date():
    path = keep(calibration())
    assert path.name == "H200-580.159-2026_11_30T11_00_00_00_00.json"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"schema": 99}', b"\xff\xfe"])
def test_what_cannot_be_read_is_passed_over(text):
    keep(calibration())
    (folder() / "A.json").write_bytes(text)
    assert newest("H200") == calibration()


def test_without_any_there_is_none():
    assert newest("H200") is None


def test_the_sheet_is_that_of_its_gpu_with_what_was_measured():
    made = parse(sheet(calibration()), "made.toml", gpus.find)
    h200 = gpus.find("H200")
    assert (made.achieved_bandwidth, made.l2_bandwidth) == (4.27e12, 8.1e12)
    assert (made.peaks, made.sms, made.memory_bandwidth) == (h200.peaks, h200.sms, h200.memory_bandwidth)
    assert "--calibrate" in made.sources["achieved_bandwidth"]


def test_a_copy_faster_than_the_memory_is_left_out_of_the_sheet():
    """A sheet refuses it. The H200's memory has 4.8 TB/s."""
    made = parse(sheet(calibration(copy=5e12)), "made.toml", gpus.find)
    assert made.achieved_bandwidth == gpus.find("H200").achieved_bandwidth


def test_a_gpu_without_a_sheet_gets_none():
    assert keep_sheet(replace(calibration(), gpu=None)) is None


def test_an_interruption_leaves_nothing_half_written(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        keep(calibration())
    assert list(folder().iterdir()) == []
