"""Traces of a few events written by hand, of which the answer is known: lines, phases, steps, why the GPU waited."""

import pytest

from steps.traces.by_hand import BACKWARD, Script
from undertorch.cli.main import run
from undertorch.records import Bound, IdleCause, Kind, Phase, Where
from undertorch.steps.compare import compare
from undertorch.steps.traces import see_trace

NODE = "autograd::engine::evaluate_function: "


def training() -> Script:
    """Forward, loss, backward in a thread of its own, clipping, update; kernels of 10 µs, 10 µs apart, from 100 on."""
    script = Script()
    starts = iter(range(100, 1000, 20))

    def launches(ts: float, tid: int = 100) -> None:
        script.kernel("kernel", ts, next(starts), 10, tid)

    script.range("train.py(10): main", 0, 300, "python_function")
    script.range("train.py(20): step", 1, 298, "python_function")
    script.range("model.py(5): forward", 2, 20, "python_function")
    script.range("nn.Module: Net_0", 2, 20, "python_function")
    script.range("nn.Module: Linear_1", 3, 10, "python_function")
    script.range("torch/nn/modules/linear.py(130): forward", 4, 8, "python_function")
    script.call("aten::linear", 5, 6, **{"Sequence number": 7, "Fwd thread id": 0})
    script.call("aten::addmm", 6, 4, **{"Sequence number": 7, "Fwd thread id": 0})
    launches(7)
    script.call("aten::mse_loss", 30, 5, **{"Sequence number": 8, "Fwd thread id": 0})
    launches(31)
    script.range("torch/_tensor.py(600): backward", 38, 60, "python_function")
    script.range(NODE + "MseLossBackward0", 40, 8, "cpu_op", BACKWARD, **{"Sequence number": 8, "Fwd thread id": 1})
    script.call("aten::mse_loss_backward", 41, 6, BACKWARD)
    launches(42, BACKWARD)
    script.range(NODE + "AddmmBackward0", 50, 20, "cpu_op", BACKWARD, **{"Sequence number": 7, "Fwd thread id": 1})
    script.call("aten::relu", 51, 6, BACKWARD, **{"Sequence number": 30, "Fwd thread id": 0})
    launches(52, BACKWARD)
    script.call("aten::mm", 60, 6, BACKWARD)
    launches(61, BACKWARD)
    script.range(NODE + "torch::autograd::AccumulateGrad", 75, 8, "cpu_op", BACKWARD, **{"Sequence number": 2**40})
    script.call("aten::add_", 76, 6, BACKWARD)
    launches(77, BACKWARD)
    script.call("aten::_foreach_norm", 110, 5)
    launches(111)
    script.range("Optimizer.step#SGD.step", 120, 20)
    script.call("aten::_foreach_add_", 125, 8)
    launches(126)
    script.range("Optimizer.zero_grad#SGD.zero_grad", 150, 20)
    script.call("aten::zero_", 152, 8)
    launches(153)
    return script


def test_phases_are_told_by_the_engines_ranges_the_optimizers_and_what_lies_between(tmp_path):
    step, _ = see_trace(training().write(tmp_path))
    assert [launch.phase for launch in step.launches] == [
        *(Phase.FORWARD, Phase.LOSS, Phase.BACKWARD, Phase.RECOMPUTE, Phase.BACKWARD),
        *(Phase.ACCUMULATE, Phase.CLIP, Phase.UPDATE, Phase.OTHER),
    ]


def test_a_call_is_the_outermost_that_autograd_does_not_take_apart(tmp_path):
    step, _ = see_trace(training().write(tmp_path))
    assert [step.ops[launch.ops[0]].name for launch in step.launches][:3] == [
        *("aten::addmm", "aten::mse_loss", "aten::mse_loss_backward"),
    ]


def test_backward_has_the_place_of_the_forward_with_its_sequence_number(tmp_path):
    step, _ = see_trace(training().write(tmp_path))
    ops = {op.name: op for op in step.ops}
    forward, backward = ops["aten::addmm"], ops["aten::mm"]
    assert forward.where == backward.where == Where(file="model.py", line=5, function="forward")
    assert forward.chain == (
        Where(file="train.py", line=20, function="step"),
        Where(file="train.py", line=10, function="main"),
    )
    assert (forward.module, backward.module) == ("Net_0.Linear_1", "Net_0.Linear_1")
    assert (backward.forward, backward.node) == (forward.id, "AddmmBackward0")
    assert ops["aten::add_"].where == Where(file="train.py", line=20, function="step"), "who called backward()"


def test_a_marker_names_the_line_that_ran(tmp_path):
    script = Script()
    script.call("line:model.py:31", 0, 10)
    script.call("aten::add", 1, 8)
    script.kernel("kernel", 2, 20, 5)
    step, _ = see_trace(script.write(tmp_path))
    assert step.ops[0].where == Where(file="model.py", line=31, function="")
    assert not any("`def`" in one.what for one in step.accounting.assumed)


def test_a_kernel_whose_launch_is_not_there_has_no_call_and_no_phase(tmp_path):
    script = Script()
    script.call("aten::add", 0, 10)
    script.kernel("kernel", 2, 20, 5)
    script.events[-1]["args"]["correlation"] = 99
    step, _ = see_trace(script.write(tmp_path))
    (launch,) = step.launches
    assert (launch.ops, launch.phase) == ((), Phase.OTHER)
    assert step.accounting.time_with_line == 0
    assert any("1 launch has no call" in one.what for one in step.accounting.assumed)


def test_one_launch_of_a_graph_is_that_of_many_kernels(tmp_path):
    script = Script()
    script.call("graph", 0, 10)
    script.kernel("first", 2, 20, 5)
    script.kernel("second", 2, 30, 5)
    script.events[-1]["args"]["correlation"] = 1
    step, _ = see_trace(script.write(tmp_path))
    assert [launch.ops for launch in step.launches] == [(0,), (0,)]


def test_a_launch_without_its_kernel_is_lost(tmp_path):
    script = Script()
    script.call("aten::add", 0, 10)
    for starts in (20, 30, 40):
        script.kernel("kernel", starts / 10, starts, 5)
    del script.events[-3]
    step, _ = see_trace(script.write(tmp_path))
    assert step.accounting.lost_launches == 1


def waiting(between) -> Script:
    """Two kernels with 50 µs between them; `between` writes what the CPU did."""
    script = Script()
    script.call("aten::add", 0, 10)
    script.kernel("first", 2, 10, 10)
    between(script)
    script.call("aten::mul", 60, 10)
    script.kernel("second", 65, 70, 10)
    return script


@pytest.mark.parametrize(
    ("between", "cause"),
    [
        pytest.param(lambda script: None, IdleCause.LAUNCH, id="a slow CPU"),
        pytest.param(
            lambda script: script.range("cudaStreamSynchronize", 12, 9, "cuda_runtime"), IdleCause.SYNC, id=".item()"
        ),
        pytest.param(
            lambda script: script.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 12, 40),
            IdleCause.DATA,
            id="the next batch",
        ),
        pytest.param(
            lambda script: script.range("cudaStreamSynchronize", 3, 2, "cuda_runtime"),
            IdleCause.LAUNCH,
            id="a wait that was over before",
        ),
    ],
)
def test_why_the_gpu_waited(tmp_path, between, cause):
    step, _ = see_trace(waiting(between).write(tmp_path))
    (idle,) = step.idle
    assert (idle.start_us, idle.time_us, idle.cause) == (10, 50, cause)


def test_a_gap_with_the_queue_full_is_the_gpus_own(tmp_path):
    script = Script()
    script.call("aten::add", 0, 10)
    script.kernel("first", 2, 20, 10)
    script.kernel("second", 5, 32, 10)
    step, _ = see_trace(script.write(tmp_path))
    assert [(idle.time_us, idle.cause) for idle in step.idle] == [(2, IdleCause.GAP)]


def test_a_short_kernel_that_the_cpu_was_late_with_is_bound_by_its_launch(tmp_path):
    step, _ = see_trace(waiting(lambda script: None).write(tmp_path))
    assert [launch.bound for launch in step.launches] == [None, Bound.LAUNCH]


def steps(lengths) -> Script:
    """Steps that launch ahead of the GPU, each one kernel of that length."""
    script = Script()
    starts = 100.0
    for number, length in enumerate(lengths):
        script.range(f"ProfilerStep#{number + 5}", 10 * number, 9)
        script.call("aten::add", 10 * number + 1, 6)
        script.kernel("kernel", 10 * number + 2, starts, length)
        starts += length
    return script


@pytest.mark.parametrize(("lengths", "shown"), [([900, 10, 30, 20], 8), ([900, 20, 10], 7), ([40, 30], 6), ([40], 5)])
def test_the_step_of_median_length_is_shown_the_first_left_out(tmp_path, lengths, shown):
    step, _ = see_trace(steps(lengths).write(tmp_path))
    assert step.environment.step == shown
    assert step.step_us == lengths[shown - 5]
    assert step.launches[0].start_us == 0


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_a_kernel_whose_launch_is_lost_stays_with_its_neighbours_on_the_stream(tmp_path, lost):
    """The CPU is through with all steps before the GPU begins the second: when one ran does not tell whose it is."""
    script = Script()
    for number in range(3):
        script.range(f"ProfilerStep#{number}", 10 * number, 9)
        for place in range(3):
            script.kernel("kernel", 10 * number + 2 * place, 100 + 60 * number + 20 * place, 20)
    script.events = [e for e in script.events if (e["cat"], e["args"].get("correlation")) != ("cuda_runtime", lost + 2)]
    for number in range(3):
        step, _ = see_trace(script.write(tmp_path), step=number)
        # Of a step's first kernel nothing tells that it is not the last of the step before.
        more = {(2, 0): 1, (2, 1): -1}.get((lost, number), 0)
        assert (step.step_us, len(step.launches)) == (60 + 20 * more, 3 + more)


def test_what_ran_before_anything_that_was_launched_in_a_step_is_in_none(tmp_path):
    script = steps([30, 40])
    script.kernel("kernel", -50, 40, 60)
    script.events = [event for event in script.events if event["ts"] != -50]
    for number, length in ((5, 30), (6, 40)):
        step, _ = see_trace(script.write(tmp_path), step=number)
        assert (step.step_us, len(step.launches)) == (length, 1)


def test_two_steps_measured_can_be_compared(tmp_path):
    before, _ = see_trace(steps([10, 30]).write(tmp_path))
    after, _ = see_trace(steps([10, 20]).write(tmp_path))
    assert compare(before, after).step_us.difference == -10


def test_shapes_give_bytes_and_flops(tmp_path):
    """A linear layer of 1024 rows, 256 to 512: 2 · 1024 · 256 · 512 FLOPs; each operand once."""
    script = Script()
    shapes = {
        "Input Dims": [[512], [1024, 256], [256, 512], [], []],
        "Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"],
        "Input Strides": [[1], [256, 1], [1, 256], [], []],
        "Concrete Inputs": ["", "", "", "1", "1"],
    }
    script.call("aten::addmm", 0, 10, **shapes)
    script.kernel("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", 2, 20, 5)
    step, _ = see_trace(script.write(tmp_path))
    (launch,) = step.launches
    assert launch.kernel.kind is Kind.MATMUL
    assert launch.kernel.flops == 2 * 1024 * 256 * 512
    assert launch.kernel.min_bytes == 2 * (512 + 1024 * 256 + 256 * 512 + 1024 * 512)
    assert step.ops[0].outputs[0].shape == (1024, 512)


def test_a_copy_of_a_transposed_tensor_has_its_bytes(tmp_path):
    """As GPT-2's backward makes one: the five strides multiply to 4e19, and the memory format is a number (0)."""
    script = Script()
    shapes = {
        "Input Dims": [[16, 1024, 3, 12, 64], []],
        "Input type": ["c10::BFloat16", "Scalar"],
        "Input Strides": [[786432, 64, 12582912, 65536, 1], []],
        "Concrete Inputs": ["", "0"],
    }
    script.call("aten::clone", 0, 10, **shapes)
    script.kernel("void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(T)>", 2, 20, 60)
    step, _ = see_trace(script.write(tmp_path))
    (launch,) = step.launches
    assert launch.kernel.min_bytes == 2 * 2 * 16 * 1024 * 3 * 12 * 64
    assert step.ops[0].outputs[0].strides == (2359296, 2304, 768, 64, 1)


@pytest.mark.parametrize(("name", "size"), [("OpaqueType<2u>", 2), ("OpaqueType<8u>", 8), ("float", None)])
def test_the_elements_of_a_list_are_as_large_as_the_kernel_says_that_joins_them(tmp_path, name, size):
    """The profiler writes shapes of a short list, and no dtypes."""
    script = Script()
    shapes = {
        "Input Dims": [[[16, 12, 64], [16, 20, 64]], []],
        "Input type": ["TensorList", "Scalar"],
        "Input Strides": [[[768, 64, 1], [1280, 64, 1]], []],
        "Concrete Inputs": ["", "1"],
    }
    script.call("aten::cat", 0, 10, **shapes)
    kernel = f"void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::{name}, unsigned int, 4, 64, 64>"
    script.kernel(kernel, 2, 20, 60)
    step, _ = see_trace(script.write(tmp_path))
    (launch,) = step.launches
    assert launch.kernel.min_bytes == (None if size is None else 2 * size * 16 * 32 * 64)


def test_without_shapes_they_are_unknown_and_the_reader_is_told_what_would_help(tmp_path):
    step, _ = see_trace(training().write(tmp_path))
    assert all(launch.kernel.min_bytes is None for launch in step.launches)
    assert any("record_shapes=True" in one.what for one in step.accounting.assumed)


def test_page_and_perfetto_are_written_of_it(tmp_path, capsys):
    page, perfetto = tmp_path / "page.html", tmp_path / "perfetto.json"
    arguments = ["see", "--page", str(page), "--perfetto", str(perfetto), str(training().write(tmp_path))]
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    assert "times measured" in out
    assert err == ""
    assert page.stat().st_size > 10_000
    assert perfetto.stat().st_size > 1000


def test_a_product_cut_into_other_kernels_has_its_flops_where_it_ran_longest(tmp_path):
    """A convolution as cuDNN's Winograd does it on a V100: 8 images of 64 × 56 × 56, 64 filters of 3 × 3."""
    script = Script(gpu="Tesla V100-SXM2-32GB")
    shapes = {
        "Input Dims": [[8, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []],
        "Input type": ["float", "float", "", *["ScalarList"] * 3, "Scalar", "ScalarList", "Scalar"],
        "Input Strides": [[200704, 3136, 56, 1], [576, 9, 3, 1], [], [], [], [], [], [], []],
        "Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
    }
    script.call("aten::convolution", 0, 20, **shapes)
    script.call("aten::cudnn_convolution", 1, 18)
    for launched, (name, lasts) in enumerate(
        [("winogradForwardData4x4", 10), ("winogradForwardFilter4x4", 3), ("volta_sgemm_128x32_nt", 90)]
    ):
        script.kernel(f"void cudnn::winograd_nonfused::{name}()", 3 + 3 * launched, 100 + 100 * launched, lasts)
    step, _ = see_trace(script.write(tmp_path))
    flops = {launch.kernel.name: launch.kernel.flops for launch in step.launches}
    assert flops == {
        "winogradForwardData4x4": None,
        "winogradForwardFilter4x4": None,
        "volta_sgemm_128x32_nt": 2 * 8 * 56 * 56 * 64 * 64 * 9,
    }


def test_stacks_slow_the_cpu_which_is_said_where_the_gpu_waited_for_it(tmp_path):
    script = waiting(lambda script: None)
    plain, _ = see_trace(script.write(tmp_path))
    script.range("train.py(20): step", 0, 90, "python_function")
    slowed, _ = see_trace(script.write(tmp_path))
    assert ["slows the CPU" in " ".join(one.what for one in step.accounting.assumed) for step in (plain, slowed)] == [
        False,
        True,
    ]
