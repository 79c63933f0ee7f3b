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


def tensor(*shape: int, dtype: str = "bfloat16", storage: int = 0) -> TensorRef:
    strides = tuple(torch.empty(shape, device="meta").stride())
    return TensorRef(shape=shape, strides=strides, dtype=dtype, device="cuda:0", storage=storage, offset=0, version=0)


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


TOKENS, FEATURES, CLASSES = 32768, 768, 50304
LOSS = OwnCall(
    name="undertorch::linear_cross_entropy_forward",
    arguments=named(
        x=tensor(TOKENS, FEATURES), weight=tensor(CLASSES, FEATURES), labels=tensor(TOKENS, dtype="int64"),
        ignore_index=-100, smoothing=0.0, reduction="mean", z_loss=0.0, softcap=None, accumulation="float32",
        need_x=True, need_weight=True,
    ),
    outputs=(tensor(dtype="float32"), tensor(TOKENS, FEATURES), tensor(CLASSES, FEATURES)),
)  # fmt: skip
CHUNKS = (5632, 5632, 5632, 5632, 5632, 4608)
"""Rows whose logits take 576 MiB at most, 6,003, in as few and as even chunks of whole 256 as there can be."""


@pytest.mark.parametrize("kernel", ["cross_entropy", "losses"], ids=["CUDA", "Triton"])
def test_losses_of_chunks_have_their_bytes_whichever_kernel_computes_them(written, tmp_path, kernel):
    """Logits of bfloat16 are read, and their gradient written over them; a label, a loss and two statistics a row. In
    the 290 µs that a chunk took on an H200 that is 3.9 of 4.8 TB/s: it waits for the memory."""
    written.call("undertorch#0", 10, 900)
    written.launch(11, ("label_weight", 20, 26))
    for place in range(len(CHUNKS)):
        at = 20 + 10 * place
        written.call("aten::mm", at, at + 2)
        written.launch(at + 1, ("nvjet_tst", 1000 * place + 30, 1000 * place + 400))
        written.launch(at + 4, (kernel, 1000 * place + 400, 1000 * place + 690))
    written.launch(800, ("reduced", 7000, 7003))
    written.step(1, 0, 8000)
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, LOSS)]))
    losses = [one for one in step.launches if one.kernel.name == kernel]
    for rows, one in zip(CHUNKS, losses, strict=True):
        assert one.kernel.min_bytes_read == rows * CLASSES * BFLOAT16 + rows * 8
        assert one.kernel.min_bytes_written == rows * CLASSES * BFLOAT16 + 3 * rows * FLOAT32
    assert {(one.kernel.kind, one.kernel.library) for one in losses} == {(Kind.LOSS, "undertorch")}
    assert {one.bound for one in losses[:5]} == {Bound.MEMORY}
    assert [one.kernel.min_bytes_read for one in step.launches if one.kernel.name == "reduced"] == [TOKENS * FLOAT32]


def gradient_of_weight(features: int, inputs: int) -> OwnCall:
    """Of a linear layer: the gradient's transpose times the input."""
    dy = replace(tensor(TOKENS, features), shape=(features, TOKENS), strides=(1, features))
    return OwnCall(
        name="undertorch::product",
        arguments=named(first=dy, second=tensor(TOKENS, inputs, storage=1), bias=None),
        outputs=(tensor(features, inputs),),
    )


def test_a_product_that_was_not_cut_has_the_bytes_of_its_result(written, tmp_path):
    """cuBLASLt's algorithm that was the fastest for 768 x 768 takes one kernel, its usual one two."""
    called(written, 10, 0, ("nvjet_sm90_tst_128x128_64x6_2x4_h_bz_NTT", 200, 368))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, gradient_of_weight(768, 768))]))
    (launch,) = step.launches
    assert launch.kernel.min_bytes_read == 2 * TOKENS * 768 * BFLOAT16
    assert launch.kernel.min_bytes_written == 768 * 768 * BFLOAT16
    assert (launch.kernel.flops, launch.kernel.library) == (2 * TOKENS * 768 * 768, "cuBLAS")
    # 39 GFLOP in 168 µs are 230 of the data sheet's 989 TFLOP/s, and 100 MB 0.6 of 4.8 TB/s
    assert launch.bound is Bound.LATENCY


def test_a_product_that_was_cut_writes_as_many_parts_as_its_grid_tells(written, tmp_path):
    """768 x 768 in tiles of 128 x 128 are 36: the 108 blocks that ran are three parts of each, where five are usual."""
    written.call("undertorch#0", 10, 30)
    written.launch(11, ("nvjet_sm90_tst_128x128_64x6_2x2_h_bz_splitK_NTT", 200, 300), grid=(4, 27, 1))
    written.launch(13, ("void cublasLt::splitKreduce_kernel<32, 16, int>", 300, 304))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, gradient_of_weight(768, 768))]))
    main, adds = (one.kernel for one in step.launches)
    parts = 3 * 768 * 768 * FLOAT32
    assert (main.min_bytes_read, main.min_bytes_written) == (2 * TOKENS * 768 * BFLOAT16, parts)
    assert (adds.min_bytes_read, adds.min_bytes_written) == (parts, 768 * 768 * BFLOAT16)
    assert (main.flops, adds.flops) == (2 * TOKENS * 768 * 768, 2 * 768 * 768)
    assert all(one.bound for one in step.launches)


GELU = OwnCall(
    name="undertorch::gelu_product",
    arguments=named(
        first=tensor(TOKENS, 768),
        second=replace(tensor(3072, 768, storage=1), shape=(768, 3072), strides=(1, 768)),
        bias=tensor(3072, storage=2),
    ),
    outputs=(tensor(TOKENS, 3072), tensor(TOKENS, 3072)),
)


def test_a_product_with_gelu_writes_what_goes_in_as_well(written, tmp_path):
    """One kernel of cuBLASLt's, before which its counter is cleared."""
    called(written, 10, 0, ("Memset", 198, 199), ("nvjet_sm90_tst_96x128_64x7_2x1_v_bz_geluauxbias_auxt_TNN", 200, 474))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, GELU)]))
    memset, product = (one.kernel for one in step.launches)
    assert memset.kind is Kind.MEMSET
    assert product.min_bytes_read == (TOKENS * 768 + 768 * 3072 + 3072) * BFLOAT16
    assert product.min_bytes_written == 2 * TOKENS * 3072 * BFLOAT16


def test_or_by_torchs_product_and_an_own_kernel(written, tmp_path):
    """Where cuBLASLt has none: the activation reads what the product left, and writes as much."""
    written.call("undertorch#0", 10, 30)
    written.call("aten::addmm", 11, 19)
    written.launch(12, ("nvjet_tst", 200, 400))
    written.launch(21, ("activate", 400, 500))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, GELU)]))
    activation = step.launches[1].kernel
    assert (activation.min_bytes_read, activation.min_bytes_written) == (TOKENS * 3072 * BFLOAT16,) * 2
    assert (activation.kind, activation.library) == (Kind.ELEMENTWISE, "undertorch")


def test_wide_rows_whose_gradients_were_measured_faster_by_two_kernels(written, tmp_path):
    """12288 elements a row: of one kernel that is usual, or of two, each of which reads gradient and rows."""
    wide, narrow = tensor(ROWS, 12288), tensor(12288)
    call = replace(
        NORM_BACKWARD,
        arguments=named(
            dy=wide, dtotal=None, x=wide, weight=narrow, mean=None, rstd=PER_ROW, bias_dtype=None, need_x=True,
            need_weight=True, need_bias=False,
        ),
        outputs=(wide, narrow, ABSENT),
    )  # fmt: skip
    kernels = (("wide_norm_dx", 200, 350), ("wide_norm_dw", 350, 460), ("column_sums", 460, 465))
    called(written, 10, 0, *kernels)
    called(written, 40, 1, ("norm_backward", 500, 650), ("column_sums", 650, 655))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, call), own(32, call)]))
    dx, dw, sums, both, _ = (one.kernel for one in step.launches)
    rows, statistic = ROWS * 12288 * BFLOAT16, ROWS * FLOAT32
    assert (dx.min_bytes_read, dx.min_bytes_written) == (2 * rows + 12288 * BFLOAT16 + statistic, rows)
    assert dw.min_bytes_read == 2 * rows + statistic
    assert dw.min_bytes_written == sums.min_bytes_read
    assert sums.min_bytes_written == 12288 * BFLOAT16
    assert both.min_bytes_read == 2 * rows + 12288 * BFLOAT16 + statistic
    assert dx.flops + dw.flops == both.flops


def test_a_kernel_whose_name_torch_has_too_is_undertorchs(written, tmp_path):
    call = OwnCall(name="undertorch::softmax_forward", arguments=named(x=X), outputs=(X,))
    called(written, 10, 0, ("wide_softmax_forward", 200, 235))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, call)]))
    assert step.launches[0].kernel.library == "undertorch"
    assert step.launches[0].kernel.min_bytes == 2 * ROWS * WIDTH * BFLOAT16


def test_of_a_call_that_lost_launches_what_has_its_own_name_has_figures(written, tmp_path):
    """The others may be any of those that are left."""
    called(written, 10, 0, ("label_weight", 20, 26), ("cross_entropy", 400, 690), ("reduced", 700, 703))
    step, _ = read_measured(tmp_path, kept(tmp_path, written, [own(31, LOSS)]))
    assert [one.kernel.min_bytes is None for one in step.launches] == [False, True, False]


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
