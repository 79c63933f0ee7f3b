"""torch.compile: each launch of the code that Inductor writes for the GPU, at the line that it came from."""

import json
from math import prod

import pytest

from undertorch import gpus
from undertorch.records import Kind, Phase, Step
from undertorch.records.steps import UNCOMPILED, UNCOMPILED_FUNCTION, WRITTEN_BY_INDUCTOR
from undertorch.steps.predict import predict
from undertorch.steps.record.compiled.sources import lines

SCRIPT = "compiled_block.py"
ROWS, WIDTH = 4096, 512
HIDDEN = 4 * WIDTH
PARAMETERS = 2 * WIDTH + (WIDTH * HIDDEN + HIDDEN) + (HIDDEN * WIDTH + WIDTH)
BFLOAT16, FLOAT32 = 2, 4


@pytest.fixture(scope="module")
def step(recording) -> Step:
    return predict(recording(SCRIPT), gpus.find("H200"))


def launches(step: Step, line: int, phase: Phase):
    return [one for one in step.launches if step.ops[one.ops[0]].where.line == line and one.phase is phase]


def by_inductor(step: Step, line: int, phase: Phase, name: str):
    """The only kernel that Inductor wrote for a line whose name holds a text."""
    (one,) = (
        one
        for one in launches(step, line, phase)
        if one.kernel.library == "Inductor" and name in step.ops[one.ops[0]].name
    )
    return one.kernel


def test_between_two_products_is_one_kernel(step, line_of):
    """Autocast turns the weights and biases of both layers into bfloat16; a norm, a GELU and a sum are a kernel each,
    with the casts before and after them."""
    first, last = line_of(SCRIPT, "hidden = F.gelu"), line_of(SCRIPT, "return x + self.down")
    kinds = [one.kernel.kind for line in (first, last) for one in launches(step, line, Phase.FORWARD)]
    cast, gelu, add = [Kind.ELEMENTWISE] * 3
    assert kinds == [Kind.NORM, cast, cast, Kind.MATMUL, gelu, cast, cast, Kind.MATMUL, add]


def test_a_kernel_moves_each_byte_of_its_tensors_once(step, line_of):
    """The norm keeps its mean and its inverse deviation, a float32 a row each."""
    hidden, result = line_of(SCRIPT, "hidden = F.gelu"), line_of(SCRIPT, "return x + self.down")
    norm = by_inductor(step, hidden, Phase.FORWARD, "native_layer_norm")
    assert norm.min_bytes_read == FLOAT32 * (ROWS * WIDTH + 2 * WIDTH)
    assert norm.min_bytes_written == BFLOAT16 * ROWS * WIDTH + 2 * FLOAT32 * ROWS
    gelu = by_inductor(step, hidden, Phase.FORWARD, "gelu")
    assert gelu.min_bytes_read == gelu.min_bytes_written == BFLOAT16 * ROWS * HIDDEN
    add = by_inductor(step, result, Phase.FORWARD, "add")
    assert add.min_bytes_read == (FLOAT32 + BFLOAT16) * ROWS * WIDTH
    assert add.min_bytes_written == FLOAT32 * ROWS * WIDTH
    backward = by_inductor(step, hidden, Phase.BACKWARD, "gelu_backward")
    assert backward.min_bytes_read == 2 * backward.min_bytes_written == 2 * BFLOAT16 * ROWS * HIDDEN


def test_a_sum_is_one_flop_an_element(step, line_of):
    add = by_inductor(step, line_of(SCRIPT, "return x + self.down"), Phase.FORWARD, "add")
    assert add.flops == ROWS * WIDTH


def test_blocks_cover_the_elements_in_powers_of_two(step, line_of):
    """Triton's blocks are powers of two, of whole warps."""
    gelu = by_inductor(step, line_of(SCRIPT, "hidden = F.gelu"), Phase.FORWARD, "gelu")
    elements, blocks = ROWS * HIDDEN, prod(gelu.grid)
    assert elements % blocks == 0
    assert (elements // blocks).bit_count() == 1
    assert gelu.block[0] % 32 == 0
    assert gelu.block[1:] == (1, 1)


def test_a_product_has_two_in_the_backward_at_its_line(step, line_of):
    """Gradients to the input and to the weight."""
    for text in ("hidden = F.gelu", "return x + self.down"):
        count = {
            phase: sum(one.kernel.kind is Kind.MATMUL for one in launches(step, line_of(SCRIPT, text), phase))
            for phase in (Phase.FORWARD, Phase.BACKWARD)
        }
        assert count == {Phase.FORWARD: 1, Phase.BACKWARD: 2}


def test_lines_stand_below_the_call_of_the_compiled_model(recording, line_of):
    for op in recording(SCRIPT).ops:
        if op.name == "inductor::fused_gelu":
            assert op.where.function == "Block.forward"
            assert [where.line for where in op.chain] == [line_of(SCRIPT, "y = block(x)")]


def test_what_is_saved_for_the_backward_is_alive_until_then(step):
    """When the block's last kernel runs, beside the parameters and Adam's two moments: the batch, its result and that
    of the step before in float32, a mean and a deviation a row; in bfloat16 the results of the norm, of both layers and
    of the GELU, and the weights."""
    last = max(op.id for op in step.ops if op.phase is Phase.FORWARD and op.name.startswith("inductor::"))
    alive = [sample.live_bytes for sample in step.memory.samples if sample.op <= last][-1]
    floats = 3 * PARAMETERS + 3 * ROWS * WIDTH + 2 * ROWS
    halves = ROWS * (2 * WIDTH + 2 * HIDDEN) + 2 * WIDTH * HIDDEN
    assert alive == pytest.approx(FLOAT32 * floats + BFLOAT16 * halves, rel=1e-3)


def test_a_compiled_update_moves_28_bytes_a_parameter(step, line_of):
    """Parameter, gradient, two moments read; parameter and two moments written: 7 float32. And the count of steps of
    each of six parameters, read and written by the first kernel and read by the second."""
    update = launches(step, line_of(SCRIPT, "optimizer.step()"), Phase.UPDATE)
    assert {one.kernel.library for one in update} == {"Inductor"}
    assert sum(one.kernel.min_bytes for one in update) == 28 * PARAMETERS + 6 * 3 * FLOAT32


def test_each_compilation_is_said_and_nothing_of_its_work(recording, line_of):
    """Inductor writes files and asks compilers and the driver for their versions: none of that is the script's."""
    assumed = recording(SCRIPT).assumptions
    compiled = {one.where.line for one in assumed if one.what.startswith(WRITTEN_BY_INDUCTOR)}
    assert line_of(SCRIPT, "torch.compile(model)") in compiled
    assert len(compiled) == 4
    assert not any("throw-away" in one.what for one in assumed)


def test_a_graph_that_cannot_be_compiled_runs_op_by_op_and_the_reason_is_said(recording, line_of):
    recorded = recording(SCRIPT)
    (division,) = (op for op in recorded.ops if op.name == "aten::div" and op.phase is Phase.OTHER)
    assert division.results[0].shape == (ROWS, WIDTH)
    (said,) = (one for one in recorded.assumptions if "could not be compiled" in one.what)
    assert "ValueError: this pass knows no graph" in said.what
    assert said.where.line == line_of(SCRIPT, "halved(torch.randn")


def test_torchs_own_switch_leaves_the_code_as_it_is(monkeypatch, request, line_of):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    recorded = request.getfixturevalue("recording")("wild/compiled.py", step=1)
    assert not any(op.name.startswith("inductor::") for op in recorded.ops)
    left = {one.where.line for one in recorded.assumptions if one.what.startswith((UNCOMPILED, UNCOMPILED_FUNCTION))}
    texts = ("def gelu", "def loss_of", "model = torch.compile(", "def update")
    assert len(left) >= len(texts)
    assert line_of("wild/compiled.py", "model = torch.compile(") in left


WRAPPER = """\
def call(args):
    buf0 = empty()
    # [Provenance debug handles] triton_poi_fused_add_0:1
    raw_stream0 = get_raw_stream(0)
    triton_poi_fused_add_0.run(buf0, 8, stream=raw_stream0)
    triton_per_fused_norm_1.run(buf0, 8, stream=raw_stream0)
    # [Provenance debug handles] extern_kernels.mm:3
    extern_kernels.mm(buf0, buf0, out=buf0)
    # [Provenance debug handles] triton_poi_fused_mul_2:4
    triton_poi_fused_mul_2.run(buf0, 8, stream=raw_stream0)
"""


def test_calls_have_the_lines_that_inductor_keeps_for_them():
    """A kernel without a comment of its own is the next of those without a name; one of which nothing is known, or only
    lines of torch's, has none."""

    def stacks(*numbers: int, file: str = "model.py") -> list[str]:
        return [f'  File "{file}", line {number}, in forward' for number in numbers]

    kept = {
        "triton_poi_fused_add_0:1": stacks(3, 5, 3),
        ":2": stacks(7),
        "extern_kernels.mm:3": stacks(9),
        "triton_poi_fused_mul_2:4": stacks(1, file="torch/nn.py"),
    }
    found = lines(WRAPPER, json.dumps(kept), lambda file: None if file.startswith("torch/") else file)
    first = {number: [chain[0].line for chain in chains] for number, chains in found.items()}
    assert first == {3: [3, 5], 4: [3, 5], 5: [3, 5], 6: [7], 7: [9], 8: [9]}


@pytest.mark.slow
def test_kernels_that_are_no_loops_are_launches_too(recording, line_of):
    """Attention multiplies twice for each pair of positions, its backward five times; a kernel of the script's own has
    the grid that the script gives it, and nobody knows its bytes."""
    script = "compiled_kernels.py"
    step = predict(recording(script), gpus.find("H200"))
    batch, heads, tokens, head = 4, 8, 1024, 64
    product = 2 * batch * heads * tokens * tokens * head
    flops = {one.phase: one.kernel.flops for one in step.launches if one.kernel.kind is Kind.ATTENTION}
    assert flops == {Phase.FORWARD: 2 * product, Phase.BACKWARD: 5 * product}
    (own,) = (one for one in step.launches if one.kernel.library == "Triton")
    assert own.kernel.grid == (batch * tokens * heads * head // 512, 1, 1)
    assert own.kernel.min_bytes is None
    assert step.ops[own.ops[0]].where.line == line_of(script, "scale[lambda given")


def test_what_a_script_sets_and_lets_go_leaves_its_code_compiled(recording, line_of):
    """A constant that is one number is written into the kernel: of the sine and the sum one kernel is made."""
    script = "compiled_settings.py"
    recorded = recording(script, step=1)
    assert not any("could not be compiled" in one.what for one in recorded.assumptions)
    forward = [op for op in recorded.ops if op.phase is Phase.FORWARD and op.name.startswith("inductor::")]
    assert {op.where.line for op in forward} == {line_of(script, "return torch.sin")}
