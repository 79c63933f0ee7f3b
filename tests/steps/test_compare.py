"""Two Steps compared: lines found again by their text, sums that add up, nothing unknown that passes for a figure."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steps_by_hand import NORM, NOTHING, STEP, kernel, launch, op, with_launches
from steps_edited import step_of
from undertorch.records import Idle, IdleCause, Kind, Origin, Phase, Step
from undertorch.records.comparisons import Change, Comparison, Match
from undertorch.steps.compare import CannotCompare, compare, pair

MODEL = """\
class Block:
    def attention(self, x):
        x = self.norm(x)  # 10 µs
        return self.out(x)  # 20 µs

    def mlp(self, x):
        x = self.norm(x)  # 30 µs
        return self.down(x)  # 40 µs
"""


def matches(comparison: Comparison) -> set[tuple[str, int | None, int | None]]:
    """How, the line's number before, its number after."""
    return {
        (str(line.match), line.before and line.before.line, line.after and line.after.line) for line in comparison.lines
    }


def compared(before: str, after: str) -> Comparison:
    """Of two texts of train.py."""
    return compare(step_of(train=before), step_of(train=after))


def test_a_step_compared_with_itself_changes_nothing():
    comparison = compare(STEP, STEP)
    assert comparison.busy_us == Change(before=1890, after=1890, difference=0)
    assert comparison.step_us == Change(before=2000, after=2000, difference=0)
    assert {line.match for line in comparison.lines} == {Match.SAME, Match.NO_LINE}
    assert all(line.time_us.difference == 0 for line in comparison.lines)


def test_lines_that_moved_down_are_the_same_lines():
    after = "import os\n\n# a comment\n" + MODEL
    assert matches(compared(MODEL, after)) == {("same", n, n + 3) for n in (3, 4, 7, 8)}


def test_the_same_text_in_two_functions_is_told_apart_when_the_functions_swap_places():
    attention, mlp = MODEL[len("class Block:\n") :].split("\n\n")
    after = f"class Block:\n{mlp}\n{attention}\n"
    assert matches(compared(MODEL, after)) == {("same", 7, 3), ("same", 8, 4), ("same", 3, 7), ("same", 4, 8)}


def test_lines_of_the_same_text_in_one_function_go_by_their_order():
    before = "def f(x):\n    x = g(x)  # 1 µs\n    x = h(x)  # 2 µs\n    x = g(x)  # 3 µs\n"
    after = "def f(x):\n    x = g(x)  # 5 µs\n    x = g(x)  # 7 µs\n"
    assert matches(compared(before, after)) == {("same", 2, 2), ("same", 4, 3), ("gone", 3, None)}


def test_as_many_lines_of_the_same_text_keep_their_order_whatever_lies_between():
    before = "def f(x):\n    x = g(x)  # 1 µs\n    a()\n    x = g(x)  # 3 µs\n    b()\n    c()\n"
    after = "def f(x):\n    x = g(x)  # 1 µs\n    b()\n    c()\n    x = g(x)  # 3 µs\n"
    assert matches(compared(before, after)) == {("same", 2, 2), ("same", 4, 5)}


def test_of_three_lines_of_the_same_text_the_one_that_went_is_found_by_its_neighbours():
    before = "def f(x):\n    x = g(x)  # 1 µs\n    a()\n    x = g(x)  # 2 µs\n    b()\n    x = g(x)  # 3 µs\n    c()\n"
    after = "def f(x):\n    a()\n    x = g(x)  # 2 µs\n    b()\n    x = g(x)  # 3 µs\n    c()\n"
    assert matches(compared(before, after)) == {("gone", 2, None), ("same", 4, 3), ("same", 6, 5)}


def test_a_line_indented_into_a_with_is_the_same_line():
    before = "def f(x):\n    loss = model(x)  # 4 µs\n"
    after = "def f(x):\n    with autocast():\n        loss = model(x)  # 3 µs\n"
    assert matches(compared(before, after)) == {("same", 2, 3)}


def test_a_function_that_was_renamed_keeps_its_lines_as_moved():
    after = MODEL.replace("def mlp", "def feed_forward")
    assert matches(compared(MODEL, after)) == {("same", 3, 3), ("same", 4, 4), ("moved", 7, 7), ("moved", 8, 8)}


def test_a_line_with_a_few_characters_changed_is_edited():
    before = "def f(x):\n    loss = F.cross_entropy(logits.view(-1, V), y.view(-1))  # 9 µs\n"
    after = "def f(x):\n    loss = F.cross_entropy(logits.float().view(-1, V), y.view(-1))  # 12 µs\n"
    comparison = compared(before, after)
    assert matches(comparison) == {("edited", 2, 2)}
    assert comparison.lines[0].time_us.difference == 3


def test_a_statement_that_a_formatter_broke_over_rows_is_edited():
    before = "def f(x):\n    loss = F.cross_entropy(logits.view(-1, V), y.view(-1))  # 9 µs\n"
    after = "def f(x):\n    loss = F.cross_entropy(  # 9 µs\n        logits.view(-1, V),\n        y.view(-1),\n    )\n"
    assert matches(compared(before, after)) == {("edited", 2, 2)}


def test_a_line_that_assigns_to_the_same_names_is_edited_whatever_is_on_its_right():
    before = "def f(x):\n    q, k, v = self.qkv(x).split(width, dim=2)  # 9 µs\n"
    after = "def f(x):\n    q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # 12 µs\n"
    assert matches(compared(before, after)) == {("edited", 2, 2)}


def test_lines_that_have_nothing_in_common_are_gone_and_new():
    before = "def f(x):\n    y = torch.softmax(q @ k.mT, -1) @ v  # 9 µs\n"
    after = "def f(x):\n    out = attend(x)  # 2 µs\n"
    comparison = compared(before, after)
    assert matches(comparison) == {("gone", 2, None), ("new", None, 2)}
    by_match = {line.match: line.time_us for line in comparison.lines}
    assert by_match[Match.GONE] == Change(before=9, after=0, difference=-9)
    assert by_match[Match.NEW] == Change(before=0, after=2, difference=2)


def test_a_renamed_file_is_found_by_its_content():
    old, new = step_of(train=MODEL), step_of(train_gpt=MODEL.replace("40 µs", "35 µs"))
    comparison = compare(old, new)
    assert matches(comparison) == {("same", n, n) for n in (3, 4, 7, 8)}
    assert {(line.before.file, line.after.file) for line in comparison.lines} == {("train.py", "train_gpt.py")}


def test_a_file_of_another_name_and_content_is_no_renamed_file():
    comparison = compare(step_of(train=MODEL), step_of(other="def f(x):\n    z = relu(x)  # 1 µs\n"))
    assert {line.match for line in comparison.lines} == {Match.GONE, Match.NEW}


def test_a_class_that_moved_out_of_the_script_keeps_its_lines():
    training = "import model\n\ndef train():\n    loss.backward()  # 100 µs\n"
    before = step_of(train=MODEL + training)
    after = step_of(train=training, model=MODEL)
    assert sorted(matches(compare(before, after))) == [
        ("moved", 3, 3),
        ("moved", 4, 4),
        ("moved", 7, 7),
        ("moved", 8, 8),
        ("same", 12, 4),
    ]


def test_without_sources_lines_go_by_their_number():
    before, after = step_of(train=MODEL), step_of(train=MODEL)
    blind = [replace(step, environment=replace(step.environment, sources={})) for step in (before, after)]
    assert matches(compare(*blind)) == {("same", n, n) for n in (3, 4, 7, 8)}


ROWS = st.lists(
    st.sampled_from(["x = g(x)", "x = h(x)", "y = x + 1", "loss = f(x, y)", "def f(x):", "def g(x):", "", "# c"]),
    max_size=12,
)
TEXTS = st.tuples(ROWS, st.lists(st.integers(1, 500), min_size=12, max_size=12)).map(
    lambda drawn: "\n".join(f"{row}  # {us} µs" if "=" in row else row for row, us in zip(*drawn, strict=False))
)


@given(before=TEXTS, after=TEXTS)
def test_whatever_was_edited_each_line_stands_once_and_the_differences_sum_to_the_busy_time(before, after):
    old, new = step_of(train=before), step_of(train=after)
    comparison = compare(old, new)
    for step, side in ((old, "before"), (new, "after")):
        seen = [getattr(line, side) for line in comparison.lines if getattr(line, side) is not None]
        assert sorted(line.line for line in seen) == sorted({op.where.line for op in step.ops})
    assert sum(line.time_us.difference for line in comparison.lines) == comparison.busy_us.difference
    assert sum(line.launches.difference for line in comparison.lines) == comparison.launches.difference


def test_differences_of_lines_phases_and_kinds_each_sum_to_that_of_the_busy_time():
    """A matmul of 300 µs goes. A launch on another stream comes, from 1780 to 2030 µs: the optimizer runs until 1880,
    so 150 of it count, and the two launches of 10 µs that it covers count no more."""
    extra = launch(kernel("k", Kind.REDUCTION), (), Phase.COMMUNICATE, 1780, 250, stream=8)
    after = with_launches(*(one for one in STEP.launches if one.start_us != 950), extra)
    comparison = compare(STEP, after)
    assert comparison.busy_us.difference == pytest.approx(-300 + 150 - 20)
    for groups in (comparison.lines, comparison.phases, comparison.kinds):
        assert sum(group.time_us.difference for group in groups) == pytest.approx(-170)
    assert comparison.lines[-1].match is Match.NO_LINE


def test_the_largest_change_stands_first():
    before = "def f(x):\n    a = g(x)  # 5 µs\n    b = h(a)  # 50 µs\n    c = k(b)  # 20 µs\n"
    after = "def f(x):\n    a = g(x)  # 6 µs\n    b = h(a)  # 20 µs\n    c = k(b)  # 25 µs\n"
    assert [line.time_us.difference for line in compared(before, after).lines] == [-30, 5, 1]


def test_bytes_that_are_unknown_on_one_side_stay_unknown():
    unknown = replace(STEP.launches[0], kernel=replace(STEP.launches[0].kernel, min_bytes_read=None))
    after = with_launches(unknown, *STEP.launches[1:])
    change = compare(STEP, after).min_bytes
    assert change.difference is None
    assert (change.before_missing, change.after_missing) == (2, 3)


def test_the_same_unknown_launches_on_both_sides_cancel():
    """Two launches of STEP have unknown bytes. Without the optimizer 1.75 GB less is moved, whatever these two move."""
    after = with_launches(*(one for one in STEP.launches if one.kernel.kind is not Kind.OPTIMIZER))
    assert compare(STEP, after).min_bytes.difference == -1_750_000_000


def test_as_many_unknown_launches_of_other_shapes_do_not_cancel():
    larger = replace(STEP.launches[6], kernel=replace(STEP.launches[6].kernel, grid=(2048, 1, 1)))
    after = with_launches(*STEP.launches[:6], larger, *STEP.launches[7:])
    assert compare(STEP, after).min_bytes.difference is None


def test_a_line_whose_launches_all_lack_their_bytes_has_none():
    comparison = compare(STEP, STEP)
    last = comparison.lines[-1].min_bytes
    assert (last.before, last.difference, last.before_missing) == (30_000_000, 0, 1)
    assert compare(NOTHING, NOTHING).step_us == Change(before=None, after=None, difference=None)


def test_wall_time_that_one_side_does_not_know_has_no_difference():
    assert compare(STEP, replace(STEP, step_us=None)).step_us == Change(before=2000, after=None, difference=None)


def test_ops_without_kernels_are_the_same_only_if_their_shapes_are():
    assert compare(STEP, STEP).same_left_out
    mystery = replace(STEP.ops[-1], arguments=op(11, "x", None, Phase.FORWARD).arguments * 2)
    other = replace(STEP, ops=(*STEP.ops[:-1], mystery))
    assert not compare(STEP, other).same_left_out


def test_launches_that_a_profiler_lost_are_never_the_same():
    lossy = replace(STEP, accounting=replace(STEP.accounting, lost_launches=3))
    assert not compare(lossy, lossy).same_left_out


def measured(step: Step) -> Step:
    return replace(step, time_origin=Origin.MEASURED)


def test_predicted_is_not_compared_with_measured():
    with pytest.raises(CannotCompare, match="predicted and those after measured"):
        compare(STEP, measured(STEP))
    assert compare(STEP, measured(STEP), mixed=True).mixed
    assert not compare(measured(STEP), measured(STEP)).mixed


def on(gpu: str) -> Step:
    return replace(STEP, gpu=gpu)


def test_steps_pair_by_their_gpu_whatever_their_order():
    pairing = pair([on("H200"), on("L4"), on("A10")], [on("A10"), on("H200"), on("B200")])
    assert [(before.gpu, after.gpu) for before, after in pairing.pairs] == [("H200", "H200"), ("A10", "A10")]
    assert (pairing.only_before, pairing.only_after) == (("L4",), ("B200",))


def test_one_step_a_file_is_a_pair_and_the_other_gpu_is_seen():
    ((before, after),) = pair([on("H200")], [on("L4")]).pairs
    assert not compare(before, after).one_gpu


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(["H200", "L4"], ["A10"], "H200, L4 and the one after of A10", id="none in common"),
        pytest.param(["H200", "H200"], ["H200"], "before has several steps of H200", id="one twice"),
        pytest.param([], ["H200"], "no GPU", id="an empty file"),
    ],
)
def test_files_that_do_not_pair_are_refused_in_a_sentence(before, after, said):
    with pytest.raises(CannotCompare, match=said):
        pair([on(gpu) for gpu in before], [on(gpu) for gpu in after])


def test_the_changes_of_busy_and_idle_time_are_the_change_of_the_step():
    """Idle: 30 us more of a launch that comes late, the wait for the printed value is gone, 5 us of gaps are new."""
    train = STEP.idle[1].where
    late = replace(STEP.idle[0], time_us=40)
    gap = Idle(start_us=0, time_us=5, cause=IdleCause.GAP, where=NORM)
    after = replace(STEP, idle=(late, gap), step_us=1890 + 45)
    comparison = compare(STEP, after)
    assert {one.cause: one.time_us.difference for one in comparison.idle} == {
        IdleCause.LAUNCH: 30,
        IdleCause.SYNC: -100,
        IdleCause.GAP: 5,
    }
    idle = sum(one.time_us.difference for one in comparison.idle)
    assert comparison.busy_us.difference + idle == comparison.step_us.difference
    assert sum(one.time_us.difference for one in comparison.idle_lines) == idle
    first = comparison.idle_lines[0]
    assert (first.before.line, first.time_us.difference) == (train.line, -100)
    assert comparison.idle_lines[-1].match is Match.NO_LINE
    assert all(line.launches.before or line.launches.after for line in comparison.lines)


def test_idle_time_says_nothing_where_the_wall_time_of_a_side_is_not_known():
    assert compare(STEP, replace(STEP, step_us=None)).idle == ()
