"""One step of GPT-2 124M, predicted for an H200 with no GPU, against counts by hand and the GPU's record."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from undertorch import costs, gpus
from undertorch.records import Bound, Kind, Launch, Origin, Phase, Recording, Step
from undertorch.records.files import from_json, to_json
from undertorch.records.totals import busy_us, lines, phases_us
from undertorch.steps.predict import predict
from undertorch.steps.record import record

SCRIPT = Path(__file__).parent / "steps" / "record" / "scripts" / "gpt2.py"
H200 = gpus.find("H200")

ROWS, WIDTH, LAYERS, VOCABULARY, CONTEXT = 32 * 1024, 768, 12, 50304, 1024
A_LAYER = 3 * WIDTH * WIDTH + WIDTH * WIDTH + 2 * 4 * WIDTH * WIDTH
"""Parameters in the matmuls of a layer: qkv, projection, and the two of the MLP."""
BIASES_AND_NORMS = LAYERS * (3 * WIDTH + WIDTH + 4 * WIDTH + WIDTH + 4 * WIDTH) + 2 * WIDTH
PARAMETERS = LAYERS * A_LAYER + BIASES_AND_NORMS + VOCABULARY * WIDTH + CONTEXT * WIDTH


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(SCRIPT, (), H200)


@pytest.fixture(scope="module")
def step(recording: Recording) -> Step:
    return predict(recording, H200)


def of(step: Step, name: str, phase: Phase | None = None) -> list[Launch]:
    """The launches of the Ops of that name."""
    names = {op.id: op.name for op in step.ops}
    return [
        launch for launch in step.launches if names[launch.ops[0]] == name and (phase is None or launch.phase is phase)
    ]


def moved(launches: list[Launch]) -> int:
    """Least bytes, read and written."""
    return sum(launch.kernel.min_bytes for launch in launches)


def test_matmuls_compute_six_flops_a_parameter_and_token(step: Step):
    """Two in forward, two for the input's gradient, two for the weight's; tied embeddings multiply in the head."""
    in_matmuls = LAYERS * A_LAYER + VOCABULARY * WIDTH
    products = of(step, "aten::mm") + of(step, "aten::addmm")
    tiles = [launch.kernel for launch in products if "splitKreduce" not in launch.kernel.name]
    assert sum(kernel.flops for kernel in tiles if kernel.kind is Kind.MATMUL) == 6 * in_matmuls * ROWS


def test_causal_attention_computes_half_the_scores(step: Step):
    """QKᵀ and PV over the scores on and below the diagonal, T(T+1)/2 of T²; backward five such products, QKᵀ again."""
    scores = 32 * 12 * CONTEXT * (CONTEXT + 1) // 2
    product = 2 * scores * 64 * LAYERS
    forward, backward = (
        [launch for launch in of(step, name) if launch.kernel.kind is Kind.ATTENTION and "prop" in launch.kernel.name]
        for name in (
            "aten::_scaled_dot_product_cudnn_attention",
            "aten::_scaled_dot_product_cudnn_attention_backward",
        )
    )
    assert sum(launch.kernel.flops for launch in forward) == 2 * product
    assert sum(launch.kernel.flops for launch in backward) == 5 * product
    assert all(launch.kernel.note for launch in backward)


def test_fused_adamw_moves_28_bytes_a_parameter(step: Step):
    """Parameter, gradient and two moments read; parameter and two moments written: seven float32."""
    assert moved(of(step, "aten::_fused_adamw_")) == 28 * PARAMETERS


def test_layer_norm_moves_its_input_and_output_its_weights_and_two_statistics_a_row(step: Step):
    """Under autocast layer norm runs in float32 (torch's list): 25 of them."""
    one = 2 * ROWS * WIDTH * 4 + 2 * WIDTH * 4 + 2 * ROWS * 4
    assert moved(of(step, "aten::native_layer_norm")) == (2 * LAYERS + 1) * one


def test_layer_norm_backward_reads_gradient_and_input_twice_and_writes_three_gradients(step: Step):
    """One kernel for the input's gradient, one for the weight's and the bias's; each reads gradient and input."""
    tensor, statistics, weight = ROWS * WIDTH * 4, 2 * ROWS * 4, WIDTH * 4
    to_input = 3 * tensor + statistics + weight
    to_weights = 2 * tensor + statistics + 2 * weight
    assert moved(of(step, "aten::native_layer_norm_backward")) == (2 * LAYERS + 1) * (to_input + to_weights)


def test_gelu_moves_two_bytes_in_and_two_out(step: Step):
    """Bfloat16 under autocast; backward reads gradient and input and writes one."""
    hidden = ROWS * 4 * WIDTH * 2
    assert moved(of(step, "aten::gelu")) == LAYERS * 2 * hidden
    assert moved(of(step, "aten::gelu_backward")) == LAYERS * 3 * hidden


def test_the_loss_reads_and_writes_the_float32_logits_once_each_way(step: Step):
    logits = ROWS * VOCABULARY * 4
    assert moved(of(step, "aten::_log_softmax")) == 2 * logits
    assert moved(of(step, "aten::_log_softmax_backward_data")) == 3 * logits


def test_the_softmax_of_a_wide_row_moves_twice_its_least_bytes(step: Step):
    """A row of 50304 float32 fits in no block: read for the maximum, for the sum, for the result, then written."""
    (kernel,) = (launch.kernel for launch in of(step, "aten::_log_softmax"))
    assert kernel.traffic_bytes == 2 * kernel.min_bytes


def test_every_launch_is_told_in_full(step: Step):
    for launch in step.launches:
        kernel = launch.kernel
        driver = kernel.kind in (Kind.MEMCPY, Kind.MEMSET)
        assert (kernel.grid is None) == (kernel.block is None) == driver
        assert kernel.min_bytes is not None
        assert kernel.library
        assert kernel.bytes_origin is Origin.COMPUTED
        assert driver or kernel.geometry_origin in (Origin.COMPUTED, Origin.PREDICTED)
        assert launch.time_origin is Origin.PREDICTED
        assert launch.time_us > 0
        assert launch.bound is not None


def test_every_launch_has_a_line_and_nothing_is_without_cost(step: Step):
    assert step.accounting.time_with_line == pytest.approx(1.0)
    assert step.accounting.ops_without_cost == ()
    assert step.accounting.launches == len(step.launches)


def test_phases_and_lines_sum_to_the_busy_time(step: Step):
    busy = busy_us(step.launches)
    assert sum(phases_us(step.launches).values()) == pytest.approx(busy)
    assert sum(line.time_us for line in lines(step)) == pytest.approx(busy)
    assert step.step_us == pytest.approx(busy + sum(idle.time_us for idle in step.idle))


def test_the_gpu_is_never_the_one_that_waits(step: Step):
    """80 ms of kernels hide 30 ms of CPU: no launch but the first few waits for it."""
    assert sum(launch.bound is Bound.LAUNCH for launch in step.launches) < 10


def test_the_predicted_step_is_within_a_tenth_of_the_recorded(recording: Recording):
    """The H200's profile of this step has 92.58 ms of kernels and memsets (tests/golden/h200_gpt2_train.json.gz)."""
    as_recorded = replace(recording, ops=tuple(replace(op, torch="2.11.0+cu130") for op in recording.ops))
    step = predict(as_recorded, H200)
    assert len(step.launches) == 808 + 181
    assert busy_us(step.launches) == pytest.approx(92_582.5, rel=0.1)


def test_the_predicted_memory_is_what_the_gpu_held(step: Step):
    """32,661,353,472 bytes at most in the second step (tests/golden/h200_scripts.json), with two cuBLAS workspaces."""
    workspaces = 2 * 32 << 20
    assert step.memory.peak_bytes == pytest.approx(32_661_353_472 - workspaces, rel=0.002)


def test_a_step_survives_its_file(step: Step):
    assert from_json(to_json([step]), "step") == (step,)


FAMILIES = sorted({cost.__module__ for cost in costs.COSTS.values()})


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_family_its_ops_are_listed_as_without_cost(recording: Recording, family: str):
    """Nothing else takes their place, and nothing is silently zero."""
    left = {name: cost for name, cost in costs.COSTS.items() if cost.__module__ != family}
    step = predict(recording, H200, lambda op, gpu: None if op.name not in left else left[op.name](op, gpu))
    lost = Counter(op.name for op in recording.ops if op.name in costs.COSTS and op.name not in left)
    assert set(step.accounting.ops_without_cost) == set(lost)
    assert step.accounting.ops_without_cost_count == lost.total()
