"""`undertorch see rank0.json rank1.json` as its user meets it: traces of two ranks written by hand."""

import json
from html.parser import HTMLParser

import pytest

from steps.traces.by_hand import Script
from undertorch.cli.main import run


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def rank(folder, number: int, late: float, clock: float, steps: int = 3, world_size: int = 2):
    """Each step computes 100 + `late` µs and then reduces: the last rank to come takes 20 for it, both end together.

    Steps are 400 µs apart, so that of each two the second comes when both are long done. The clock leads by `clock`.
    """
    script = Script()
    for step in range(steps):
        begin = clock + 400 * step
        script.range(f"ProfilerStep#{step + 4}", begin, 300)
        script.call("aten::mm", begin + 1, 10)
        script.kernel("gemm", begin + 2, begin + 10, 100 + late)
        script.range("nccl:all_reduce", begin + 14, 10)
        words = {"Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
        script.kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            begin + 15,
            begin + 110 + late,
            50 - late,
            **{**words, "Seq": 100 + step, "In msg nelems": 1000, "dtype": "Float"},
        )
    file = folder / f"rank{number}.json"
    content = {**script.content(), "distributedInfo": {"rank": number, "world_size": world_size}}
    file.write_text(json.dumps(content))
    return file


@pytest.fixture
def two(tmp_path):
    """Rank 1 computes 30 µs longer, and its clock leads by a second."""
    return [rank(tmp_path, 0, 0, 5000), rank(tmp_path, 1, 30, 1_005_000)]


def test_the_report_says_who_waits_for_whom(two, capsys):
    """Rank 0 comes at 110 and waits till 140, rank 1 reduces from 140 to 160."""
    assert run(["see", *map(str, two)]) == 0
    out = capsys.readouterr().out
    assert "Rank 0 waits 30 µs for rank 1, in 1 collective." in out
    rows = [row.split() for row in out.splitlines() if row.startswith("  rank ")]
    # step, compute, communication, exposed, of it moving, waits, waited for; from the end of the step before
    assert rows[0][2:] == ["400", "µs", "100", "µs", "50", "µs", "50", "µs", "20", "µs", "30", "µs", "0", "µs"]
    assert rows[1][2:] == ["400", "µs", "130", "µs", "20", "µs", "20", "µs", "20", "µs", "0", "µs", "30", "µs"]


def test_a_folder_is_all_the_ranks_in_it(two, capsys):
    assert run(["see", str(two[0].parent)]) == 0
    assert "Rank 0 waits 30 µs for rank 1" in capsys.readouterr().out


def test_ten_ranks_stand_in_the_order_of_their_numbers(tmp_path, capsys):
    for number in range(11):
        rank(tmp_path, number, 0, 0, world_size=11)
    assert run(["see", str(tmp_path)]) == 0
    rows = [row.split()[1] for row in capsys.readouterr().out.splitlines() if row.startswith("  rank ")]
    assert rows == [str(number) for number in range(11)]


def test_the_other_ranks_show_the_step_that_the_first_shows(two, tmp_path, capsysbinary):
    """Of rank 1 alone the median would be another: its last step is cut out of the middle."""
    content = json.loads(two[1].read_text())
    for event in content["traceEvents"]:
        if event["name"] == "gemm" and event["ts"] > 1_005_800:
            event["dur"] -= 20
    two[1].write_text(json.dumps(content))
    assert run(["see", "--json", "-", *map(str, two)]) == 0
    steps = json.loads(capsysbinary.readouterr().out)
    assert steps[0]["environment"]["step"] == steps[1]["environment"]["step"]


def test_the_json_has_it_at_the_first_step(two, capsysbinary):
    assert run(["see", "--json", "-", *map(str, two)]) == 0
    first, second = json.loads(capsysbinary.readouterr().out)
    assert second["ranks"] is None
    report = first["ranks"]
    assert [(one["rank"], one["waited_us"]) for one in report["ranks"]] == [
        (0, pytest.approx(30)),
        (1, pytest.approx(0)),
    ]
    (collective,) = report["collectives"]
    assert (collective["operation"], collective["sequence"], collective["bytes"]) == ("all_reduce", 101, 4000)
    assert collective["last"] == 1


def test_what_was_written_can_be_compared(two, tmp_path):
    written = tmp_path / "ranks.json"
    assert run(["see", "--json", str(written), *map(str, two)]) == 0
    assert run(["compare", str(written), str(written)]) in (0, 2)


class Text(HTMLParser):
    """The words of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def test_the_page_has_a_section_of_it(two, tmp_path):
    page = tmp_path / "page.html"
    assert run(["see", "--page", str(page), *map(str, two)]) == 0
    words = " ".join(Text(page.read_text()).words)
    assert "Rank 0 waits 30 µs for rank 1, in 1 collective." in words
    assert "Exposed communication by line" in words


@pytest.mark.parametrize("same", ["rank", "run"])
def test_traces_that_are_no_ranks_of_one_run_are_a_table_alone(tmp_path, capsys, same):
    """The same rank twice (before and after an edit), or of runs of different sizes."""
    one = rank(tmp_path, 0, 0, 0)
    (tmp_path / "other").mkdir()
    other = rank(tmp_path / "other", 0 if same == "rank" else 1, 0, 0, world_size=2 if same == "rank" else 4)
    assert run(["see", str(one), str(other)]) == 0
    out = capsys.readouterr().out
    assert "Traces" in out
    assert "Who waits for whom" not in out


def test_a_rank_that_cannot_be_read_is_named_and_the_others_are_shown(two, tmp_path, capsys):
    third = tmp_path / "rank2.json"
    third.write_text("{")
    assert run(["see", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert "Rank 0 waits" in out
    assert f"{third} is no trace" in err
