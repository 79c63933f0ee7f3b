"""The whole page: that it is sound HTML, asks nobody for anything, and says what the Step says."""

import base64
import hashlib
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from paged import data, paged, tree
from steps_by_hand import NOTHING, OPS, STEP, tensor, with_launches
from undertorch import gpus
from undertorch.records import Advice, Argument, Bound, Memory, MemorySample, Origin, Phase, Where
from undertorch.reports.page import write_page
from undertorch.reports.page.write import page

H200 = gpus.find("H200")
SHEETS = {"H200": H200}

BARE = replace(
    STEP,
    step_us=None,
    samples=None,
    ops=tuple(replace(op, where=None, module=None) for op in STEP.ops),
    launches=tuple(
        replace(
            launch,
            bound=None,
            occupancy=None,
            limiter=None,
            occupancy_origin=None,
            kernel=replace(
                launch.kernel,
                grid=None,
                block=None,
                geometry_origin=None,
                registers=None,
                shared_bytes=None,
                resources_origin=None,
                min_bytes_read=None,
                min_bytes_written=None,
                flops=None,
                math=None,
                bytes_origin=None,
            ),
        )
        for launch in STEP.launches
    ),
    memory=Memory(peak_bytes=None, peak_op=None, start_bytes=None, origin=Origin.COMPUTED),
    idle=(),
)
"""The step by hand, of which nothing is known but its times."""

MANY = with_launches(
    *(
        replace(launch, device=device, stream=stream, start_us=launch.start_us + 7 * stream)
        for launch in STEP.launches
        for device in (0, 1)
        for stream in (0, 20)
    )
)
"""On two GPUs, two streams each."""

PAGES = [
    pytest.param((STEP,), SHEETS, id="by hand"),
    pytest.param((STEP,), {}, id="a GPU without a sheet"),
    pytest.param((NOTHING,), SHEETS, id="nothing ran"),
    pytest.param((BARE,), SHEETS, id="nothing known"),
    pytest.param((MANY,), SHEETS, id="two GPUs and streams"),
    pytest.param((STEP, replace(STEP, gpu="A100-40GB"), NOTHING), SHEETS, id="three steps"),
]


@pytest.mark.parametrize(("steps", "sheets"), PAGES)
def test_every_id_is_there_once_and_every_reference_has_its_id(steps, sheets):
    root = tree(page(steps, sheets))
    ids = [one.attributes["id"] for one in root.all() if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    references = [
        name
        for one in root.all()
        for attribute in ("aria-controls", "aria-labelledby", "aria-describedby")
        for name in (one.attributes.get(attribute) or "").split()
    ]
    references += [link[1:] for one in root.find("a") if (link := one.attributes.get("href") or "#main")]
    references += re.findall(r"url\(#([\w-]+)\)", page(steps, sheets))
    assert set(references) <= set(ids)


@pytest.mark.parametrize(("steps", "sheets"), PAGES)
def test_a_screen_reader_finds_its_way(steps, sheets):
    """Landmarks, headings without a level left out, tables with headers, pictures with a title."""
    root = tree(page(steps, sheets))
    assert root.one("main")
    assert root.one("nav").attributes["aria-label"]
    levels = [int(one.tag[1]) for one in root.all() if re.fullmatch(r"h[1-6]", one.tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for table in root.find("table"):
        assert all(one.attributes.get("scope") in ("col", "row", "rowgroup") for one in table.find("th"))
        assert table.find("th", scope="col")
    for svg in root.find("svg"):
        titled = svg.attributes.get("role") == "img" and [one for one in svg.find("title") if one.children]
        assert titled or svg.attributes.get("aria-hidden") == "true"
    for button in root.find("button"):
        assert button.attributes.get("aria-label") or button.text
        assert button.attributes["type"] == "button"


@pytest.mark.parametrize(("steps", "sheets"), PAGES)
def test_the_page_asks_nobody_for_anything(steps, sheets):
    root = tree(page(steps, sheets))
    for one in root.all():
        for name in ("src", "href", "action", "srcset", "data"):
            assert re.match(r"#|data:|$", one.attributes.get(name) or "")
    style = "".join("".join(map(str, one.children)) for one in root.find("style"))
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_lets_the_pages_own_scripts_run_and_no_others():
    root = paged(STEP)
    (policy,) = [one.attributes["content"] for one in root.find("meta", http_equiv="Content-Security-Policy")]
    scripts = ["".join(map(str, one.children)) for one in root.find("script") if "type" not in one.attributes]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "default-src 'none'" in policy
    assert not re.search(r"script-src[^;]*unsafe", policy)


def test_the_head_names_the_lines_that_take_most_time():
    """900, 400 and 300 µs of 1890; in the first an op's kernels are not known."""
    (first, second, third) = paged(STEP, gpus=SHEETS).one("ol", class_="hottest").find("li")
    assert first.text == ">900 µs 47.6 % model.py:4 return self.head(h) compute"
    assert second.text.startswith("400 µs 21.2 % train.py:12 optimizer.step()")
    assert third.text.startswith("300 µs 15.9 % model.py:3 h = self.norm(x)")
    assert first.one("a").attributes["href"] == "#s0-f1-l4"


def test_a_line_with_an_op_of_unknown_kernels_bears_a_mark():
    root = paged(STEP, gpus=SHEETS)
    row = root.one("tr", id="s0-f1-l4")
    assert "time not known: mylib::mystery" in row.text
    assert ">900 µs" in row.text


def test_the_head_says_time_busy_rate_and_memory_each_with_its_origin():
    root = paged(STEP, gpus=SHEETS)
    figures = [one.text for one in root.one("dl", class_="figures").find("div")]
    assert figures[0] == "step, at least 2.00 ms wall time predicted"  # without mylib::mystery
    assert figures[1] == "GPU busy 1.89 ms 94.5 % of the step predicted"
    assert figures[2] == "samples a second 16,000 32 a step predicted"
    assert figures[4] == "peak memory 30.4 GB of the GPU's 150 GB, at train.py:9 computed"
    assert root.one(class_="hero").find("h1")[0].text == "train.py --batch 32"
    assert "50.3 % of the busy time waits for memory" in root.one("p", class_="verdict").text


def test_the_bar_of_what_is_waited_for_is_of_the_step_and_each_part_has_a_colour():
    """What the loss launches, bound by compute, is no product: its 100 us are instructions; idle are 110 of 2000."""
    launches = tuple(replace(one, bound=Bound.COMPUTE) if one.phase is Phase.LOSS else one for one in STEP.launches)
    html = page([replace(STEP, launches=launches)], SHEETS)
    root = tree(html)
    parts = root.one("div", class_="waits").find("span")
    keys = [part.attributes["class"] for part in parts]
    assert {"wait-compute", "wait-instructions", "wait-memory", "wait-idle"} <= set(keys)
    assert all(f".{key} {{" in html or f".{key}{{" in html for key in keys)
    label = root.one("div", class_="waits").attributes["aria-label"]
    assert label.startswith("Of the step: ")
    assert "arithmetic 45.0 %" in label
    assert "idle 5.5 %" in label


def test_a_measured_step_says_measured():
    measured = replace(
        STEP,
        time_origin=Origin.MEASURED,
        launches=tuple(replace(launch, time_origin=Origin.MEASURED) for launch in STEP.launches),
    )
    root = paged(measured, gpus=SHEETS)
    hero = root.one(class_="hero")
    assert "measured on the H200" in hero.text
    assert "predicted" not in hero.text
    assert hero.one("dl", class_="figures").find("div")[0].text.endswith("measured")


def test_what_is_not_known_is_a_dash_and_no_zero():
    for step in (NOTHING, BARE):
        figures = [one.text for one in paged(step, gpus=SHEETS).one("dl", class_="figures").find("div")]
        assert [text for text in figures if re.search(r"\b0\b", text)] == []
        assert figures[0] == "step –"
        assert figures[4] == "peak memory –"
    root = paged(BARE, gpus=SHEETS)
    (line,) = root.find("tr", class_="hot")
    assert [cell.text for cell in line.find("td")][-3:] == ["–", "–", "–"]


def test_memory_beyond_the_gpus_is_said_to_be_more():
    small = replace(H200, memory_bytes=20_000_000_000)
    assert "MORE than the GPU's 20.0 GB" in paged(STEP, gpus={"H200": small}).one("dl", class_="figures").text


def test_an_unverified_sheet_is_said_to_be_one():
    assert "unverified" not in paged(STEP, gpus=SHEETS).one(class_="hero").text
    assert "unverified" in paged(STEP, gpus={"H200": replace(H200, verified=False)}).one(class_="hero").text


def test_busy_time_of_two_gpus_is_a_share_of_both():
    """Each GPU is busy for 1890 of 2000 µs."""
    both = with_launches(*(replace(launch, device=device) for launch in STEP.launches for device in (0, 1)))
    figure = paged(both, gpus=SHEETS).one("dl", class_="figures").find("div")[1].text
    assert figure == "2 GPUs busy 3.78 ms 94.5 % of the step, on average predicted"


def test_accounting_names_what_is_left_out():
    text = paged(STEP, gpus=SHEETS).one(id="s0-accounting").text
    assert "98.9 %" in text
    assert "1, which the times leave out: mylib::mystery" in text
    assert "without source line2 launches (20 µs, 1.1 % of the busy time): Memset, somebodys_kernel" in text
    names = "layer_norm_grad_input_kernel_vectorized, somebodys_kernel"
    assert f"without bytes, FLOPs2 launches (210 µs, 11.1 % of the busy time): {names}" in text


def test_assumptions_stand_with_their_line():
    text = paged(STEP, gpus=SHEETS).one(id="s0-assumptions").text
    assert "train.py:13 `.item()` was answered with 1.0" in text
    assert "3 times" in text


def test_advice_is_there_only_when_there_is_some():
    assert paged(STEP).find(id="s0-advice") == []
    advice = Advice(
        kind="fuse",
        lines=(Where(file="train.py", line=9, function="<module>"),),
        saves_us=120.0,
        saves_bytes=300_000_000,
        what="The loss reads its logits three times.",
        op=None,
    )
    part = paged(replace(STEP, advice=(advice,))).one(id="s0-advice")
    (row,) = part.find("li")
    assert [one.text for one in row.one(class_="saves").find("span")] == [
        "120 µs",
        "6.3 % of the busy time",
        "300 MB less moved",
        "predicted",
    ]
    assert [one.text for one in row.find("p")] == ["The loss reads its logits three times.", "fuse · train.py:9"]
    assert part.one("a").attributes["href"] == "#s0-f0-l9"


def test_several_steps_begin_with_a_table_that_compares_them():
    slow = replace(STEP, gpu="A100-40GB", step_us=5000)
    root = paged(STEP, slow, gpus={**SHEETS, "A100-40GB": gpus.find("A100-40GB")})
    first = next(one for one in root.one("main").children if not isinstance(one, str))
    rows = [row.text for row in first.one("tbody").find("tr")]
    assert rows[0] == "H200 2.00 ms fastest 16,000 94.5 % 9.1 % 30.4 GB of 150 GB predicted"
    assert rows[2].startswith("A100-40GB unverified 5.00 ms 2.50× 6,400 37.8 %")
    assert [one.attributes["aria-pressed"] for one in first.find("button")] == ["true", "false"]
    assert len(root.find("article")) == 2
    assert "one training step on 2 GPUs" in first.text


def test_steps_of_two_scripts_on_one_gpu_are_not_called_gpus():
    other = replace(STEP, environment=replace(STEP.environment, arguments=("--batch", "64")))
    root = paged(STEP, other, gpus=SHEETS)
    assert "2 training steps" in root.one(class_="compared").text
    assert root.one("h1").text == "train.py --batch 32, train.py --batch 64"
    assert [one.text for one in root.find("button", class_="choose")] == [
        "H200 · train.py --batch 32",
        "H200 · train.py --batch 64",
    ]


def test_one_step_has_no_comparison():
    assert paged(STEP).find(class_="compared") == []


def test_no_step_is_refused():
    with pytest.raises(ValueError, match="at least one step"):
        page((), {})


def test_ops_and_their_tensors_do_not_make_the_page_larger():
    """The page holds launches and kernels; what an Op was called with is in the JSON."""
    heavy = tuple(
        replace(op, arguments=tuple(Argument(name=f"a{n}", value=tensor(3, 5, storage=n)) for n in range(200)))
        for op in OPS
    )
    assert page((replace(STEP, ops=heavy),), SHEETS) == page((STEP,), SHEETS)


def test_a_launch_more_costs_a_few_numbers_and_no_second_drawing():
    """A kernel is drawn once for a line, however often it runs: 1,000 launches of 11 kernels stay far below 3 MB."""
    once = len(page((STEP,), SHEETS))
    times = 100
    often = with_launches(
        *(
            replace(launch, start_us=launch.start_us + 2000 * n, time_us=launch.time_us)
            for n in range(times)
            for launch in STEP.launches
        )
    )
    more = len(page((often,), SHEETS)) - once
    assert more / (len(STEP.launches) * (times - 1)) < 150
    assert once + more < 3_000_000


def test_the_data_has_every_launch_with_its_line_and_lane():
    root = paged(MANY, gpus=SHEETS)
    (step,) = data(root)["steps"]
    launches = step["launches"]
    assert {len(column) for column in launches.values()} == {len(MANY.launches)}
    assert launches["start"] == [launch.start_us for launch in MANY.launches]
    assert launches["time"] == [launch.time_us for launch in MANY.launches]
    assert step["lanes"] == [f"GPU {device} · stream {stream}" for device in (0, 1) for stream in (0, 20)]
    for launch, line in zip(MANY.launches, launches["line"], strict=True):
        op = next((op for op in MANY.ops if launch.ops and op.id == launch.ops[0]), None)
        where = None if op is None else op.where
        if where is None:
            assert line is None
        else:
            assert step["lines"][line]["place"] == f"{where.file}:{where.line}"
            assert root.one(id=step["lines"][line]["id"]).one("code").text == source(where)


def source(where):
    return STEP.environment.sources[where.file].splitlines()[where.line - 1].strip()


def test_heights_of_the_timeline_are_shares_of_the_nearer_peak():
    """The norm moves 400 MB in 100 µs: 4 of 4.8 TB/s. A matmul does 60 GFLOP in 300 µs: 200 of 989.4 TFLOP/s."""
    (step,) = data(paged(STEP, gpus=SHEETS))["steps"]
    share = step["launches"]["share"]
    assert share[0] == pytest.approx(4 / 4.8, abs=1e-4)
    assert share[1] == pytest.approx(200 / 989.4, abs=1e-4)
    assert share[6] is None  # its bytes and FLOPs are not known
    assert step["launches"]["bound"][0] == list(Bound).index(Bound.MEMORY)


def test_memory_without_launches_runs_over_the_ops():
    step = replace(
        NOTHING,
        ops=OPS[:2],
        memory=Memory(
            peak_bytes=9,
            peak_op=1,
            start_bytes=1,
            samples=(MemorySample(op=0, live_bytes=5), MemorySample(op=1, live_bytes=9)),
            origin=Origin.COMPUTED,
        ),
    )
    assert "by op, since none has a launch" in paged(step).one(id="s0-memory").text


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "page.html"
    write_page(path, [STEP], SHEETS)
    assert path.read_text(encoding="utf-8") == page([STEP], SHEETS)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="nowhere"):
        write_page(tmp_path / "nowhere" / "page.html", [STEP], SHEETS)
    with pytest.raises(ValueError, match="step"):
        write_page(tmp_path / "none.html", [], SHEETS)
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_stands_by_the_files_name_and_its_path_is_in_the_title():
    where = Where(file="/home/someone/project/model.py", line=4, function="forward")
    one = Advice(kind="copies", lines=(where,), saves_us=10, saves_bytes=None, what="Do.", op=None)
    (place,) = paged(replace(STEP, advice=(one,))).one("ul", class_="advice").find(class_="place")
    assert place.text == "model.py:4"
    assert place.attributes["title"] == "/home/someone/project/model.py:4"
