"""Traces of compiled code, of graphs that are replayed and of several GPUs, written by hand: what each kernel is.

The events are those that torch.profiler writes of torch.compile (torch/_inductor/output_code.py and
runtime/triton_heuristics.py name their ranges), shortened.
"""

import pytest

from steps.traces.by_hand import BACKWARD, Script
from undertorch.records import Bound, Kind, Phase, Where
from undertorch.steps.traces import see_trace

NODE = "autograd::engine::evaluate_function: "
GENERATED = f"/tmp/torchinductor_someone/kr/c{'kr2q7' * 10}a.py"
ELSEWHERE = f"/scratch/cache/kr/c{'kr2q7' * 10}a.py"
FORWARD = Where(file="model.py", line=5, function="forward")


def compiled(generated: str = GENERATED) -> Script:
    """A compiled region: forward launches a fused kernel and a product, its backward one fused kernel."""
    script = Script()
    script.range("train.py(20): step", 0, 200, "python_function")
    script.range("torch/_dynamo/eval_frame.py(800): compile_wrapper", 1, 60, "python_function")
    script.range("model.py(5): forward", 2, 58, "python_function")
    script.call("Torch-Compiled Region: 0/0", 3, 56)
    script.call("CompiledFunction", 4, 54, **{"Sequence number": 3, "Fwd thread id": 0})
    script.range("## Call CompiledFxGraph fud64j ##", 5, 50)
    script.range(f"{generated}(91): call", 6, 48, "python_function")
    script.call("triton_poi_fused_add_native_layer_norm_0", 10, 8, kernel_backend="triton")
    script.kernel("triton_poi_fused_add_native_layer_norm_0", 12, 100, 10)
    script.call("aten::addmm", 30, 8)
    script.kernel("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", 32, 110, 30)
    script.range(
        NODE + "CompiledFunctionBackward", 80, 40, "cpu_op", BACKWARD, **{"Sequence number": 3, "Fwd thread id": 1}
    )
    script.call("CompiledFunctionBackward", 81, 38, BACKWARD)
    script.range(f"{generated}(190): call", 82, 30, "python_function", BACKWARD)
    script.call("triton_red_fused_sum_1", 90, 8, BACKWARD, kernel_backend="triton")
    script.kernel("triton_red_fused_sum_1", 92, 140, 20, BACKWARD)
    return script


@pytest.mark.parametrize("generated", [GENERATED, ELSEWHERE])
def test_compiled_kernels_have_the_line_of_what_was_compiled_and_not_of_what_inductor_wrote(tmp_path, generated):
    step, _ = see_trace(compiled(generated).write(tmp_path))
    assert [step.ops[launch.ops[0]].where for launch in step.launches] == [FORWARD] * 3
    assert [launch.phase for launch in step.launches] == [Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD]
    assert step.accounting.time_with_line == pytest.approx(1)


def test_a_compiled_kernel_is_inductors_whatever_it_fuses(tmp_path):
    step, _ = see_trace(compiled().write(tmp_path))
    assert [(launch.kernel.kind, launch.kernel.library) for launch in step.launches] == [
        (Kind.ELEMENTWISE, "Inductor"),
        (Kind.MATMUL, "cuBLAS"),
        (Kind.REDUCTION, "Inductor"),
    ]


KINDS = [
    ("triton_poi_fused_convolution_relu_3", Kind.ELEMENTWISE),
    ("triton_poi_fused_embedding_0", Kind.ELEMENTWISE),
    ("triton_for_fused_5", Kind.ELEMENTWISE),
    ("triton_per_fused_native_layer_norm_0", Kind.NORM),
    ("triton_red_fused__log_softmax_nll_loss_forward_2", Kind.SOFTMAX),
    ("triton_per_fused_sum_7", Kind.REDUCTION),
    ("triton_spl_fused_cumsum_0", Kind.SCAN),
    ("triton_tem_fused_addmm_relu_1", Kind.MATMUL),
    ("triton_tem_fused_flex_attention_0", Kind.ATTENTION),
]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_the_kind_of_loop_is_in_the_first_letters(tmp_path, name, kind):
    """`kernel_category[:3]` of Inductor's Triton scheduling: pointwise, foreach, (persistent) reduction, template."""
    script = Script()
    script.call(name, 0, 10)
    script.kernel(name, 2, 20, 5)
    step, _ = see_trace(script.write(tmp_path))
    kernel = step.launches[0].kernel
    assert (kernel.kind, kernel.library) == (kind, "Inductor")


def test_a_triton_kernel_of_the_users_has_its_line_and_its_library(tmp_path):
    """In eager no call of ATen is around it: what launches it is Triton's own Python."""
    script = Script()
    script.range("model.py(5): forward", 0, 50, "python_function")
    script.range("triton/runtime/jit.py(709): run", 5, 30, "python_function")
    script.kernel("rotate_and_scale", 10, 60, 5)
    step, _ = see_trace(script.write(tmp_path))
    (launch,) = step.launches
    assert (launch.kernel.kind, launch.kernel.library) == (Kind.CUSTOM, "Triton")
    assert [step.ops[op].where for op in launch.ops] == [FORWARD]


def replayed() -> Script:
    """A CUDA graph replayed from Python: one launch, three kernels with its correlation."""
    script = Script()
    script.range("train.py(20): step", 0, 60, "python_function")
    script.range("torch/cuda/graphs.py(120): replay", 5, 30, "python_function")
    for name, starts in (("first", 50), ("second", 60), ("third", 71)):
        script.kernel(name, 10, starts, 10, **{"graph node id": starts})
        script.events[-1]["args"]["correlation"] = 1
    launches = [event for event in script.events if event["cat"] == "cuda_runtime"]
    for extra in launches[1:]:
        script.events.remove(extra)
    launches[0]["name"] = "cudaGraphLaunch"
    return script


def test_kernels_of_a_graph_belong_to_the_line_that_replayed_it(tmp_path):
    step, _ = see_trace(replayed().write(tmp_path))
    assert [op.name for op in step.ops] == ["cudaGraphLaunch"]
    assert [launch.ops for launch in step.launches] == [(0,)] * 3
    assert step.ops[0].where == Where(file="train.py", line=20, function="step")
    assert [idle.time_us for idle in step.idle] == [1]


def test_kernels_of_a_graph_without_stacks_are_counted_and_not_given_to_anybody(tmp_path):
    """Nothing tells who replayed it, or where: some profilers write no launch beside a graph's kernels at all."""
    script = replayed()
    script.events = [event for event in script.events if event["cat"] == "kernel"]
    step, _ = see_trace(script.write(tmp_path))
    assert [launch.ops for launch in step.launches] == [()] * 3
    assert step.step_us == 31
    assert any(one.what.startswith("3 launches have no call in the trace") for one in step.accounting.assumed)


def reduced() -> Script:
    """DDP: an all-reduce on a stream of its own, from 100 to 140, beside a product from 110 to 130."""
    script = Script()
    script.call("c10d::allreduce_", 0, 20, BACKWARD)
    script.call("record_param_comms", 1, 18, BACKWARD)
    script.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 5, 100, 40, BACKWARD)
    script.events[-1]["args"]["stream"] = script.events[-1]["tid"] = 20
    script.range(NODE + "MmBackward0", 30, 20, "cpu_op", BACKWARD, **{"Sequence number": 1, "Fwd thread id": 1})
    script.call("aten::mm", 31, 18, BACKWARD)
    script.kernel("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", 35, 110, 20, BACKWARD)
    return script


def test_a_collective_is_communication_and_its_time_beside_a_product_counts_once(tmp_path):
    step, _ = see_trace(reduced().write(tmp_path))
    collective, product = step.launches
    assert (collective.kernel.kind, collective.kernel.library) == (Kind.COLLECTIVE, "NCCL")
    assert (collective.phase, product.phase) == (Phase.COMMUNICATE, Phase.BACKWARD)
    assert collective.bound is Bound.COMMUNICATION
    assert (collective.stream, product.stream) == (20, 7)
    assert step.step_us == 40
    assert step.idle == ()
