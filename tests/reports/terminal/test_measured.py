"""The report of a measured step: what it leaves out, and what it says first."""

from dataclasses import replace

from drawn import drawn, one_row, part
from steps_by_hand import LAUNCHES, STEP, with_launches
from undertorch.gpus import find
from undertorch.records import Idle, IdleCause, Origin, Step


def measured(step: Step = STEP) -> Step:
    launches = tuple(replace(launch, time_origin=Origin.MEASURED) for launch in step.launches)
    return replace(step, launches=launches, time_origin=Origin.MEASURED)


def test_a_sheet_without_verified_times_matters_to_predictions_only():
    sheet = replace(find("H200"), verified=False)
    assert "unverified" in drawn(STEP, gpu=sheet)
    assert "unverified" not in drawn(measured(), gpu=sheet)


def test_bounds_are_computed_from_measured_times():
    """Of the eleven launches two have no bound."""
    assert "times measured; bounds computed 9, none 2;" in one_row(part(drawn(measured()), "Accounting"))
    assert "times and bounds predicted;" in one_row(part(drawn(STEP), "Accounting"))


def test_samples_that_no_trace_tells_have_no_row():
    assert "samples" in drawn(replace(STEP, samples=None))
    assert "samples" not in drawn(replace(measured(), samples=None))
    assert "samples      32 a step" in drawn(measured())


def test_of_many_kernels_the_longest_are_named_and_the_rest_is_counted():
    """Ten kernels of 100 to 109 µs in an order that is not that of their times."""
    some = [
        replace(
            LAUNCHES[1],
            start_us=1000.0 * place,
            time_us=100.0 + (7 * place) % 10,
            kernel=replace(LAUNCHES[1].kernel, name=f"kernel_{(7 * place) % 10}", min_bytes_read=None, flops=None),
            bound=None,
        )
        for place in range(10)
    ]
    said = one_row(part(drawn(measured(with_launches(*some))), "Accounting"))
    assert (
        "The bytes, FLOPs and bound of 10 launches (1.04 ms, 100 % of the busy time) are not known: "
        "kernel_9, kernel_8, kernel_7 and 7 more kernels." in said
    )


def test_zero_flops_of_copies_are_not_the_sum_of_what_is_not_known():
    """A memset does none, the other is unknown: their sum is too."""
    memset = next(launch for launch in LAUNCHES if launch.kernel.name == "Memset")
    unknown = replace(LAUNCHES[1], kernel=replace(LAUNCHES[1].kernel, flops=None))
    row = next(row for row in part(drawn(with_launches(memset, unknown)), "Totals") if "FLOPs" in row)
    assert row.split() == ["FLOPs", "–"]


def test_a_gpu_that_is_idle_for_most_of_the_step_comes_first_in_the_sentence():
    idle = Idle(start_us=0, time_us=1500, cause=IdleCause.LAUNCH)
    step = replace(with_launches(LAUNCHES[0]), idle=(idle,), step_us=2000)
    sentence = one_row(drawn(step).split("\n\n")[-1].splitlines())
    assert sentence.startswith(
        "The GPU is idle for 75.0 % of the step, mostly because the CPU is too slow in launching;"
    )
    assert "100 % of the busy time" in sentence


def test_where_most_bounds_are_not_known_the_kinds_of_kernels_are_told():
    some = [replace(launch, bound=None, start_us=1000.0 * place) for place, launch in enumerate(LAUNCHES[:2])]
    whole = sum(launch.time_us for launch in some)
    sentence = one_row(drawn(with_launches(*some)).split("\n\n")[-1].splitlines())
    kinds = {}
    for launch in some:
        kinds[launch.kernel.kind] = kinds.get(launch.kernel.kind, 0) + launch.time_us
    longest = max(kinds, key=lambda kind: kinds[kind])
    assert f"has no known bound ({longest} {100 * kinds[longest] / whole:.1f} %" in sentence
