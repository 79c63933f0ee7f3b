"""GPT-2 124M as an H200 ran it (tests/golden/measured): eager, compiled, compiled into CUDA graphs, captured by hand.

What a kernel computes is told by its call and by Inductor's name for it, which undertorch does not choose; what a line
computes stands in the source. So each launch is held against the text of the line that it was given.
"""

import gzip
import json
import re
from collections import Counter
from itertools import pairwise

import pytest

from measured_golden import step_of
from undertorch.records import Kind, Phase, Step
from undertorch.records.totals import busy_us, lines, phases_us, source_line
from undertorch.steps.measure import exchange

NAMES = ("gpt2", "gpt2-compile", "gpt2-graphs", "gpt2-captured")
LAYERS = 12

PRODUCTS = r"self\.(qkv|out|up|down|head)\("
SAID = {
    r"aten::(add)?mm$": PRODUCTS,
    r"aten::_scaled_dot_product": r"scaled_dot_product_attention",
    r"aten::native_layer_norm": r"self\.norm",
    r"aten::gelu|fused_gelu": r"F\.gelu",
    r"aten::_?(log_softmax|nll_loss)": r"F\.cross_entropy",
    r"aten::embedding": r"self\.(tokens|positions)",
    r"aten::_fused_adamw": r"optimizer\.step\(\)",
    r"aten::_foreach_norm": r"clip_grad_norm_",
    r"native_layer_norm": r"self\.norm",
}
"""Of an Op's name, what one of its lines must say. The first that fits counts."""


@pytest.fixture(scope="module", params=NAMES)
def golden(request, tmp_path_factory) -> tuple[str, Step, dict]:
    """The name of a run, its step, and the trace as plain JSON."""
    folder = tmp_path_factory.mktemp(request.param)
    step = step_of(request.param, folder)
    return request.param, step, json.loads(gzip.decompress((folder / exchange.TRACE).read_bytes()))


@pytest.fixture
def step(golden) -> Step:
    return golden[1]


def texts(step: Step, launch) -> list[str]:
    """Of the lines that a launch was given."""
    places = [step.ops[number].where for number in launch.ops]
    found = (source_line(step.environment.sources, place.file, place.line) for place in places if place is not None)
    return [text for text in found if text is not None]


def test_every_launch_has_a_line(step: Step):
    assert step.accounting.time_with_line == 1
    assert all(texts(step, launch) for launch in step.launches)


def test_nothing_of_the_profilers_own_total_is_lost(golden):
    """Summed from the trace by the launches of the step's range."""
    _, step, trace = golden
    events = trace["traceEvents"]
    (whole,) = [event for event in events if event["name"] == f"ProfilerStep#{step.environment.step}"]
    begun = {
        event["args"]["correlation"]
        for event in events
        if event["cat"] in ("cuda_runtime", "cuda_driver")
        and whole["ts"] <= event["ts"] <= whole["ts"] + whole["dur"]
        and "correlation" in event["args"]
    }
    ran = [e["dur"] for e in events if e["cat"] in ("kernel", "gpu_memset", "gpu_memcpy")]
    own = [
        event["dur"]
        for event in events
        if event["cat"] in ("kernel", "gpu_memset", "gpu_memcpy") and event["args"]["correlation"] in begun
    ]
    assert len(own) == len(step.launches) == len(ran) - 1
    assert sum(launch.time_us for launch in step.launches) == pytest.approx(sum(own), rel=1e-9)
    assert sum(line.time_us for line in lines(step)) == pytest.approx(busy_us(step.launches), rel=1e-9)
    assert sum(phases_us(step.launches).values()) == pytest.approx(busy_us(step.launches), rel=1e-9)


def test_each_line_says_what_its_kernels_compute(step: Step):
    judged: Counter[str] = Counter()
    for launch in step.launches:
        name = step.ops[launch.ops[0]].name
        wanted = next(((call, text) for call, text in SAID.items() if re.search(call, name)), None)
        if wanted is not None:
            judged[wanted[0]] += 1
            assert any(re.search(wanted[1], text) for text in texts(step, launch)), (launch.kernel.name, name)
    assert sum(judged.values()) > 0.35 * len(step.launches)


@pytest.mark.parametrize(
    ("line", "forward", "backward"),
    [("self.qkv(x)", 1, 2), ("self.up(", 1, 2), ("self.down(", 1, 2)],
)
def test_a_linear_layer_is_one_product_forward_and_two_backward(step: Step, line, forward, backward):
    """y = xW, then the gradients of x and of W, in each of twelve layers."""
    found = Counter(
        launch.phase
        for launch in step.launches
        if launch.kernel.kind is Kind.MATMUL
        and "splitKreduce" not in launch.kernel.name
        and any(line in text for text in texts(step, launch))
    )
    assert found == {Phase.FORWARD: LAYERS * forward, Phase.BACKWARD: LAYERS * backward}


@pytest.mark.parametrize("golden", ["gpt2", "gpt2-captured"], indirect=True)
def test_of_what_inductor_did_not_write_all_bytes_are_known(golden):
    """A CUDA graph's kernels have those of the calls that were captured."""
    _, step, _ = golden
    assert all(launch.kernel.min_bytes is not None for launch in step.launches)


@pytest.mark.parametrize("golden", ["gpt2"], indirect=True)
def test_parts_of_a_product_are_read_as_they_were_written(golden):
    """Three products a layer are cut: the gradients of the weights of `up` and `down` in two parts (64 tiles of 192 x
    192 in 128 blocks), of `out` in three (36 of 128 x 128 in 108)."""
    _, step, _ = golden
    products = [launch.kernel for launch in step.launches if launch.kernel.kind is Kind.MATMUL]
    cut = [pair for pair in pairwise(products) if "splitKreduce" in pair[1].name]
    assert all(adds.min_bytes_read == main.min_bytes_written for main, adds in cut)
    parts = Counter((main.blocks, main.min_bytes_written / (2 * adds.min_bytes_written)) for main, adds in cut)
    assert parts == {(128, 2): 2 * LAYERS, (108, 3): LAYERS}


def test_attention_is_one_kernel_forward_in_each_layer(step: Step):
    forward = [
        launch for launch in step.launches if launch.phase is Phase.FORWARD and launch.kernel.kind is Kind.ATTENTION
    ]
    assert len(forward) == LAYERS
    assert all("scaled_dot_product_attention" in texts(step, launch)[0] for launch in forward)


def test_a_fused_kernel_lists_the_lines_that_it_came_from(golden):
    """A residual is added and normalised in one: the lines of both."""
    name, step, _ = golden
    fused = [launch for launch in step.launches if re.search(r"^triton_.*add_native_layer_norm", launch.kernel.name)]
    if name in ("gpt2", "gpt2-captured"):
        assert fused == []
        return
    assert len(fused) >= 2 * LAYERS - 1
    assert all(any("self.norm" in text for text in texts(step, launch)) for launch in fused)
    assert any(len(launch.ops) > 1 for launch in fused)


def test_the_optimizer_moves_28_bytes_a_parameter(step: Step):
    """Parameter, gradient, two moments read; parameter and two moments written: 7 float32. The profiler tells nothing
    of lists that long: what they held was kept beside the trace."""
    adamw = [one for one in step.launches if step.ops[one.ops[0]].name == "aten::_fused_adamw_"]
    assert adamw
    assert sum(launch.kernel.min_bytes for launch in adamw) == pytest.approx(28 * 124_439_808, rel=1e-4)


def test_the_step_lasts_as_long_as_without_the_profiler(golden):
    _, step, _ = golden
    assert step.step_us == pytest.approx(busy_us(step.launches) + sum(one.time_us for one in step.idle), rel=1e-6)
    ends = max(launch.end_us for launch in step.launches)
    assert ends == pytest.approx(step.step_us, rel=1e-5)  # moments of today have no room for more
