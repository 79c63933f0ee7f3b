"""Kernels, phases and totals: rates and shares worked by hand from the H200's sheet (4.8 TB/s)."""

from dataclasses import replace

from drawn import drawn, one_row, part
from steps_by_hand import LAUNCHES, STEP, kernel, launch, with_launches
from undertorch.gpus import find
from undertorch.records import Bound, Kind, Math, Origin, Phase
from undertorch.records.totals import phases_us
from undertorch.reports.terminal.runs import runs
from undertorch.reports.terminal.totals import utilisation

H200 = replace(find("H200"), memory_bandwidth=4.8e12, peaks={Math.TENSOR_BF16: 1e15})
"""With a round peak."""


def kernels(step, gpu=H200):
    return one_row(part(drawn(step, gpu=gpu), "Kernels"))


def test_a_kernel_that_waits_for_memory_has_its_bytes_a_second():
    """1.75 GB in 400 us are 4.375 TB/s, 91.1 % of 4.8."""
    assert (
        "400 µs 21.2 1 FusedAdamW optimizer, PyTorch · 1024 × 512 · occupancy 100 % (threads) · "
        "4.38 TB/s, 91.1 % of peak · memory"
    ) in kernels(STEP)


def test_a_kernel_that_waits_for_arithmetic_has_its_flops_a_second():
    """60 GFLOP in 300 us are 200 TFLOP/s, 20 % of 1000. Two launches of one kernel are one row."""
    assert (
        "600 µs 31.7 2 nvjet_backward matmul, cuBLAS · ~132 × 384 · occupancy 18.8 % (threads) · "
        "200 TFLOP/s, 20.0 % of peak · compute"
    ) in kernels(STEP)


def test_the_rate_is_the_one_that_comes_nearer_to_its_peak():
    """1 TB/s is 20.8 % of 4.8; 1 TFLOP/s is 0.1 % of 1000. What bounds it may be a third thing, and is said too."""
    slow = kernel("copy", read=10**8, flops=10**8, math=Math.TENSOR_BF16)
    step = with_launches(launch(slow, (1,), Phase.FORWARD, 0, 100, bound=Bound.COMPUTE))
    assert "1.00 TB/s, 20.8 % of peak · compute" in kernels(step)
    assert "1.00 TFLOP/s · compute" in kernels(step, gpu=None)


def test_without_a_sheet_there_is_no_share_of_a_peak():
    assert "4.38 TB/s · memory" in kernels(STEP, gpu=None)


def test_a_rate_is_left_out_where_the_bytes_are_not_known():
    assert (
        "layer_norm_grad_input_kernel_vectorized norm, PyTorch · 1024 × 256 · occupancy 100 % (threads) · memory"
        in (kernels(STEP))
    )


def test_a_rate_is_taken_over_the_launches_whose_bytes_are_known():
    """One launch of 1 GB in 250 us (4 TB/s), one of the same kernel with unknown bytes in 1000 us."""
    known = launch(kernel("k", read=10**9), (1,), Phase.FORWARD, 0, 250)
    unknown = launch(kernel("k", read=None, written=None, flops=None), (1,), Phase.FORWARD, 250, 1000)
    assert "4.00 TB/s, 83.3 % of peak" in kernels(with_launches(known, unknown))


def test_geometry_is_that_of_the_longest_launch():
    short = launch(kernel("k", grid=(7, 1, 1)), (1,), Phase.FORWARD, 0, 10)
    long = launch(kernel("k", grid=(9, 1, 1)), (1,), Phase.FORWARD, 10, 20)
    assert "9 × 256" in kernels(with_launches(short, long))
    assert "7 × 256" not in kernels(with_launches(short, long))


def test_kernels_beyond_the_first_twelve_are_summed_up():
    """Fifteen kernels of 10 us: three are left, 30 us, 20 %."""
    some = [launch(kernel(f"k{n}"), (1,), Phase.FORWARD, 10 * n, 10) for n in range(15)]
    assert kernels(with_launches(*some)).endswith("30 µs 20.0 3 3 more kernels")


def test_phases_shown_are_those_of_the_records():
    shown = {row.split()[0]: row for row in part(drawn(STEP), "Phases") if row.strip()}
    assert list(shown) == [str(phase) for phase in phases_us(STEP.launches)]
    assert " 950 µs  50.3 %      4 launches" in shown["backward"]
    assert shown["backward"].rstrip().endswith("compute 63 %")  # 600 of 950 us
    assert " 20 µs   1.1 %        1 launch" in shown["clip"]


def test_a_kernel_that_is_a_guess_is_said_to_be_one_where_it_is_predicted():
    """The costs' own words: `a guess by rules from few recordings`."""
    guessed = replace(LAUNCHES[0], kernel=replace(LAUNCHES[0].kernel, note="This one is a guess by rules."))
    assert "· a guess" in kernels(with_launches(guessed))
    assert "a guess" not in kernels(with_launches(LAUNCHES[0]))
    assert "a guess" not in kernels(with_launches(replace(guessed, time_origin=Origin.MEASURED)))


def test_what_bounds_a_phase_is_not_cut():
    """Of 400 us 292 are communication: 73 %."""
    some = [(0, 292, Bound.COMMUNICATION), (292, 108, Bound.MEMORY)]
    each = [replace(LAUNCHES[0], start_us=start, time_us=time, bound=bound) for start, time, bound in some]
    (row,) = (row for row in part(drawn(with_launches(*each)), "Phases") if row.strip())
    assert row.endswith("communication 73 %")
    assert len(row) <= 80


def test_phases_and_kernels_count_time_that_two_streams_share_once():
    """0–300 us, and 200–400 us on another stream: 300 and 100."""
    step = with_launches(
        launch(kernel("first"), (1,), Phase.FORWARD, 0, 300),
        launch(kernel("second"), (4,), Phase.BACKWARD, 200, 200, stream=13),
    )
    text = drawn(step)
    assert "forward" in (row := next(row for row in part(text, "Phases") if " 300 µs  75.0 %" in row)), row
    assert "backward" in (row := next(row for row in part(text, "Phases") if " 100 µs  25.0 %" in row)), row
    assert "100 µs 25.0 1 second" in kernels(step)


def test_totals_say_how_many_launches_they_leave_out():
    """FLOPs: 3 × 60 G + 1 G + 700 M + 100 M + 500 k; bytes: 400 M + 3 × 90 M + 300 M + 450 M + 1 M + 1.75 G + 30 M."""
    text = one_row(part(drawn(STEP), "Totals"))
    assert "launches 11, of 10 different kernels" in text
    assert "FLOPs 182 GFLOP, without 2 launches of which it is not known" in text
    assert "least bytes 3.20 GB, without 2 launches of which it is not known" in text


def test_model_flop_utilisation_counts_matmuls_over_the_whole_step():
    """180 GFLOP of 1000 TFLOP/s × 2 ms = 2 TFLOP: 9 %."""
    assert utilisation(STEP, H200).startswith("9.0 % ")
    assert "utilisation 9.0 % (model FLOP utilisation: 180 GFLOP" in one_row(part(drawn(STEP, gpu=H200), "Totals"))


def test_work_done_twice_is_no_model_work():
    again = replace(LAUNCHES[4], phase=Phase.RECOMPUTE)
    step = with_launches(*LAUNCHES[:4], again, *LAUNCHES[5:])
    assert utilisation(step, H200).startswith("6.0 % ")


def test_two_gpus_could_have_done_twice_as_much():
    step = with_launches(*LAUNCHES[:4], replace(LAUNCHES[4], device=1), *LAUNCHES[5:])
    assert utilisation(step, H200).startswith("4.5 % ")


def test_utilisation_is_unknown_without_a_sheet_a_wall_time_a_matmul_or_a_peak():
    assert utilisation(STEP, None) == "–"
    assert utilisation(replace(STEP, step_us=None), H200) == "–"
    assert utilisation(with_launches(LAUNCHES[0]), H200) == "–"
    assert utilisation(STEP, replace(H200, peaks={})) == "–"


def test_runs_keep_the_order_and_the_ops_of_the_launches():
    assert [run.launch for run in runs(STEP)] == list(LAUNCHES)
    assert [None if run.op is None else run.op.id for run in runs(STEP)] == [*range(10), None]


def copied(step_us=2000):
    """64 MB in 2 ms are 32 GB/s: half of PCIe 5.0's 64 GB/s (and 0.7 % of the memory's bandwidth)."""
    copy = kernel("Memcpy HtoD (Pinned -> Device)", Kind.MEMCPY, grid=None, block=None, written=64_000_000)
    return with_launches(launch(copy, (1,), Phase.FORWARD, 0, step_us, bound=Bound.LINK, occupancy=None, limiter=None))


def test_a_copy_from_the_host_is_held_against_the_link():
    assert "32.0 GB/s, 50.0 % of the link's peak · link" in kernels(copied())


def test_the_summary_says_what_goes_to_copies_between_host_and_gpu():
    last = one_row(drawn(copied(), gpu=H200).splitlines()[-5:])
    assert "100 % of the busy time goes to copies between host and GPU" in last
