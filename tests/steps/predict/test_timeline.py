"""A queue of kernels, laid out by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from undertorch import gpus
from undertorch.records import (
    Bound,
    Environment,
    IdleCause,
    Kernel,
    Kind,
    Launch,
    Memory,
    Op,
    Origin,
    Phase,
    Recording,
)
from undertorch.steps.predict import predict, shares
from undertorch.steps.predict.timeline import Costed, lay_out

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
H200 = replace(gpus.find("H200"), launch_gap_us=1.0)


def costed(number: int, time_us: float | None, name: str = "aten::add", bound: Bound = Bound.MEMORY) -> Costed:
    op = Op(id=number, name=name, overload="default", where=None, phase=Phase.FORWARD, arguments=(), outputs=())
    kernel = Kernel(
        name="k", kind=Kind.ELEMENTWISE, library="PyTorch", grid=(1, 1, 1), block=(32, 1, 1),
        geometry_origin=Origin.COMPUTED, min_bytes_read=0, min_bytes_written=0, flops=0,
    )  # fmt: skip
    launch = Launch(
        kernel=kernel, ops=(number,), phase=Phase.FORWARD, stream=0, start_us=0.0, time_us=time_us or 0.0,
        time_origin=Origin.PREDICTED, bound=bound,
    )  # fmt: skip
    return Costed(op=op, launches=(launch,) if time_us is not None else ())


def test_long_kernels_follow_each_other_at_the_gap():
    """Ten kernels of 1000 µs and ten gaps of 1 µs: the CPU is far ahead."""
    found = lay_out([costed(i, 1000.0) for i in range(10)], H200)
    assert found.step_us == pytest.approx(10 * 1001)
    assert all(launch.bound is Bound.MEMORY for launch in found.launches)
    assert found.launches[1].start_us - found.launches[0].end_us == pytest.approx(1.0)


def test_short_kernels_wait_for_the_cpu():
    """A hundred kernels of 0.5 µs take as long as the CPU needs for a hundred ops, and say so."""
    found = lay_out([costed(i, 0.5, bound=Bound.LATENCY) for i in range(100)], H200)
    assert found.step_us == pytest.approx(100 * shares.HOST_OP_US, rel=0.01)
    assert all(launch.bound is Bound.LAUNCH for launch in found.launches)
    assert all(idle.cause is IdleCause.LAUNCH for idle in found.idle)


def test_a_host_that_is_twice_as_fast_needs_half_the_time_and_the_gpu_all_of_its_own():
    fast = replace(H200, host_speed=2.0)
    short = lay_out([costed(i, 0.5, bound=Bound.LATENCY) for i in range(100)], fast)
    assert short.step_us == pytest.approx(100 * shares.HOST_OP_US / 2, rel=0.01)
    long = [costed(i, 1000.0) for i in range(10)]
    assert lay_out(long, fast).step_us == pytest.approx(lay_out(long, H200).step_us)


def test_a_step_beside_another_host_says_so():
    recording = Recording(
        gpu="H200", ops=(), samples=None, assumptions=(),
        memory=Memory(peak_bytes=None, peak_op=None, start_bytes=None, origin=Origin.COMPUTED),
        environment=Environment(script="train.py", step=2),
    )  # fmt: skip
    said = [one.what for one in predict(recording, replace(H200, host_speed=2.5)).accounting.assumed]
    assert said == ["the CPU is taken to launch 2.5 times as fast as the server that its times were measured on."]
    assert predict(recording, H200).accounting.assumed == ()


def test_a_long_kernel_that_comes_late_is_still_bound_by_what_bounds_it():
    found = lay_out([costed(i, 5.0) for i in range(20)], H200)
    assert {launch.bound for launch in found.launches} == {Bound.MEMORY}
    assert any(idle.cause is IdleCause.LAUNCH for idle in found.idle)


def test_what_is_idle_after_a_read_is_owed_to_the_line_that_read():
    """The queue is empty when the value has come; the next launch comes late because of it."""
    items = [costed(0, 10_000.0), costed(1, 1.0, "aten::_local_scalar_dense"), *(costed(i, 9000.0) for i in (2, 3))]
    found = lay_out(items, H200)
    assert [idle.cause for idle in found.idle] == [IdleCause.GAP, IdleCause.GAP, IdleCause.SYNC, IdleCause.GAP]


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamSynchronize"])
def test_what_waits_launches_nothing_and_is_owed_what_comes_late(name):
    items = [costed(0, 10_000.0), costed(1, None, name), *(costed(i, 9000.0) for i in (2, 3))]
    found = lay_out(items, H200)
    assert len(found.launches) == 3
    assert [idle.cause for idle in found.idle] == [IdleCause.GAP, IdleCause.SYNC, IdleCause.GAP]


@pytest.mark.parametrize(("to_host", "cause"), [(True, IdleCause.SYNC), (False, IdleCause.GAP)])
def test_an_index_waits_for_the_gpu_where_it_is_a_mask(to_host, cause):
    """`x[mask]` counts what the mask names and reads the count; `x[rows]` reads nothing."""
    index = costed(1, 1.0, "aten::index")
    if to_host:
        kernel = replace(index.launches[0].kernel, name="Memcpy DtoH (Device -> Pinned)", kind=Kind.MEMCPY)
        index = replace(index, launches=(replace(index.launches[0], kernel=kernel),))
    found = lay_out([costed(0, 10_000.0), index, *(costed(i, 9000.0) for i in (2, 3))], H200)
    assert found.idle[2].cause is cause


def test_views_cost_cpu_time_only():
    found = lay_out([costed(0, 0.5), *(costed(i, None) for i in range(1, 51))], H200)
    assert len(found.launches) == 1
    assert found.step_us == pytest.approx(shares.HOST_OP_US + 50 * shares.HOST_VIEW_US, rel=0.01)


def test_own_ops_cost_the_cpu_what_was_measured_beside_an_h200():
    """benchmarks/results/ops_overhead.json: a call, and a backward by torch.autograd.grad, of whose time torch's own
    softmax has 36 µs for its Op and the rest for the call."""
    rows = json.loads((RESULTS / "ops_overhead.json").read_text("utf-8"))["rows"]
    softmax = next(row for row in rows if row["op"] == "softmax")
    grad_call = softmax["torch_backward_us"] - shares.HOST_OP_US
    for row in rows:
        for part, measured in (("forward", row["forward_us"]), ("backward", row["backward_us"] - grad_call)):
            name = f"undertorch::{row['op']}_{part}"
            found = lay_out([costed(i, 0.5, name) for i in range(50)], H200)
            assert found.step_us / 50 == pytest.approx(measured, rel=0.05, abs=3.0), name


def test_a_value_read_back_makes_the_cpu_wait_so_that_the_gpu_runs_dry():
    """One kernel of 10 ms, `.item()`, then fifty short ones: without the read they would hide behind the long one."""
    long, short = costed(0, 10_000.0), [costed(i, 0.5) for i in range(2, 52)]
    with_read = lay_out([long, costed(1, 1.0, "aten::_local_scalar_dense"), *short], H200)
    without = lay_out([long, costed(1, 1.0), *short], H200)
    assert with_read.step_us > without.step_us + 40 * (shares.HOST_OP_US - 2)


def test_launches_and_idle_fill_the_step():
    found = lay_out([costed(i, 5.0 if i % 3 else 40.0) for i in range(60)], H200)
    ran = sum(launch.time_us for launch in found.launches)
    assert ran + sum(idle.time_us for idle in found.idle) == pytest.approx(found.step_us)
    starts = [launch.start_us for launch in found.launches]
    assert starts == sorted(starts)
    assert starts[0] >= 0


def test_an_empty_step_takes_no_time():
    assert lay_out([], H200).step_us == 0
