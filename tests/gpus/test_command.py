"""`undertorch gpus` as its user meets it."""

import json
import re
import subprocess
import sys

import pytest

from undertorch import gpus
from undertorch.cli.main import run


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_the_table_has_a_row_for_every_gpu(capsys):
    assert run(["gpus"]) == 0
    rows = capsys.readouterr().out.splitlines()
    for name in gpus.names():
        assert [row for row in rows if row.split()[:1] == [name]], name


def test_the_h200s_row_says_what_it_is(capsys):
    """132 SMs of 128 cores; 139.8 GiB; 4.8, 9.7 and 33.5 TB/s; 989 and 66.9 TFLOP/s."""
    run(["gpus"])
    row = next(row for row in capsys.readouterr().out.splitlines() if row.startswith("H200"))
    assert row.split() == ["H200", "✓", "Hopper", "132", "16,896", "140", "4.8", "9.7", "33.5", "989", "66.9"]


def test_tensor_cores_without_bfloat16_have_the_rate_that_they_have(capsys):
    """V100: 125 TFLOP/s in float16 (its data sheet)."""
    run(["gpus"])
    row = next(row for row in capsys.readouterr().out.splitlines() if row.startswith("V100-SXM2-32GB"))
    assert row.split()[-2:] == ["125", "15.7"]


def test_the_table_fits_a_terminal_of_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run(["gpus"])
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_one_gpu_shows_every_figure_with_the_number_of_its_source(capsys):
    assert run(["gpus", "h200"]) == 0
    out = capsys.readouterr().out
    for shown in ("132", "1,980 MHz", "4.8 TB/s", "150,109,880,320 bytes", "989 TFLOP/s", "232,448 bytes", "4.27 TB/s"):
        assert re.search(rf"{re.escape(shown)}.* +\[\d+\]", out), shown
    numbers = [int(number) for number in re.findall(r"\[(\d+)\]", out)]
    assert set(numbers) == set(range(1, max(numbers) + 1))


def test_a_sheet_with_one_name_says_it_once(tmp_path, capsys):
    path = tmp_path / "my_gpu.toml"
    path.write_text('like = "H200"\nname = "mine"\n')
    assert run(["gpus", str(path)]) == 0
    assert capsys.readouterr().out.startswith("mine · NVIDIA Hopper (GH100) · compute capability 9.0 · unverified")


def test_the_bars_are_as_long_as_the_bandwidths(capsys):
    """Shared memory fills the width; global memory is 4.8 of 33.45, a seventh of it."""
    run(["gpus", "H200"])
    bars = {row.split()[0]: row.count("█") for row in capsys.readouterr().out.splitlines() if "█" in row}
    assert list(bars) == ["global", "l2", "shared"]
    assert bars["global"] == round(bars["shared"] * 4.8 / 33.45)


def test_an_unknown_bandwidth_has_no_bar(capsys):
    run(["gpus", "B200"])
    row = next(row for row in capsys.readouterr().out.splitlines() if row.startswith("  l2 "))
    assert "█" not in row
    assert "–" in row


def test_a_sheet_of_ones_own_is_shown(capsys, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('like = "H200"\nname = "Mine"\n[processor]\nsms = 66\n')
    assert run(["gpus", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Mine · ")
    assert "mine.toml (no source given)" in out


def test_json_is_the_record_and_what_follows_from_it(capsysbinary):
    assert run(["gpus", "H200", "--json"]) == 0
    said = json.loads(capsysbinary.readouterr().out)
    assert (said["schema"], said["name"], said["sms"], said["cuda_cores"]) == (1, "H200", 132, 16896)
    assert said["base_clock_mhz"] is None
    assert said["peaks"]["tensor-bf16"] == 989.4e12
    assert said["bandwidths"]["shared"] == pytest.approx(33.454e12, rel=1e-4)
    assert said["ridges"]["tensor-bf16"]["global"] == pytest.approx(206.1, abs=0.05)


def test_json_of_all_is_a_list(capsysbinary):
    assert run(["gpus", "--json"]) == 0
    said = json.loads(capsysbinary.readouterr().out)
    assert [entry["name"] for entry in said] == list(gpus.names())


@pytest.mark.parametrize("arguments", [["gpus", "H20"], ["gpus", "H20", "--json"], ["gpus", "nothing.toml"]])
def test_what_is_no_gpu_gets_one_sentence_and_exit_status_2(capsys, arguments):
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert arguments[1] in err


def test_the_command_imports_no_torch():
    code = "import sys; from undertorch.cli.main import run; run(['gpus']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("command", [["gpus"], ["gpus", "H100"], ["gpus", "T4"]])
def test_no_row_ends_in_blanks(capsys, monkeypatch, command, columns):
    monkeypatch.setenv("COLUMNS", columns)
    run(command)
    assert [row for row in capsys.readouterr().out.splitlines() if row != row.rstrip()] == []


def test_a_group_of_which_nothing_is_known_has_no_heading(capsys):
    """Of the H200 something was measured; of the H100 nothing, and its figures stand under what is not known."""
    headings = {}
    for name in ("H200", "H100"):
        run(["gpus", name])
        headings[name] = [row.strip() for row in capsys.readouterr().out.splitlines()]
    assert "measured" in headings["H200"]
    assert "measured" not in headings["H100"]
