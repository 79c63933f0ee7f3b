"""Traces that others recorded (tests/golden/traces) and our own GPT-2 step, against plain counts of their events."""

import gzip
import json
from collections import Counter
from functools import cache

import pytest

from steps.traces.by_hand import events, of, on_gpu, path
from undertorch import gpus
from undertorch.records import IdleCause, Kind, Origin, Phase, Step
from undertorch.records.files import from_json, to_json
from undertorch.records.totals import busy_us, lines, phases_us
from undertorch.steps.traces import BadTrace, see_trace

GPUS = {
    "b200_eager_inference": "B200",
    "h100_qwen_inference": "H100-SXM",
    "h200_gpt2_train": "H200",
    "mi250_toy_train": "MI250X",
    "mi300_resnet_checkpoint_train": "MI300X",
    "normalization_layers": "MI300X",
    "v100_resnet_train": "V100-SXM2-32GB",
}
WHOLE = ("b200_eager_inference", "h200_gpt2_train", "mi250_toy_train", "normalization_layers")
"""All that ran on the GPU belongs to the step that is shown."""


@cache
def step(name: str) -> Step:
    # The driver of that MI250 calls it `AMD Radeon Graphics`.
    return see_trace(path(name), gpus.find("MI250X") if name.startswith("mi250") else None)[0]


@pytest.mark.parametrize("name", GPUS)
def test_the_gpu_is_the_one_that_the_trace_names(name):
    assert step(name).gpu == GPUS[name]
    assert step(name).time_origin is Origin.MEASURED


def test_a_gpu_without_a_sheet_is_said_with_its_name():
    with pytest.raises(BadTrace, match=r"'AMD Radeon Graphics', of which there is no sheet; pass --gpu .*\.$"):
        see_trace(path("mi250_toy_train"))


@pytest.mark.parametrize("name", WHOLE)
def test_every_event_on_the_gpu_is_a_launch_with_its_time(name):
    there = on_gpu(events(name))
    launches = step(name).launches
    assert len(launches) == len(there)
    assert sum(launch.time_us for launch in launches) == pytest.approx(sum(event["dur"] for event in there))
    first = min(event["ts"] for event in there)
    assert step(name).step_us == pytest.approx(max(event["ts"] + event["dur"] for event in there) - first)


@pytest.mark.parametrize("name", GPUS)
def test_busy_is_the_union_and_with_the_idle_times_makes_the_step(name):
    shown = step(name)
    covered, busy = 0.0, 0.0
    for launch in sorted(shown.launches, key=lambda launch: launch.start_us):
        busy += max(0.0, launch.end_us - max(covered, launch.start_us))
        covered = max(covered, launch.end_us)
    assert busy_us(shown.launches) == pytest.approx(busy, rel=1e-6)
    # Moments of the V100's trace, from 1970 on, are exact to a quarter of a microsecond only.
    assert busy + sum(idle.time_us for idle in shown.idle) == pytest.approx(shown.step_us, rel=1e-4)


@pytest.mark.parametrize("name", ["b200_eager_inference", "h200_gpt2_train", "v100_resnet_train"])
def test_grid_block_registers_and_shared_memory_are_the_profilers(name):
    recorded = Counter(
        (
            tuple(event["args"]["grid"]),
            tuple(event["args"]["block"]),
            event["args"]["registers per thread"],
            event["args"]["shared memory"],
        )
        for event in of(events(name), "kernel")
    )
    shown = Counter(
        (launch.kernel.grid, launch.kernel.block, launch.kernel.registers, launch.kernel.shared_bytes)
        for launch in step(name).launches
        if launch.kernel.grid is not None
    )
    assert shown.total() > 500
    assert shown <= recorded


def test_occupancy_is_what_the_profiler_estimates_where_blocks_are_plenty():
    """Kineto works it out with NVIDIA's cuda_occupancy.h, and lowers it where the grid does not fill the GPU."""
    shown = step("h200_gpt2_train")
    there = sorted(on_gpu(events("h200_gpt2_train")), key=lambda event: event["ts"])
    compared = 0
    for launch, event in zip(shown.launches, there, strict=True):
        if event["cat"] == "kernel" and launch.kernel.blocks > 132 * 32:
            assert 100 * launch.occupancy == pytest.approx(event["args"]["est. achieved occupancy %"], abs=1)
            compared += 1
    assert compared > 250


def test_on_amd_a_grid_of_threads_is_shown_in_blocks():
    """hipExtModuleLaunchKernel takes threads (hip_ext.h), hipLaunchKernel blocks; this trace has both at the launches.

    The toy's linear layer of 5 × 128 by 128 × 128 cannot have 512 blocks of a 64 × 16 tile.
    """
    launches = step("mi250_toy_train").launches
    product = next(launch.kernel for launch in launches if launch.kernel.name.startswith("Cijk_Alik"))
    assert (product.grid, product.block) == ((2, 1, 1), (256, 1, 1))
    optimizer = next(launch.kernel for launch in launches if launch.kernel.name.startswith("multi_tensor_apply"))
    assert (optimizer.grid, optimizer.block) == ((2, 1, 1), (512, 1, 1))


def test_a_copy_has_its_bytes_where_only_its_launch_names_them():
    """`size` of hipMemcpyWithStream: 5 × 128 float32."""
    copies = [launch.kernel for launch in step("mi250_toy_train").launches if launch.kernel.kind is Kind.MEMCPY]
    assert [copy.min_bytes_written for copy in copies] == [5 * 128 * 4] * 2


@pytest.mark.parametrize("name", GPUS)
def test_phases_and_lines_sum_to_the_busy_time_and_the_step_survives_its_file(name):
    shown = step(name)
    busy = busy_us(shown.launches)
    assert sum(phases_us(shown.launches).values()) == pytest.approx(busy)
    assert sum(line.time_us for line in lines(shown)) == pytest.approx(busy)
    assert from_json(to_json([shown]), "step") == (shown,)


@pytest.mark.parametrize("name", GPUS)
def test_unknown_is_none_and_listed_never_zero(name):
    shown = step(name)
    unknown = [launch for launch in shown.launches if launch.kernel.min_bytes is None]
    for launch in unknown:
        assert launch.kernel.bytes_origin is None
        assert launch.kernel.flops == (0 if launch.kernel.library == "driver" else None)
    said = " ".join(one.what for one in shown.accounting.assumed)
    assert ("not known" in said) == bool(unknown)


def test_gpt2_backward_and_update_are_told_by_thread_and_range():
    """By plain JSON: what was launched in the autograd engine's thread is backward, in Optimizer.step update."""
    found = events("h200_gpt2_train")
    runtime = {e["args"]["correlation"]: e for e in of(found, "cuda_runtime", "cuda_driver")}
    (update,) = (e for e in found if e["name"] == "Optimizer.step#AdamW.step" and e["cat"] == "user_annotation")
    backward_thread = next(e["tid"] for e in found if e["name"].startswith("autograd::engine"))
    spent = {"backward": 0.0, "update": 0.0}
    for event in on_gpu(found):
        launch = runtime[event["args"]["correlation"]]
        if launch["tid"] == backward_thread:
            spent["backward"] += event["dur"]
        elif update["ts"] <= launch["ts"] <= update["ts"] + update["dur"]:
            spent["update"] += event["dur"]
    shown = step("h200_gpt2_train")
    phases = Counter()
    for launch in shown.launches:
        phases[launch.phase] += launch.time_us
    assert phases[Phase.BACKWARD] + phases[Phase.ACCUMULATE] == pytest.approx(spent["backward"])
    assert phases[Phase.UPDATE] == pytest.approx(spent["update"])
    assert phases[Phase.CLIP] > 0


def test_gpt2s_lines_are_those_of_its_markers():
    """All GPU time has a line (the script that recorded it found the same), and backward that of its forward."""
    shown = step("h200_gpt2_train")
    assert shown.accounting.time_with_line == pytest.approx(1.0)
    by_id = {op.id: op for op in shown.ops}
    backward = [op for op in shown.ops if op.phase is Phase.BACKWARD and op.forward is not None]
    assert len(backward) > 200
    for op in backward:
        assert op.where == by_id[op.forward].where
        assert by_id[op.forward].phase in (Phase.FORWARD, Phase.LOSS)


def test_gpt2s_flops_follow_from_its_shapes():
    """6 FLOPs a weight and token; of attention two products forward and five backward over half the scores."""
    tokens, width, layers, context = 32 * 1024, 768, 12, 1024
    weights = layers * 12 * width**2 + 50304 * width
    scores = 32 * 12 * context * (context + 1) // 2
    shown = [launch.kernel for launch in step("h200_gpt2_train").launches]
    beside = ("splitKreduce", "compute_dot", "convert_dq")

    def flops(kind: Kind) -> int:
        return sum(k.flops for k in shown if k.kind is kind and not any(word in k.name for word in beside))

    assert flops(Kind.MATMUL) == 6 * weights * tokens
    assert flops(Kind.ATTENTION) == 7 * 2 * 64 * scores * layers


def test_of_several_steps_the_one_of_median_length_is_shown():
    """The first of three has none before it, so that its length is not known: of the two others the shorter."""
    found = events("v100_resnet_train")
    runtime = {e["args"]["correlation"]: e["ts"] for e in of(found, "cuda_runtime")}
    ranges = sorted((e for e in found if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    ends, counts = [], []
    for one in ranges[:3]:
        inside = [e for e in on_gpu(found) if one["ts"] <= runtime[e["args"]["correlation"]] <= one["ts"] + one["dur"]]
        ends.append(max(e["ts"] + e["dur"] for e in inside))
        counts.append(len(inside))
    lengths = [ends[1] - ends[0], ends[2] - ends[1]]
    chosen = 1 + lengths.index(min(lengths))
    shown = step("v100_resnet_train")
    assert shown.step_us == pytest.approx(min(lengths))
    assert len(shown.launches) == counts[chosen]
    assert shown.environment.step == int(ranges[chosen]["name"].split("#")[1])
    assert any("3 steps" in one.what for one in shown.accounting.assumed)


def test_python_functions_give_file_and_function_outside_torch():
    files = {op.where.file for op in step("h100_qwen_inference").ops if op.where is not None}
    assert "transformers/models/qwen2/modeling_qwen2.py" in files
    assert not any(file.startswith(("torch/", "<")) for file in files)
    modules = {op.module for op in step("h100_qwen_inference").ops}
    assert any(module is not None and ".Qwen2MLP_" in module for module in modules)
    assert any("`def`" in one.what for one in step("h100_qwen_inference").accounting.assumed)


def test_what_checkpointing_computes_again_is_no_backward():
    shown = step("mi300_resnet_checkpoint_train")
    again = [op for op in shown.ops if op.phase is Phase.RECOMPUTE]
    assert {"aten::convolution"} <= {op.name for op in again}
    assert not any(op.name.endswith("_backward") for op in again)


def test_collectives_are_communication():
    launches = [launch for launch in step("mi300_resnet_checkpoint_train").launches if "nccl" in launch.kernel.name]
    assert launches
    assert {launch.phase for launch in launches} == {Phase.COMMUNICATE}
    assert {launch.kernel.kind for launch in launches} == {Kind.COLLECTIVE}


def test_launches_whose_kernels_are_not_there_are_counted():
    """By plain JSON: no launch is without its kernel. 509 of what ran has no launch: their correlations are all below
    that of the first call into the runtime, so that they were launched before the recording and for no step of it."""
    found = events("h100_qwen_inference")
    there = {event["args"]["correlation"] for event in on_gpu(found)}
    launched = [e for e in of(found, "cuda_runtime", "cuda_driver") if "LaunchKernel" in e["name"]]
    shown = step("h100_qwen_inference")
    assert shown.accounting.lost_launches == sum(e["args"]["correlation"] not in there for e in launched)
    first = min(e["args"]["correlation"] for e in of(found, "cuda_runtime", "cuda_driver"))
    before = sum(e["args"]["correlation"] < first for e in on_gpu(found))
    assert before == 509
    assert len(shown.launches) == len(on_gpu(found)) - before


def test_launches_that_were_lost_do_not_make_a_step_longer(tmp_path):
    """The CPU is tens of milliseconds before the V100. Launches are deleted; their kernels are the same step's."""
    content = json.loads(gzip.decompress(path("v100_resnet_train").read_bytes()))
    launches = [event for event in content["traceEvents"] if event.get("name") == "cudaLaunchKernel"]
    for place in (3, 2, 1):
        content["traceEvents"].remove(launches[place * len(launches) // 4])
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(content))
    shown = see_trace(file)[0]
    assert shown.step_us == step("v100_resnet_train").step_us
    assert len(shown.launches) == len(step("v100_resnet_train").launches)


@pytest.mark.parametrize(("number", "start", "end"), [(16, 49_030, 68_010), (17, 68_010, 86_570)])
def test_steps_of_a_recording_that_began_while_the_gpu_ran_follow_one_another(number, start, end):
    """By plain JSON: from the first event on the GPU, what was launched in each step ends at these moments; the 968
    kernels before step 15's first have no launch."""
    shown = see_trace(path("mi300_resnet_checkpoint_train"), step=number)[0]
    found = events("mi300_resnet_checkpoint_train")
    launched = {e["args"]["correlation"] for e in of(found, "cuda_runtime")}
    assert sum(e["args"]["correlation"] not in launched for e in on_gpu(found)) == 968
    assert shown.step_us == pytest.approx(end - start, abs=15)
    assert len(shown.launches) == 895


def test_peak_memory_is_the_allocators():
    found = of(events("h100_qwen_inference"), "cpu_instant_event")
    most = max(event["args"]["Total Allocated"] for event in found if event["args"]["Device Type"] == 1)
    memory = step("h100_qwen_inference").memory
    assert memory.origin is Origin.MEASURED
    assert memory.peak_bytes == most


def test_a_gpu_that_waits_for_a_slow_cpu_is_said_to():
    """vLLM's eager decode step on a B200: 84 ms, of which the GPU works 12."""
    idle = Counter()
    for one in step("b200_eager_inference").idle:
        idle[one.cause] += one.time_us
    assert idle[IdleCause.LAUNCH] > 0.8 * step("b200_eager_inference").step_us
