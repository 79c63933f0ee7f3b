"""From a kernel to its line, in traces written by hand: what each case means is in the trace itself."""

from dataclasses import replace

import pytest

from steps.measure.by_hand import ENGINE, Written, compiled, kept, mark
from undertorch.records import IdleCause, Phase
from undertorch.steps.measure.exchange import Measured
from undertorch.steps.measure.reading import read_measured
from undertorch.steps.record.errors import NoStep, RecordError

NODE = "autograd::engine::evaluate_function: "
GRAPH = "## Call CompiledFxGraph fkey ##"
KERNEL = "void at::native::vectorized_elementwise_kernel<4, add>"


@pytest.fixture
def written() -> Written:
    """A trace of one step, empty as yet."""
    made = Written()
    made.step(1, 0, 1000)
    return made


def of(step) -> list[tuple[str, list[int | None], Phase]]:
    """Of each launch its kernel, the lines of its Ops, and its phase."""
    ops = {op.id: op for op in step.ops}
    return [
        (
            launch.kernel.name,
            [None if ops[number].where is None else ops[number].where.line for number in launch.ops],
            launch.phase,
        )
        for launch in step.launches
    ]


def forward(
    written: Written, sequence: int, begin: float, number: int, name: str = "aten::add", thread: int = 1
) -> None:
    """A marked forward call that makes a node."""
    written.call(f"undertorch#{number}", begin, begin + 10, thread)
    written.call(name, begin + 1, begin + 9, thread, **{"Sequence number": sequence, "Fwd thread id": 0})


def node(written: Written, name: str, begin: float, end: float, thread: int = ENGINE, **args) -> None:
    written.call(f"{NODE}{name}", begin, end, thread, **args)


def test_a_backward_call_stands_at_the_line_whose_call_made_its_node(written, tmp_path):
    forward(written, 5, 10, 0)
    node(written, "AddBackward0", 100, 120, **{"Sequence number": 5, "Fwd thread id": 1})
    written.call("aten::sum", 101, 119, ENGINE)
    written.launch(105, ("reduce_kernel", 200, 210), thread=ENGINE)
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [mark(31)]))
    assert of(step) == [("reduce_kernel", [31], Phase.BACKWARD)]
    (op,) = [op for op in step.ops if op.name == "aten::sum"]
    assert op.node == "AddBackward0"
    assert step.ops[op.forward].name == "aten::add"


def test_sequence_numbers_are_those_of_the_thread_that_the_node_names(written, tmp_path):
    """Each thread counts from 0: the engine's, which computes a checkpoint again, has a call of the same number."""
    forward(written, 5, 10, 0, "aten::addmm")
    forward(written, 6, 30, 1, "aten::gelu")
    node(written, "GeluBackward0", 100, 130, **{"Sequence number": 6, "Fwd thread id": 1})
    forward(written, 5, 110, 2, "aten::mul", ENGINE)
    node(written, "AddmmBackward0", 140, 160, **{"Sequence number": 5, "Fwd thread id": 1})
    written.call("aten::mm", 141, 159, ENGINE)
    written.launch(145, ("gemm", 200, 210), thread=ENGINE)
    marks = [mark(31), mark(32), mark(33, Phase.RECOMPUTE)]
    step, _ = read_measured(tmp_path, kept(tmp_path, written, marks))
    assert of(step) == [("gemm", [31], Phase.BACKWARD)]


def test_what_a_checkpoint_computes_again_stands_at_its_own_line(written, tmp_path):
    node(written, "GeluBackward0", 100, 130, **{"Sequence number": 6, "Fwd thread id": 1})
    forward(written, 5, 110, 0, "aten::mul", ENGINE)
    written.launch(115, (KERNEL, 200, 210), thread=ENGINE)
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [mark(33, Phase.RECOMPUTE)]))
    assert [(lines, phase) for _, lines, phase in of(step)] == [([33], Phase.RECOMPUTE)]


@pytest.mark.parametrize(("name", "phase"), [("aten::add_", Phase.ACCUMULATE), ("aten::clone", Phase.BACKWARD)])
def test_a_gradient_is_added_up_at_the_line_of_the_node_before(written, tmp_path, name, phase):
    """AccumulateGrad has no sequence number; it runs right after the node that made the gradient."""
    forward(written, 5, 10, 0)
    node(written, "AddBackward0", 100, 120, **{"Sequence number": 5, "Fwd thread id": 1})
    node(written, "torch::autograd::AccumulateGrad", 130, 150)
    written.call(name, 131, 149, ENGINE)
    written.launch(135, (KERNEL, 200, 210), thread=ENGINE)
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [mark(31)]))
    assert [(lines, which) for _, lines, which in of(step)] == [([31], phase)]


def test_a_compiled_kernel_has_every_line_that_it_came_from(written, tmp_path):
    written.add("user_annotation", GRAPH, 10, 100)
    written.call("triton_poi_fused_add_0", 20, 30)
    written.launch(25, ("triton_poi_fused_add_0", 200, 210))
    written.call("aten::mm", 40, 50)
    written.launch(45, ("nvjet", 220, 230))
    written.call("triton_poi_fused_add_0", 60, 70)
    written.launch(65, ("triton_poi_fused_add_0", 240, 250))
    calls = compiled(
        ("triton_poi_fused_add_0", (31, 32)), ("extern_kernels.mm", (33,)), ("triton_poi_fused_add_0", (34,))
    )
    step, _ = read_measured(tmp_path, kept(tmp_path, written, compiled={"fkey": calls}))
    assert [lines for _, lines, _ in of(step)] == [[31, 32], [33], [34]]
    assert [step.ops[launch.ops[0]].name for launch in step.launches] == [
        "inductor::fused_add",
        "aten::mm",
        "inductor::fused_add",
    ]


def test_a_kernel_that_inductor_does_not_name_is_the_unnamed_one_in_its_place(written, tmp_path):
    """And what the graph's code calls beside its kernels belongs to the call before it."""
    written.add("user_annotation", GRAPH, 10, 100)
    written.call("triton_red_fused_sum_0", 20, 30)
    written.launch(25, ("triton_red_fused_sum_0", 200, 210))
    written.call("triton_per_fused_norm_1", 40, 50)
    written.launch(45, ("triton_per_fused_norm_1", 220, 230))
    written.call("aten::sum", 60, 70)
    written.launch(65, ("reduce_kernel", 240, 250))
    calls = compiled(("triton_red_fused_sum_0", (31,)), ("", (32,)))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, compiled={"fkey": calls}))
    assert [lines for _, lines, _ in of(step)] == [[31], [32], [32]]


def test_kernels_of_a_replayed_compiled_graph_meet_by_name_and_place(written, tmp_path):
    """Between two of Triton's kernels run a memset and the product that Inductor has between those two."""
    written.add("user_annotation", GRAPH, 10, 100)
    written.launch(
        20,
        ("triton_poi_fused_add_0", 200, 210),
        ("Memset", 210, 212),
        ("nvjet_tst", 212, 230),
        ("triton_poi_fused_add_0", 230, 240),
        ("flash_fwd", 240, 250),
        ("nvjet_tst", 250, 260),
        graph=True,
    )
    calls = compiled(
        ("triton_poi_fused_add_0", (31,)),
        ("extern_kernels.mm", (32,)),
        ("triton_poi_fused_add_0", (33,)),
        ("torch.ops.aten._scaled_dot_product_flash_attention.default", (34,)),
        ("extern_kernels.addmm", (35,)),
    )
    step, _ = read_measured(tmp_path, kept(tmp_path, written, compiled={"fkey": calls}))
    assert [lines for _, lines, _ in of(step)] == [[31], [32], [32], [33], [34], [35]]


def test_what_has_no_line_is_counted_and_its_reason_named(written, tmp_path):
    written.call("aten::add", 10, 20, 3)
    written.launch(12, (KERNEL, 200, 300), thread=3)
    node(written, "FooBackward", 30, 40, **{"Sequence number": 77, "Fwd thread id": 1})
    written.launch(32, ("foo", 300, 400), thread=ENGINE)
    step, _ = read_measured(tmp_path, kept(tmp_path, written))
    assert step.accounting.time_with_line == 0
    said = " ".join(one.what for one in step.accounting.assumed)
    assert "1 launch has no line (50.00% of busy): no call of torch's was running" in said
    assert "1 launch has no line (50.00% of busy): FooBackward: its node was made before the profiled steps" in said


def test_a_wait_for_a_slow_cpu_is_owed_to_the_line_whose_launch_came_late(written, tmp_path):
    written.call("undertorch#0", 10, 20)
    written.call("aten::add", 11, 19)
    written.launch(12, (KERNEL, 100, 110))
    written.call("undertorch#1", 300, 320)
    written.call("aten::add", 301, 319)
    written.launch(305, (KERNEL, 310, 320))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [mark(31), mark(32)]))
    (idle,) = step.idle
    assert (idle.cause, idle.time_us, idle.where.line) == (IdleCause.LAUNCH, 200, 32)


def test_the_step_is_as_long_as_it_is_without_the_profiler(written, tmp_path):
    """Of 220 µs under the profiler 200 are idle; unprofiled the step takes 120 µs: 100 of idle are left."""
    written.call("undertorch#0", 10, 20)
    written.call("aten::add", 11, 19)
    written.launch(12, (KERNEL, 100, 110))
    written.call("undertorch#0", 300, 320)
    written.call("aten::add", 301, 319)
    written.launch(305, (KERNEL, 310, 320))
    measured = kept(tmp_path, written, [mark(31)], timed_us=(119.0, 120.0, 150.0))
    step, _ = read_measured(tmp_path, measured)
    assert step.step_us == 120
    assert [launch.time_us for launch in step.launches] == [10, 10]
    assert [launch.start_us for launch in step.launches] == pytest.approx([0, 110])
    assert sum(one.time_us for one in step.idle) == pytest.approx(100)


def test_a_gpu_without_a_sheet_is_named(written, tmp_path):
    written.launch(12, (KERNEL, 100, 110))
    measured = replace(kept(tmp_path, written), gpu_name="NVIDIA Z9")
    with pytest.raises(RecordError, match="calls itself 'NVIDIA Z9', of which there is no sheet"):
        read_measured(tmp_path, measured)


def test_a_run_on_the_cpu_alone_has_no_launches_to_show(tmp_path):
    with pytest.raises(NoStep, match=r"ran on the CPU alone.*pass --gpu NAME"):
        read_measured(tmp_path, Measured(script="train.py", steps=(1,)))


def test_what_runs_beside_the_engine_is_of_the_call_that_runs_it(written, tmp_path):
    """A reducer's copy on a thread of its own, while the script waits in backward()."""
    written.call("undertorch#0", 50, 200)
    written.call("aten::copy_", 100, 110, 3)
    written.launch(105, (KERNEL, 110, 120), thread=3)
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [mark(40, Phase.BACKWARD, "backward")]))
    assert [(lines, phase) for _, lines, phase in of(step)] == [([40], Phase.BACKWARD)]


def test_what_a_nodes_hook_launches_stands_at_the_line_whose_call_made_the_node(written, tmp_path):
    """FSDP2 gathers a block's parameters in a hook that runs before the node. The profiler then leaves the number out
    of the node's range, and writes it at the node's own call alone (seen in traces of torch 2.11 and 2.13)."""
    forward(written, 5, 10, 0)
    node(written, "AddBackward0", 100, 160)
    written.add("user_annotation", "FSDP::pre_backward (blocks.0)", 101, 140, ENGINE)
    written.call("fsdp::split_with_sizes_copy", 105, 135, ENGINE)
    written.call("aten::split_with_sizes_copy", 106, 134, ENGINE)
    written.launch(110, ("split_kernel", 200, 210), thread=ENGINE)
    written.call("AddBackward0", 141, 159, ENGINE, **{"Sequence number": 5, "Fwd thread id": 1})
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [mark(31)]))
    assert of(step) == [("split_kernel", [31], Phase.BACKWARD)]


def test_a_node_within_another_does_not_give_it_its_number(written, tmp_path):
    """A reentrant run of the engine inside a node that has no number itself."""
    forward(written, 5, 10, 0)
    node(written, "CheckpointFunctionBackward", 100, 160)
    written.call("AddBackward0", 110, 120, ENGINE, **{"Sequence number": 5, "Fwd thread id": 1})
    written.launch(130, ("copy_kernel", 200, 210), thread=ENGINE)
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [mark(31)]))
    assert of(step) == [("copy_kernel", [None], Phase.BACKWARD)]


def test_tensors_that_stand_in_two_lists_are_read_once(written, tmp_path):
    """Adam squares its gradients so: v.addcmul_(g, g), of 1000 and of 50 float32. v and g are read, v is written."""
    described = tuple(("float32", (size,), (1,)) for size in (1000, 50))
    shapes = {
        "Input Dims": [[[1000], [50]], [[1000], [50]], [[1000], [50]], []],
        "Input type": ["TensorList", "TensorList", "TensorList", "Scalar"],
        "Input Strides": [[[1], [1]], [[1], [1]], [[1], [1]], []],
        "Concrete Inputs": ["", "", "", "0.1"],
    }
    written.call("undertorch#0", 10, 30)
    written.call("aten::_foreach_addcmul_", 11, 29, **shapes)
    written.launch(12, ("void multi_tensor_apply_kernel<PointwiseOpScalarFunctor>", 200, 210))
    found = []
    for memories in ((), ((0, 1), (2, 3), (2, 3))):
        updates = replace(mark(31, Phase.UPDATE), lists=(described,) * 3, memories=memories)
        step, _ = read_measured(tmp_path, kept(tmp_path, written, [updates]))
        found.append(step.launches[0].kernel.min_bytes)
    assert found == [4 * 1050 * 4, 3 * 1050 * 4]


def test_a_kernel_of_which_inductor_kept_nothing_stands_where_the_compiled_code_was_called(written, tmp_path):
    """As where its cache was filled by a process that did not ask it to: not at the line of the call before."""
    written.call("undertorch#0", 5, 105)
    written.add("user_annotation", GRAPH, 10, 100)
    written.call("aten::mm", 20, 30)
    written.launch(25, ("nvjet", 200, 210))
    written.call("triton_per_fused_norm_1", 40, 50)
    written.launch(45, ("triton_per_fused_norm_1", 220, 230))
    calls = compiled(("extern_kernels.mm", (33,)))
    marks = [mark(90, what="compiled")]
    step, _ = read_measured(tmp_path, kept(tmp_path, written, marks, compiled={"fkey": calls}))
    assert [(step.ops[one.ops[0]].name, lines) for one, (_, lines, _) in zip(step.launches, of(step), strict=True)] == [
        ("aten::mm", [33]),
        ("triton_per_fused_norm_1", [90]),
    ]
