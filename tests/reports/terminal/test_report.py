"""The report as a whole: its width, its colours, and that it shows what the Step says and what it does not know."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from drawn import drawn, one_row, part
from steps_by_hand import HEAD, LAUNCHES, NOTHING, OPS, STEP, kernel, with_launches
from undertorch.gpus import find
from undertorch.records import Accounting, Assumption, Bound, Idle, IdleCause, Kind, Origin
from undertorch.records.steps import NOT_COMPILED, UNCAPTURED, UNCOMPILED, WITHOUT_GRAPHS, WRITTEN_BY_INDUCTOR

LONG = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_kernel0_0<" + 200 * "x"


def crowded():
    """Everything at its longest: names, numbers, sources in wide letters, arguments, versions, sentences."""
    where = replace(HEAD, file="目录/" + 30 * "很长" + ".py", line=123456, function="Класс." + 50 * "f")
    ops = tuple(replace(op, where=where) if op.id in (1, 4, 5) else op for op in OPS)
    launches = tuple(
        replace(
            launch,
            kernel=replace(
                launch.kernel, name=LONG, grid=(2**31 - 1, 65535, 65535), block=(1024, 1, 1), min_bytes_read=10**18
            ),
            time_us=launch.time_us * 1e6,
            start_us=launch.start_us * 1e6,
        )
        for launch in LAUNCHES
    )
    source = 123455 * "\n" + "\treturn " + 40 * "宽" + 100 * "x" + "\n"
    seen = replace(
        STEP.environment,
        script=200 * "s",
        arguments=("--text", "a b" * 40),
        sources={where.file: source},
        versions={"undertorch": 120 * "1"},
    )
    account = replace(STEP.accounting, ops_without_cost=(100 * "o", "宽" * 100), ops_without_cost_count=12345)
    return replace(STEP, ops=ops, launches=launches, environment=seen, accounting=account, step_us=None)


@pytest.mark.parametrize("width", [80, 81, 100, 119, 120, 121, 200])
@pytest.mark.parametrize("step", [STEP, NOTHING, crowded()], ids=["by hand", "nothing", "crowded"])
def test_no_row_is_wider_than_the_screen(step, width):
    for row in drawn(step, width, find("H200")).splitlines():
        assert cell_len(row) <= width, row


@pytest.mark.parametrize("width", [1, 20, 50, 79])
def test_a_narrow_screen_cuts_rows_and_breaks_nothing(width):
    for row in drawn(crowded(), width, find("H200")).splitlines():
        assert cell_len(row) <= width, row


@pytest.mark.parametrize("step", [STEP, NOTHING, crowded()], ids=["by hand", "nothing", "crowded"])
def test_rows_end_without_blanks(step):
    assert not [row for row in drawn(step).splitlines() if row.endswith(" ")]


def test_a_long_path_is_no_title():
    long = replace(
        STEP, environment=replace(STEP.environment, script=f"/{'folder/' * 9}trace.json.gz", arguments=("-x",))
    )
    assert drawn(long).splitlines()[0].startswith("…/trace.json.gz -x · step ")


def test_a_wider_screen_shows_more_of_a_long_name():
    assert LONG[:40] not in one_row(part(drawn(crowded(), 80), "Lines"))
    assert LONG[:40] in one_row(part(drawn(crowded(), 160), "Lines"))


def test_colours_are_for_terminals():
    assert "\x1b[" not in drawn(STEP)
    assert "\x1b[" in drawn(STEP, terminal=True)


def test_the_head_says_what_was_seen_and_where_the_times_come_from():
    rows = drawn(STEP).splitlines()
    assert rows[0] == "train.py --batch 32 · step 2 · H200 · times predicted"
    measured = replace(STEP, time_origin=Origin.MEASURED)
    assert drawn(measured).splitlines()[0].endswith("times measured")


def test_wall_busy_and_idle_time():
    """1890 of 2000 us is 94.5 %."""
    head = one_row(drawn(STEP).splitlines()[:5])
    assert "2.00 ms, of which busy 1.89 ms (94.5 %); idle: launch 10 µs, sync 100 µs" in head


def test_samples_a_second():
    """32 samples in 2 ms."""
    assert "32 a step, 16,000 a second" in drawn(STEP)


def test_memory_names_its_peak_and_its_line_and_whether_it_fits():
    text = one_row(drawn(STEP, gpu=find("H200")).splitlines())
    assert "30.4 GB at most of the GPU's" in text
    assert "reached at train.py:9; 1.50 GB when the step began (computed)" in text
    assert "MORE than the GPU's" in one_row(drawn(STEP, gpu=find("L4")).splitlines())


def test_a_sheet_that_nobody_verified_is_said_to_be():
    assert "unverified" not in drawn(STEP, gpu=replace(find("H200"), verified=True))
    assert "unverified: predicted times were never compared with a real H200" in (
        drawn(STEP, gpu=replace(find("H200"), verified=False))
    )


def test_what_is_not_known_is_a_dash_and_never_a_zero():
    text = drawn(NOTHING)
    head = text[: text.index("Lines")]
    for fact in ("step         –", "samples      –", "memory       –", "versions     –"):
        assert fact in head
    for fact in ("FLOPs        –", "least bytes  –", "utilisation  –"):
        assert fact in text


def test_a_launch_of_which_nothing_is_known_is_all_dashes():
    mystery = kernel("mystery", grid=None, block=None, read=None, written=None, flops=None)
    unknown = replace(LAUNCHES[0], bound=None, occupancy=None, limiter=None, kernel=mystery)
    text = drawn(with_launches(unknown))
    figures = next(row for row in part(text, "Lines") if "100 µs  " in row)
    assert figures.split() == ["████████", "100", "µs", "100", "1", "–", "–", "–"]
    assert next(row for row in part(text, "Lines") if "mystery" in row).split()[-3:] == ["–", "–", "–"]
    assert "norm, PyTorch" not in text
    assert "elementwise, PyTorch · – · occupancy – · –" in text


def test_the_accounting_names_what_the_tables_leave_out():
    text = one_row(part(drawn(STEP), "Accounting"))
    assert "98.9 % of the launches' time has a source line;" in text
    assert "; 2 launches (20 µs, 1.1 % of the busy time) without one: Memset, somebodys_kernel." in text
    assert "No kernels are known for 1 op, which the times leave out: mylib::mystery." in text
    assert (
        "The bytes and FLOPs of 2 launches (210 µs, 11.1 % of the busy time) are not known: "
        "layer_norm_grad_input_kernel_vectorized, somebodys_kernel." in text
    )
    assert "The bound of 2 launches (20 µs, 1.1 % of the busy time) is not known: Memset, somebodys_kernel." in text
    assert "grid and block computed 7, predicted 3, none 1" in text
    damaged = replace(STEP, accounting=replace(STEP.accounting, lost_launches=3, repaired=1))
    text = one_row(part(drawn(damaged), "Accounting"))
    assert "The profiler lost 3 launches. 1 damaged event mended in reading." in text


def test_nothing_left_out_is_said_too():
    complete = replace(with_launches(LAUNCHES[0]), accounting=Accounting(launches=1, time_with_line=1.0))
    text = one_row(part(drawn(complete), "Accounting"))
    assert text.startswith("100 % of the launches' time has a source line. Every op's kernels are known.")
    assert "not known" not in text


def test_assumptions_stand_with_file_line_and_how_often():
    text = one_row(part(drawn(STEP), "Assumptions"))
    assert text.startswith("train.py:13 (3×): `.item()` was answered with 1.0: no value was computed;")


def test_what_an_op_assumes_is_said_once_with_its_count():
    ops = tuple(replace(op, assumed=("Half of the mask is set.",)) if op.id in (1, 4) else op for op in OPS)
    text = one_row(part(drawn(replace(STEP, ops=ops)), "Assumptions"))
    assert "model.py:4 (2×): Half of the mask is set." in text


def test_an_assumption_of_the_run_is_not_said_again_for_its_op():
    ops = tuple(replace(op, assumed=("`.item()` was answered with 1.0",)) for op in OPS)
    rows = part(drawn(replace(STEP, ops=ops)), "Assumptions")
    assert one_row(rows).count("`.item()`") == 1


def test_an_assumption_without_a_place():
    step = replace(STEP, accounting=replace(STEP.accounting, assumed=(Assumption(where=None, what="Something."),)))
    assert part(drawn(step), "Assumptions")[0] == "  Something."


def test_a_script_that_compiles_is_said_to_be_shown_as_eager():
    where = replace(OPS[0].where, line=7)
    assumed = (Assumption(where=where, what=f"{UNCOMPILED}: as it is."),)
    text = one_row(drawn(replace(STEP, accounting=replace(STEP.accounting, assumed=assumed))).splitlines()[:12])
    assert f"eager the torch.compile of {where.file}:7 is left out" in text
    assert "eager the" not in one_row(drawn(STEP).splitlines()[:12])


def test_the_head_says_what_of_compiled_code_is_not_as_it_would_run():
    """A part that Inductor could not compile, and a CUDA graph that is not captured, are told beside its kernels."""
    where = replace(OPS[0].where, line=7)
    ours = replace(STEP.launches[0], kernel=replace(STEP.launches[0].kernel, library="Inductor"))
    compiled = Assumption(where=where, what=f"{WRITTEN_BY_INDUCTOR} for this GPU.")
    failed = Assumption(where=where, what=f"a graph {NOT_COMPILED} (no reason).")
    graphed = Assumption(where=where, what=f"{UNCAPTURED}: as it is.")

    def head(*assumed):
        step = replace(STEP, launches=(ours, *STEP.launches[1:]))
        return one_row(drawn(replace(step, accounting=replace(STEP.accounting, assumed=assumed))).splitlines()[:14])

    plain = head(compiled)
    assert f"compiled by the torch.compile of {where.file}:7" in plain
    assert "shown in eager" not in plain
    assert "this long at most" not in plain
    assert "a part could not be compiled and is shown in eager" in head(compiled, failed)
    assert "the step takes this long at most" in head(compiled, graphed)


def test_the_last_sentence_says_what_the_step_waits_for():
    """Memory: 100 + 100 + 150 + 200 + 400 = 950 of 1890 us; arithmetic 900; small 20; unknown 20; idle 110 of 2000."""
    sentence = one_row(drawn(STEP).splitlines()[-4:])
    assert sentence == (
        "50.3 % of the busy time waits for memory, 47.6 % is spent on arithmetic (matmul), 1.1 % goes to kernels too "
        "small to fill the GPU, 1.1 % has no known bound; the GPU is idle for 5.5 % of the step, mostly because the "
        "script waits for it; 1 op whose kernels are not known is left out."
    )


def of_a_model(*assumed):
    """A step of 2 ms whose GPU waits 1 ms for launches; two matmuls, one of them backward, and a norm are the model's,
    and two other launches are not."""
    ops = tuple(replace(OPS[0], id=n, module=module) for n, module in enumerate(("a", "a", "b", None, None)))
    kinds = (Kind.MATMUL, Kind.NORM, Kind.MATMUL, Kind.OPTIMIZER, Kind.COPY)
    launches = tuple(
        replace(LAUNCHES[0], ops=(n,), start_us=400.0 * n, time_us=200, kernel=replace(LAUNCHES[0].kernel, kind=kind))
        for n, kind in enumerate(kinds)
    )
    idle = tuple(Idle(start_us=400.0 * n + 200, time_us=200, cause=IdleCause.LAUNCH) for n in range(5))
    assumptions = tuple(Assumption(where=OPS[0].where, what=what) for what in assumed)
    accounting = replace(STEP.accounting, assumed=assumptions, ops_without_cost=(), ops_without_cost_count=0)
    return replace(STEP, ops=ops, launches=launches, idle=idle, accounting=accounting)


WAITS = (
    "100 % of the busy time waits for memory; the GPU is idle for 50.0 % of the step, mostly because the CPU is too "
    "slow in launching."
)
FEWER = "With it, 3 of the 5 launches become fewer: those of matmul (2, 400 µs) stay and the rest are fused;"
GRAPHS = "so that little of the waiting for launches is left."
MEASURED = "On a GPU, undertorch see without --gpu measures that."


@pytest.mark.parametrize(
    ("assumed", "said"),
    [
        (
            (f"{UNCOMPILED}: as it runs {WITHOUT_GRAPHS}.",),
            f"Without the script's torch.compile, {WAITS} {FEWER} its CUDA graphs launch them at once, {GRAPHS} "
            f"{MEASURED}",
        ),
        (
            (f"{UNCOMPILED}: as it is.",),
            f"Without the script's torch.compile, {WAITS} {FEWER} with mode='reduce-overhead' they would be launched "
            f"at once. {MEASURED}",
        ),
        (
            (f"{UNCAPTURED}: as it is.",),
            f"Without the script's CUDA graph, {WAITS} With it, what it holds is launched at once, {GRAPHS}",
        ),
        ((), WAITS),
    ],
)
def test_the_last_sentence_of_a_script_that_compiles_speaks_of_the_step_that_would_run(assumed, said):
    text = one_row(drawn(of_a_model(*assumed)).splitlines())
    assert text.endswith(f" {said}")


def test_instructions_of_casts_are_not_called_arithmetic():
    """A cast that issues instructions for 600 us of 1000 does no FLOP; the product beside it does."""
    product = replace(LAUNCHES[0], start_us=600, time_us=400, bound=Bound.COMPUTE)
    product = replace(product, kernel=replace(product.kernel, kind=Kind.MATMUL))
    cast = replace(product, start_us=0, time_us=600, kernel=replace(product.kernel, kind=Kind.COPY, flops=0))
    said = one_row(drawn(with_launches(cast, product)).splitlines()[-4:])
    assert said.startswith(
        "60.0 % of the busy time is spent on instructions (casts and copies), 40.0 % is spent on arithmetic (matmul)"
    )


@pytest.mark.parametrize("cause", IdleCause)
def test_every_cause_of_idling_has_its_words(cause):
    idle = replace(STEP, idle=(Idle(start_us=1900, time_us=100, cause=cause),))
    assert f"idle: {cause} 100 µs" in one_row(drawn(idle).splitlines()[:5])
    assert "idle for 5.0 % of the step, mostly because" in one_row(drawn(idle).splitlines()[-3:])


@pytest.mark.parametrize("bound", Bound)
def test_every_bound_has_its_words(bound):
    assert one_row(drawn(with_launches(replace(LAUNCHES[0], bound=bound))).splitlines()[-3:]).startswith(
        "100 % of the busy time"
    )


def test_a_busy_gpu_is_not_called_idle():
    busy = replace(STEP, step_us=1891, idle=(Idle(start_us=1890, time_us=1, cause=IdleCause.LAUNCH),))
    assert "idle for" not in drawn(busy)
