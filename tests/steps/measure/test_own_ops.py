"""Kernels of undertorch's own ops have figures in a measured step: what was called stands beside the trace."""

from dataclasses import replace

import pytest
import torch

from steps.measure.by_hand import ENGINE, Written, kept, mark
from undertorch.ops import operators
from undertorch.records import Argument, Bound, Kind, Phase, TensorRef
from undertorch.steps.measure import exchange, own_ops
from undertorch.steps.measure.exchange import OwnCall
from undertorch.steps.measure.reading import read_measured
from undertorch.steps.record.patching import changes, put_back

ROWS, WIDTH = 8192, 4096
BFLOAT16, FLOAT32 = 2, 4
NODE = "autograd::engine::evaluate_function: "


def tensor(*shape: int, dtype: str = "bfloat16") -> TensorRef:
    strides = tuple(torch.empty(shape, device="meta").stride())
    return TensorRef(shape=shape, strides=strides, dtype=dtype, device="cuda:0", storage=0, offset=0, version=0)


def named(**values) -> tuple[Argument, ...]:
    return tuple(Argument(name=name, value=value) for name, value in values.items())


ABSENT = tensor(0, dtype="float32")
X, WEIGHT, PER_ROW = tensor(ROWS, WIDTH), tensor(WIDTH), tensor(ROWS, dtype="float32")
NORM = OwnCall(
    name="undertorch::rms_norm_forward",
    arguments=named(x=X, residual=None, weight=WEIGHT, bias=None, eps=1e-6),
    outputs=(X, ABSENT, ABSENT, PER_ROW),
)
NORM_BACKWARD = OwnCall(
    name="undertorch::rms_norm_backward",
    arguments=named(
        dy=X, dtotal=None, x=X, weight=WEIGHT, mean=None, rstd=PER_ROW, bias_dtype=None, need_x=True, need_weight=True,
        need_bias=False,
    ),
    outputs=(X, WEIGHT, ABSENT),
)  # fmt: skip
LAYER = OwnCall(
    name="undertorch::linear_act_forward",
    arguments=named(x=X, weight=tensor(WIDTH, WIDTH), bias=WEIGHT, kind=1, keep=True),
    outputs=(X, X),
)


@pytest.fixture
def written() -> Written:
    """A trace of one step, empty as yet."""
    made = Written()
    made.step(1, 0, 1000)
    return made


def called(written: Written, begin: float, number: int, *kernels: tuple[str, float, float], thread: int = 1) -> None:
    """A call of an own op that launches kernels."""
    written.call(f"undertorch#{number}", begin, begin + 10, thread)
    for place, kernel in enumerate(kernels):
        written.launch(begin + 1 + place, kernel, thread=thread)


def own(line: int, call: OwnCall, phase: Phase | None = Phase.FORWARD):
    return replace(mark(line, phase, "own"), own=call)


def test_an_own_kernel_has_the_bytes_of_its_call_and_its_bound(written, tmp_path):
    """Rows read and written once, the weight, a statistic a row: 134 MB, for which 4.8 TB/s take 28 µs at least."""
    called(written, 10, 0, ("norm_forward", 200, 235))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, NORM)]))
    (launch,) = step.launches
    assert launch.kernel.min_bytes == (2 * ROWS * WIDTH + WIDTH) * BFLOAT16 + ROWS * FLOAT32
    assert (launch.kernel.kind, launch.kernel.library, launch.bound) == (Kind.NORM, "undertorch", Bound.MEMORY)
    assert step.ops[launch.ops[0]].name == "undertorch::rms_norm_forward"
    assert step.ops[launch.ops[0]].where.line == 31


def test_in_backward_its_line_is_that_of_the_forward(written, tmp_path):
    """No line of Python's calls it in the engine's thread: the node says whose it is."""
    applied = mark(31, Phase.FORWARD, "apply")
    written.call("undertorch#0", 10, 30)
    written.call("RmsNormForward", 11, 29, **{"Sequence number": 5, "Fwd thread id": 0})
    name = f"{NODE}RmsNormForwardBackward"
    written.call(name, 100, 150, ENGINE, **{"Sequence number": 5, "Fwd thread id": 1})
    called(written, 110, 1, ("norm_backward", 200, 260), ("column_sums", 260, 264), thread=ENGINE)
    marks = [applied, replace(own(0, NORM_BACKWARD, None), where=None)]
    step, _ = read_measured(tmp_path, kept(tmp_path, written, marks))
    assert [step.ops[one.ops[0]].where.line for one in step.launches] == [31, 31]
    assert [one.phase for one in step.launches] == [Phase.BACKWARD, Phase.BACKWARD]
    assert all(one.kernel.min_bytes for one in step.launches)


def test_what_an_own_op_calls_of_torch_is_told_apart(written, tmp_path):
    """A linear layer: the product is torch's call; the activation reads and writes the rows."""
    written.call("undertorch#0", 10, 30)
    written.call("aten::addmm", 11, 19)
    written.launch(12, ("nvjet_tst", 200, 400))
    written.launch(21, ("activate", 400, 440))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, LAYER)]))
    product, activation = step.launches
    assert step.ops[product.ops[0]].name == "aten::addmm"
    assert product.kernel.min_bytes is None  # this trace does not say what addmm was given
    assert activation.kernel.min_bytes == 2 * ROWS * WIDTH * BFLOAT16
    assert activation.kernel.kind is Kind.ELEMENTWISE


def test_a_custom_functions_forward_is_of_the_phase_in_which_it_was_applied(written, tmp_path):
    """It runs without gradients, and outside of a module nothing else says that it is part of the forward."""
    written.call("undertorch#0", 10, 40)
    called(written, 20, 1, ("norm_forward", 200, 235))
    marks = [mark(31, Phase.FORWARD, "apply"), own(31, NORM, Phase.OTHER)]
    step, _ = read_measured(tmp_path, kept(tmp_path, written, marks))
    assert [one.phase for one in step.launches] == [Phase.FORWARD]


def test_each_call_of_an_operator_is_described_while_it_is_followed(tmp_path):
    """A view of a storage keeps its offset, a dtype is named, a list is one of tensors; afterwards all is as before."""
    doubled = operators.operator(
        "doubled_in_a_test",
        "(Tensor[] xs, Tensor? y, ScalarType? dtype, float scale) -> (Tensor, Tensor)",
        lambda xs, y, dtype, scale: (xs[0] * scale, None),
        lambda xs, y, dtype, scale: (xs[0].new_empty(xs[0].shape), None),
    )
    seen = []

    def ranged(operator, function, arguments):
        call = own_ops.called(operator, arguments)
        result = function(*arguments)
        seen.append(replace(call, outputs=own_ops.answered(result)))
        return result

    whole = torch.ones(6, 4)
    before = changes()
    own_ops.follow_own_ops(ranged)
    found = doubled([whole, whole[2:]], None, torch.bfloat16, 2.0)
    put_back(before)
    doubled([whole], None, None, 2.0)
    assert torch.equal(found[0], whole * 2)
    (call,) = seen
    assert call.name == "undertorch::doubled_in_a_test"
    given = {one.name: one.value for one in call.arguments}
    assert [(one.shape, one.offset, one.storage) for one in given["xs"]] == [((6, 4), 0, 0), ((4, 4), 8, 0)]
    assert (given["y"], given["dtype"], given["scale"]) == (None, "bfloat16", 2.0)
    assert [one.shape for one in call.outputs] == [(6, 4), (0,)]
    measured = exchange.Measured(marks=(own(31, call),))
    exchange.write(tmp_path, measured)
    assert exchange.read(tmp_path) == measured
