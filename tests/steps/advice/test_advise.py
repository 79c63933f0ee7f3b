"""What is advised, from Steps whose savings follow from their shapes by hand. Sizes in kB = 1000 bytes."""

from dataclasses import replace

import pytest

from steps.advice.by_hand import Tape, view
from steps_by_hand import NOTHING, STEP
from undertorch import gpus
from undertorch.records import (
    Advice,
    Assumption,
    Bound,
    Idle,
    IdleCause,
    Kind,
    Math,
    Origin,
    Phase,
    Step,
    Where,
)
from undertorch.records.steps import UNCAPTURED, UNCOMPILED, UNCOMPILED_FUNCTION
from undertorch.steps.advice import advise
from undertorch.steps.advice.chains import collect
from undertorch.steps.advice.dataflow import Queue
from undertorch.steps.advice.matmul import odd_sizes, padded

H200 = gpus.find("H200")


def advised(step: Step, gpu=H200) -> dict[str, Advice]:
    """By kind; a kind twice fails the test."""
    found = advise(step, gpu)
    assert len({one.kind for one in found}) == len(found)
    return {one.kind: one for one in found}


def test_where_nothing_is_to_be_gained_nothing_is_said():
    assert advise(STEP, H200) == ()
    assert advise(NOTHING, H200) == ()


def loss(tape: Tape, float32: bool = True) -> None:
    """1024 × 1000 logits from a matmul, log-softmax, likelihood, backward: as autocast runs them."""
    weight, hidden, logits = tape.new(1000, 64), tape.new(1024, 64), tape.new(1024, 1000)
    tape.call("mm", {"self": hidden, "mat2": weight}, (logits,), Kind.MATMUL, line=3)
    soft, grad = tape.new(1024, 1000), tape.new(1024, 1000)
    targets, value = tape.new(1024, dtype="int64"), tape.new(dtype="float32")
    forward = tape.call("_log_softmax", {"self": logits}, (soft,), Kind.SOFTMAX, 1000, 4, Phase.LOSS)
    long = tape.new(1024, 1000, dtype="float32")
    cast = tape.call("_to_copy", {"self": soft}, (long,), Kind.COPY, 1000, 4, Phase.LOSS)
    tape.call("nll_loss_forward", {"self": long, "target": targets}, (value,), Kind.LOSS, 10, 4, Phase.LOSS, read=8192)
    back = tape.new(1024, 1000, dtype="float32")
    here = {"line": 4, "phase": Phase.BACKWARD, "us": 1000}
    tape.call("nll_loss_backward", {"grad_output": value}, (back,), Kind.FILL, node="NllLossBackward0", **here)
    short = tape.new(1024, 1000)
    tape.call("_to_copy", {"self": back}, (short,), Kind.COPY, node="ToCopyBackward0", forward=cast.id, **here)
    inputs = {"grad_output": short, "output": soft}
    name = "_log_softmax_backward_data"
    tape.call(name, inputs, (grad,), Kind.SOFTMAX, node="LogSoftmaxBackward0", forward=forward.id, **here)
    tape.call("mm", {"self": grad, "mat2": weight}, (tape.new(1024, 64),), Kind.MATMUL, node="MmBackward0", **here)


def test_a_loss_that_goes_over_its_logits_again_and_again():
    """Logits take 2048 kB in bfloat16. Times that is moved: log-softmax 1 + 1, cast 1 + 2, gradient 2, cast 2 + 1,
    backward 3; and 8200 bytes by the likelihood and its gradient. A compiled loss moves them three times, and is taken
    to be no faster than the slowest launch that it replaces."""
    tape = Tape()
    loss(tape)
    one = advised(tape.step())["cross-entropy"]
    assert one.saves_bytes == (13 - 3) * 2_048_000 + 8200
    assert one.saves_us == 5 * 1000 + 10 - 1000
    assert one.lines == (Where(file="train.py", line=4, function="forward"),)
    assert "1,024 × 1,000 logits 13 times" in one.what
    assert one.op == "linear_cross_entropy"


def test_casts_are_spoken_of_where_there_are_any():
    cast = Tape()
    loss(cast)
    assert "since casts, log-softmax and their gradients" in advised(cast.step())["cross-entropy"].what
    plain = Tape()
    logits, soft, grad, value = (plain.new(*shape, dtype="float32") for shape in (*[(1024, 1000)] * 3, ()))
    targets = plain.new(1024, dtype="int64")
    plain.call("_log_softmax", {"self": logits}, (soft,), Kind.SOFTMAX, 1000, 4, Phase.LOSS)
    plain.call("nll_loss_forward", {"self": soft, "target": targets}, (value,), Kind.LOSS, 10, 4, Phase.LOSS, read=8192)
    here = {"line": 4, "phase": Phase.BACKWARD, "us": 1000}
    plain.call("nll_loss_backward", {"grad_output": value}, (grad,), Kind.FILL, node="NllLossBackward0", **here)
    inputs = {"grad_output": grad, "output": soft}
    last = (plain.new(1024, 1000, dtype="float32"),)
    plain.call("_log_softmax_backward_data", inputs, last, Kind.SOFTMAX, node="LogSoftmaxBackward0", **here)
    said = advised(plain.step())["cross-entropy"].what
    assert "since log-softmax and its gradient" in said
    assert "cast" not in said


def test_the_loss_of_each_microbatch_is_spoken_of_once():
    tape = Tape()
    loss(tape)
    once = advised(tape.step())["cross-entropy"]
    loss(tape)
    twice = advised(tape.step())["cross-entropy"]  # one of that kind
    assert (twice.saves_us, twice.saves_bytes) == (2 * once.saves_us, 2 * once.saves_bytes)
    assert twice.what == f"{once.what} (2 times in the step.)"
    assert twice.lines == once.lines


def test_what_only_has_the_size_of_the_logits_is_no_part_of_the_loss():
    """Hidden layers as wide as the vocabulary: the loss still moves its logits 13 times (above)."""
    tape = Tape()
    wide, acted = tape.new(1024, 1000), tape.new(1024, 1000)
    tape.call("mm", {"self": tape.new(1024, 64), "mat2": tape.new(64, 1000)}, (wide,), Kind.MATMUL, line=2)
    gelu = tape.call("gelu", {"self": wide}, (acted,), us=1000, line=2)
    loss(tape)
    gradient, back = tape.new(1024, 1000), tape.new(1024, 1000)
    here = {"line": 2, "phase": Phase.BACKWARD, "us": 1000}
    tape.call("mm", {"self": tape.new(1024, 64)}, (gradient,), Kind.MATMUL, node="MmBackward0", **here)
    inputs = {"grad_output": gradient, "self": wide}
    tape.call("gelu_backward", inputs, (back,), node="GeluBackward0", forward=gelu.id, **here)
    assert advised(tape.step())["cross-entropy"].saves_bytes == (13 - 3) * 2_048_000 + 8200


def test_logits_that_are_capped_first_are_moved_that_much_more():
    """A cap between matmul and log-softmax reads and writes them once more."""
    tape = Tape()
    weight, hidden, plain, capped = tape.new(1000, 64), tape.new(1024, 64), tape.new(1024, 1000), tape.new(1024, 1000)
    tape.call("mm", {"self": hidden, "mat2": weight}, (plain,), Kind.MATMUL, line=3)
    tape.call("tanh", {"self": plain}, (capped,), us=1000, line=4, phase=Phase.LOSS)
    soft, value = tape.new(1024, 1000), tape.new(dtype="float32")
    tape.call("_log_softmax", {"self": capped}, (soft,), Kind.SOFTMAX, 1000, 4, Phase.LOSS)
    tape.call("nll_loss_forward", {"self": soft}, (value,), Kind.LOSS, 10, 4, Phase.LOSS, read=8192)
    assert advised(tape.step())["cross-entropy"].saves_bytes == (2 + 2 - 1) * 2_048_000 + 8196


def test_log_softmax_that_is_no_loss_is_none():
    tape = Tape()
    x = tape.new(1024, 1000)
    tape.call("_log_softmax", {"self": x}, (tape.new(1024, 1000),), Kind.SOFTMAX, 1000)
    assert advise(tape.step(), H200) == ()


def normed(tape: Tape, layers: int = 1) -> None:
    """Residual add, norm, cast, matmul, as autocast runs them: float32 stream, bfloat16 branch; 1000 × 1000."""
    stream, branch = tape.new(1000, 1000, dtype="float32"), tape.new(1000, 1000)
    weight = tape.new(1000, 1000)
    for _ in range(layers):
        added = tape.new(1000, 1000, dtype="float32")
        tape.call("add", {"self": stream, "other": branch}, (added,), us=60, line=5)
        clean, mean = tape.new(1000, 1000, dtype="float32"), tape.new(1000, 1, dtype="float32")
        tape.call("native_layer_norm", {"input": added}, (clean, mean), Kind.NORM, 80, line=6)
        short = tape.new(1000, 1000)
        tape.call("_to_copy", {"self": clean}, (short,), Kind.COPY, 40, line=7)
        branch = tape.new(1000, 1000)
        tape.call("mm", {"self": short, "mat2": weight}, (branch,), Kind.MATMUL, 200, line=8)
        stream = added
    tape.call("add", {"self": stream, "other": branch}, (tape.new(1000, 1000, dtype="float32"),), us=60, line=9)


def test_residual_norm_and_cast_are_one_chain_each_layer():
    """A layer moves 4 + 2 + 4 (add), 4 + 4 (norm, and 4 kB of means), 4 + 2 (cast) MB. A kernel for all three would
    read the 4 + 2 and write the stream (4, the next add reads it), the means (nobody does, but they may be what is
    wanted), and 2: the normed float32 stays on the chip. So of 24 MB it saves 12, twice. The second add of the stream
    depends on the first by way of the matmul, so that it begins another chain."""
    tape = Tape()
    normed(tape, layers=2)
    one = advised(tape.step())["fuse-norm"]
    assert one.saves_bytes == 2 * 12_000_000
    assert one.saves_us == pytest.approx(2 * (60 + 80 + 40 - 80))
    assert {where.line for where in one.lines} == {5, 6, 7}
    assert "2 chains (most often add + native_layer_norm + to_copy)" in one.what
    assert one.op == "add_layer_norm"


def test_a_chain_of_hundreds_of_ops_is_named_in_a_few_words():
    """As a recurrent cell makes one, whose state goes from step to step."""
    tape = Tape()
    state = tape.new(1000, 1000)
    for name in ("mul", *["add"] * 300, "tanh", *["mul", "sin", "cos"] * 50):
        last, state = state, tape.new(1000, 1000)
        tape.call(name, {"self": last}, (state,), us=5)
    (one,) = (one for kind, one in advised(tape.step()).items() if kind.startswith("fuse"))
    assert "452 launches in a chain (mul + add 300× + tanh + mul + sin + cos + …) hand" in one.what


def test_what_backward_reads_stays_in_memory():
    """The same layer, and backward reads the normed float32: its 4 MB are written in any case."""
    tape = Tape()
    normed(tape)
    (clean, _) = tape.ops[1].outputs
    tape.call("mul", {"self": clean, "other": clean}, (tape.new(1000, 1000),), phase=Phase.BACKWARD, line=6)
    assert advised(tape.step())["fuse-norm"].saves_bytes == 8_000_000


def test_a_gate_is_one_chain_though_the_other_matmul_lies_between():
    """silu(x W) * (x V) in Python's order: product, silu, product, mul. silu writes 2 MB that mul reads."""
    tape = Tape()
    x, weight, gate, up = (tape.new(1000, 1000) for _ in range(4))
    tape.call("mm", {"self": x, "mat2": weight}, (gate,), Kind.MATMUL)
    warm = tape.new(1000, 1000)
    tape.call("silu", {"self": gate}, (warm,), us=100, line=2)
    tape.call("mm", {"self": x, "mat2": weight}, (up,), Kind.MATMUL)
    tape.call("mul", {"self": warm, "other": up}, (tape.new(1000, 1000),), us=100, line=2)
    one = advised(tape.step())["fuse-activation"]
    assert (one.saves_us, one.saves_bytes) == (100, 4_000_000)


def test_a_matmul_between_that_depends_on_the_first_kernel_keeps_two_apart():
    """relu(x) W + relu(x): the add needs the product, which needs all of relu(x)."""
    tape = Tape()
    x, weight, warm, product = (tape.new(1000, 1000) for _ in range(4))
    tape.call("relu", {"self": x}, (warm,))
    tape.call("mm", {"self": warm, "mat2": weight}, (product,), Kind.MATMUL)
    tape.call("add", {"self": warm, "other": product}, (tape.new(1000, 1000),))
    assert advise(tape.step(), H200) == ()


def test_two_chains_that_need_each_other_are_no_two_kernels():
    """a and d begin chains of their own. b = f(a, d) and e = g(a, d) each read both; were b in a kernel with a, and e
    in one with d, each kernel would wait for the other. Both go with d, and what a makes (2 MB) is written and read."""
    tape = Tape()
    x, y, a, d = (tape.new(1000, 1000) for _ in range(4))
    tape.call("relu", {"self": x}, (a,))
    tape.call("relu", {"self": y}, (d,))
    tape.call("mul", {"self": a, "other": d}, (tape.new(1000, 1000),))
    tape.call("add", {"self": a, "other": d}, (tape.new(1000, 1000),))
    (chain,) = collect(Queue(tape.step(), H200), ())
    assert chain.ops == [1, 2, 3]
    # now: 4 + 6 + 6 of d's three; one kernel: y and a read, two results written, d stays on the chip
    assert advised(tape.step())["fuse-activation"].saves_bytes == (4 + 6 + 6 - 8) * 1_000_000


def test_asking_about_an_op_that_launches_nothing_does_not_make_it_work():
    """A view: it has no kernels, takes no time, and stays among the ops that do nothing."""
    tape = Tape()
    x = tape.new(1000, 1000)
    tape.call("relu", {"self": x}, (tape.new(1000, 1000),))
    step = tape.step()
    reshaped = replace(step.ops[0], id=1, name="aten::view")
    queue = Queue(replace(step, ops=(*step.ops, reshaped)), H200)
    assert queue.kinds(reshaped) == set()
    assert (queue.time_us([1]), queue.moved([1]), queue.launches([1])) == (0, 0, 0)
    assert not queue.works(reshaped)
    assert list(queue.runs) == [0]


def test_a_norm_written_by_hand_is_found_with_its_statistics():
    """x / sqrt(mean(x²)): squares, a mean of each row, its root, the product. Between x and the result, both 2 MB,
    nothing has to be in memory: squares (2 MB out and in), rows (2 kB out and in, twice) and x a second time."""
    tape = Tape()
    x, squares, result = (tape.new(1000, 1000) for _ in range(3))
    mean, root = tape.new(1000, 1), tape.new(1000, 1)
    tape.call("pow", {"self": x}, (squares,), line=2)
    tape.call("mean", {"self": squares, "dim": (-1,)}, (mean,), Kind.REDUCTION, line=2)
    tape.call("rsqrt", {"self": mean}, (root,), line=2)
    tape.call("mul", {"self": x, "other": root}, (result,), line=2)
    one = advised(tape.step())["fuse-norm"]
    assert one.saves_bytes == 2 * 2_000_000 + 2_000_000 + 2 * 2 * 2_000
    assert one.saves_us == 300


def test_a_sum_over_rows_is_no_part_of_a_chain():
    """As the gradient of a bias is: it needs every row before its first result."""
    tape = Tape()
    x, doubled = tape.new(1000, 1000), tape.new(1000, 1000)
    tape.call("mul", {"self": x, "other": x}, (doubled,))
    tape.call("sum", {"self": doubled, "dim": (0,)}, (tape.new(1000),), Kind.REDUCTION)
    assert advise(tape.step(), H200) == ()


def attention(tape: Tape, context: int = 512, line: int = 0) -> None:
    """2 heads of 64 by hand: product, scale, softmax, product, and both products' backward."""
    q, k, v = (tape.new(2, context, 64) for _ in range(3))
    scores, scaled, soft = (tape.new(2, context, context) for _ in range(3))
    tape.call("bmm", {"self": q, "mat2": k}, (scores,), Kind.MATMUL, 50, line=line + 2)
    tape.call("mul", {"self": scores}, (scaled,), line=line + 3)
    tape.call("_softmax", {"self": scaled}, (soft,), Kind.SOFTMAX, 200, line=line + 4)
    tape.call("bmm", {"self": soft, "mat2": v}, (tape.new(2, context, 64),), Kind.MATMUL, 50, line=line + 5)
    back = {"phase": Phase.BACKWARD, "line": line + 5, "node": "BmmBackward0"}
    grad = tape.new(2, context, context)
    tape.call("bmm", {"self": q, "mat2": v}, (grad,), Kind.MATMUL, 50, **back)
    last = tape.new(2, context, context)
    tape.call("_softmax_backward_data", {"grad_output": grad, "output": soft}, (last,), Kind.SOFTMAX, 300, **back)
    tape.call("bmm", {"self": last, "mat2": k}, (tape.new(2, context, 64),), Kind.MATMUL, 50, **back)


def test_attention_by_hand_writes_its_scores():
    """2 × 512 × 512 scores take 1048576 bytes in bfloat16. They pass: scale 2, softmax 2, its backward 3, and one each
    in four products. A fused backward makes the first product again, which takes 50 µs."""
    tape = Tape()
    attention(tape)
    one = advised(tape.step())["attention"]
    assert one.saves_bytes == 11 * 1_048_576
    assert one.saves_us == 100 + 200 + 300 - 50
    assert one.lines[0].line == 4
    assert "2 × 512 × 512" in one.what


def test_scores_that_cannot_be_told_from_queries_are_left_alone():
    """A context of 64 with heads of 64: every tensor is as large as the scores."""
    tape = Tape()
    attention(tape, context=64)
    assert "attention" not in advised(tape.step())


def test_scaled_dot_product_attention_in_its_slow_form_is_told_what_to_change():
    tape = Tape()
    attention(tape)
    source = "\n\n\ny = F.scaled_dot_product_attention(q, k, v)\n"
    assert "none of PyTorch's fused kernels takes these inputs" in advised(tape.step(source))["attention"].what


def test_scores_of_one_size_at_two_lines_are_saved_once():
    tape = Tape()
    attention(tape)
    attention(tape, line=10)
    one = advised(tape.step())["attention"]
    assert one.saves_us == 2 * (100 + 200 + 300 - 50)
    assert [where.line for where in one.lines] == [4, 14]


def test_softmax_without_products_is_no_attention():
    tape = Tape()
    x = tape.new(1000, 1000)
    tape.call("_softmax", {"self": x}, (tape.new(1000, 1000),), Kind.SOFTMAX)
    assert advise(tape.step(), H200) == ()


def adamw(tape: Tape, parameters: int = 1_000_000) -> None:
    """torch.optim.AdamW's foreach kernels, for one float32 parameter."""
    p, g, m, v, root = (tape.new(parameters, dtype="float32") for _ in range(5))
    size = 4 * parameters
    here = {"kind": Kind.OPTIMIZER, "phase": Phase.UPDATE, "line": 12, "us": 100}
    tape.call("_foreach_mul_", {"self": (p,)}, written=size, **here)
    tape.call("_foreach_lerp_", {"self": (m,), "tensors1": (g,)}, written=size, **here)
    tape.call("_foreach_mul_", {"self": (v,)}, written=size, **here)
    tape.call(
        "_foreach_addcmul_", {"self": (v,), "tensor1": (g,), "tensor2": (g,)}, read=2 * size, written=size, **here
    )
    tape.call("_foreach_sqrt", {"self": (v,)}, (root,), **here)
    tape.call("_foreach_add_", {"self": (root,)}, written=size, **here)
    tape.call("_foreach_addcdiv_", {"self": (p,), "tensor1": (m,), "tensor2": (root,)}, written=size, **here)


def test_an_update_of_many_kernels_moves_28_bytes_a_parameter_when_fused():
    """Four float32 read and three written. By hand: 2 + 3 + 2 + 3 + 2 + 2 + 4 = 18 float32 a parameter."""
    tape = Tape()
    adamw(tape)
    one = advised(tape.step())["optimizer"]
    assert one.saves_bytes == (18 * 4 - 28) * 1_000_000
    assert one.saves_us == 600
    assert "fused=True" in one.what
    assert one.op == "adamw"


def test_a_fused_update_is_left_alone():
    tape = Tape()
    lists = {name: (tape.new(1000, dtype="float32"),) for name in ("self", "grads", "exp_avgs", "exp_avg_sqs")}
    tape.call("_fused_adamw_", lists, kind=Kind.OPTIMIZER, phase=Phase.UPDATE)
    assert advise(tape.step(), H200) == ()


def test_undertorchs_own_update_with_its_norm_is_left_alone():
    tape = Tape()
    p, g, m, v = (tape.new(1_000_000, dtype="float32") for _ in range(4))
    update = {"kind": Kind.OPTIMIZER, "phase": Phase.UPDATE}
    tape.call("undertorch::sum_of_squares", {"tensors": (g,)}, (tape.new(dtype="float32"),), launches=2, **update)
    lists = {"parameters": (p,), "gradients": (g,), "exp_avgs": (m,), "exp_avg_sqs": (v,)}
    tape.call("undertorch::adamw", lists, launches=2, written=12_000_000, **update)
    assert advise(tape.step(), H200) == ()


def clipped(tape: Tape) -> None:
    p, g, m, v = (tape.new(1_000_000, dtype="float32") for _ in range(4))
    factor = tape.new(dtype="float32")
    scale = {"self": (g,), "other": factor}
    tape.call("_foreach_mul_", scale, phase=Phase.CLIP, read=4_000_000, written=4_000_000, us=80, line=9)
    lists = {"self": (p,), "grads": (g,), "exp_avgs": (m,), "exp_avg_sqs": (v,)}
    tape.call("_fused_adamw_", lists, kind=Kind.OPTIMIZER, phase=Phase.UPDATE, us=300, line=10)


def test_clipping_before_a_fused_update_reads_and_writes_every_gradient_once_more():
    """The update given a scale stores the scaled gradient too, so of 8 bytes a parameter 4 are saved."""
    tape = Tape()
    clipped(tape)
    one = advised(tape.step())["clipping"]
    assert (one.saves_us, one.saves_bytes) == (40, 4_000_000)
    assert [where.line for where in one.lines] == [9]


def autocast_weights(dtype: str) -> Tape:
    """10⁶ weights, cast forward and their gradients back, updated by a fused AdamW."""
    tape = Tape()
    weight, short = tape.new(1000, 1000, dtype="float32"), tape.new(1000, 1000, dtype=dtype)
    x, y, grad = tape.new(10, 1000), tape.new(10, 1000), tape.new(1000, 1000)
    cast = tape.call("_to_copy", {"self": weight}, (short,), Kind.COPY, line=3)
    tape.call("mm", {"self": x, "mat2": short}, (y,), Kind.MATMUL, line=3)
    back = {"phase": Phase.BACKWARD, "line": 3}
    tape.call("mm", {"self": y, "mat2": x}, (grad,), Kind.MATMUL, node="MmBackward0", **back)
    long = tape.new(1000, 1000, dtype="float32")
    tape.call("_to_copy", {"self": grad}, (long,), Kind.COPY, node="ToCopyBackward0", forward=cast.id, **back)
    states = {"exp_avgs": (tape.new(1000, 1000, dtype="float32"),)}
    tape.call("_fused_adamw_", {"self": (weight,), "grads": (long,), **states}, phase=Phase.UPDATE, line=9)
    return tape


def test_weights_that_autocast_converts_in_every_step():
    """6 MB forward, 6 MB back; an optimizer that writes both formats writes 2 MB more."""
    one = advised(autocast_weights("bfloat16").step())["weight-casts"]
    assert one.saves_bytes == 10_000_000
    # writing 2 MB takes 0.5 µs and a start
    assert one.saves_us == pytest.approx(200, abs=2)


def test_nobody_is_told_to_keep_weights_in_float16():
    """torch.amp.GradScaler raises `Attempting to unscale FP16 gradients.`; a V100 has no bfloat16 to go to."""
    step = autocast_weights("float16").step()
    said = advised(step)["weight-casts"].what
    assert "model.to(torch.bfloat16)" in said
    assert "model.to(torch.float16)" not in said
    assert "weight-casts" not in advised(step, gpus.find("V100-SXM2-32GB"))


def test_a_cast_of_what_is_no_weight_is_none():
    tape = Tape()
    x = tape.new(1000, 1000, dtype="float32")
    tape.call("_to_copy", {"self": x}, (tape.new(1000, 1000),), Kind.COPY)
    assert advise(tape.step(), H200) == ()


def test_a_transposed_tensor_that_is_copied_into_rows():
    tape = Tape()
    x = tape.new(100, 200)
    turned = view(x, 200, 100, strides=(1, 200))
    tape.call("t", {"self": x}, (turned,), launches=0)
    tape.call("clone", {"self": turned}, (tape.new(200, 100),), Kind.COPY, 30, line=7)
    one = advised(tape.step())["copies"]
    assert (one.saves_us, one.saves_bytes) == (30, 80_000)
    assert "contiguous" in one.what


def test_an_expanded_tensor_that_is_copied_is_made_larger_and_not_laid_out():
    tape = Tape()
    x = tape.new(100, 1)
    tape.call("clone", {"self": view(x, 100, 50, strides=(1, 0))}, (tape.new(100, 50),), Kind.COPY)
    assert advise(tape.step(), H200) == ()


def test_gradients_that_are_stacked_and_then_laid_out_anew():
    """Three parts of 20 kB: stacked (60 kB in and out), then copied in another order (as much): one of the two goes."""
    tape = Tape()
    parts = tuple(tape.new(100, 100) for _ in range(3))
    stacked = tape.new(3, 100, 100)
    back = {"phase": Phase.BACKWARD, "kind": Kind.COPY, "line": 4}
    tape.call("stack", {"tensors": parts}, (stacked,), node="UnbindBackward0", us=300, **back)
    turned = view(stacked, 100, 3, 100, strides=(100, 10_000, 1))
    tape.call("clone", {"self": turned}, (tape.new(100, 3, 100),), node="ViewBackward0", us=200, **back)
    one = advised(tape.step())["copies"]
    assert one.saves_bytes == 120_000
    # one copy of 120 kB takes 0.03 µs and a start
    assert one.saves_us == pytest.approx(500, abs=1)
    assert "split" in one.what


def float32_matmul(tape: Tape, *, tf32: bool = False) -> None:
    x, weight = tape.new(4096, 4096, dtype="float32"), tape.new(4096, 4096, dtype="float32")
    y = tape.new(4096, 4096, dtype="float32")
    inputs = {"self": x, "mat2": weight}
    cost = {"flops": 2 * 4096**3, "math": Math.FP32, "bound": Bound.COMPUTE}
    tape.call("mm", inputs, (y,), Kind.MATMUL, 2700, tf32=tf32, **cost)


def test_float32_matmuls_where_the_gpu_has_tf32():
    """The H200's tensor cores do 494 TFLOP/s in TF32, its CUDA cores 67 in float32: most of the time goes."""
    tape = Tape()
    float32_matmul(tape)
    one = advised(tape.step())["tf32"]
    assert 0.8 * 2700 < one.saves_us < 2700 * (1 - 67 / 494)
    assert one.saves_bytes == 0


def test_no_tf32_on_a_gpu_that_has_none_and_none_where_the_script_sees_to_it():
    tape = Tape()
    float32_matmul(tape)
    assert "tf32" not in advised(tape.step(), gpus.find("V100-SXM2-16GB"))
    allowed = Tape()
    float32_matmul(allowed, tf32=True)
    assert "tf32" not in advised(allowed.step())


def linear(tape: Tape, outputs: int) -> None:
    """4096 rows of 768 times a weight of `outputs` × 768, as a linear layer's forward."""
    x, weight = tape.new(4096, 768), tape.new(outputs, 768)
    turned = view(weight, 768, outputs, strides=(1, 768))
    tape.call(
        "mm", {"self": x, "mat2": turned}, (tape.new(4096, outputs),), Kind.MATMUL, 1000, math=Math.TENSOR_BF16, line=8
    )


def test_a_vocabulary_that_is_no_multiple_of_8_is_padded():
    tape = Tape()
    linear(tape, 50257)
    one = advised(tape.step())["alignment"]
    assert "50,257" in one.what
    assert "50,304" in one.what
    assert one.saves_us > 500
    aligned = Tape()
    linear(aligned, 50304)
    assert advise(aligned.step(), H200) == ()


def test_only_sizes_that_rows_are_apart_by_matter():
    """4095 rows of 768 are as well aligned as 4096."""
    tape = Tape()
    linear(tape, 1001)
    assert odd_sizes(tape.ops[0]) == {1001}
    x, _ = tape.ops[0].inputs
    odd_rows = replace(x, shape=(4095, 768))
    assert 4095 not in odd_sizes(replace(tape.ops[0], arguments=(replace(tape.ops[0].arguments[0], value=odd_rows),)))


def test_padding_keeps_the_order_in_memory():
    tape = Tape()
    linear(tape, 1001)
    mended = padded(tape.ops[0], {1001})
    x, turned = mended.inputs
    assert (x.shape, x.strides) == ((4096, 768), (768, 1))
    assert (turned.shape, turned.strides) == ((768, 1024), (1, 768))
    assert (mended.results[0].shape, mended.results[0].strides) == ((4096, 1024), (1024, 1))


def test_a_queue_that_the_cpu_cannot_keep_full():
    tape = Tape()
    tape.call("relu", {"self": tape.new(10)}, (tape.new(10),), line=3)
    where = tape.ops[0].where
    idle = tuple(Idle(start_us=0, time_us=us, cause=cause, where=where) for us, cause in CAUSES)
    one = advised(tape.step(idle=idle))["launching"]
    assert one.saves_us == 70
    assert one.lines == (where,)


def test_a_script_that_compiles_its_model_is_not_told_to():
    """What it compiles is told by its modules, in whose calls the ops stand."""
    tape = Tape()
    normed(tape, layers=2)
    loss(tape)
    idle = tuple(Idle(start_us=0, time_us=us, cause=cause, where=tape.ops[0].where) for us, cause in CAUSES)
    step = tape.step(idle=idle)
    assert {"launching", "fuse-norm", "cross-entropy"} <= advised(step).keys()
    compiled = replace(step.accounting, assumed=(Assumption(where=None, what=f"{UNCOMPILED}: as it is."),))
    inside = tuple(replace(op, module="layers.0") for op in step.ops)
    assert advised(replace(step, ops=inside, accounting=compiled)) == {}
    assert set(advised(replace(step, accounting=compiled))) == {"fuse-norm", "cross-entropy"}, "outside of any module"


def test_code_that_inductor_wrote_kernels_for_is_not_to_be_compiled():
    """Beside its kernels what it leaves to ATen stays as it is; of other functions, and of an update, that says
    nothing."""
    tape = Tape()
    normed(tape, layers=2)
    loss(tape)
    written = tape.call("inductor::fused_gelu", {"self": tape.new(1000)}, (tape.new(1000),), us=10)
    idle = tuple(Idle(start_us=0, time_us=us, cause=cause, where=tape.ops[0].where) for us, cause in CAUSES)
    step = tape.step(idle=idle)
    found = advised(step)
    assert found.keys() == {"launching"}
    assert "torch.compile(model" not in found["launching"].what
    for apart in (
        replace(written, where=replace(written.where, function="elsewhere")),
        replace(written, phase=Phase.UPDATE),
    ):
        ops = tuple(apart if op is written else op for op in step.ops)
        assert {"fuse-norm", "cross-entropy"} <= advised(replace(step, ops=ops)).keys()


def test_a_loss_in_a_function_that_the_script_compiles_is_not_to_be_compiled():
    tape = Tape()
    loss(tape)
    step = tape.step()
    inside = Where(file="train.py", line=9, function="loss_of")
    step = replace(step, ops=tuple(replace(op, chain=(inside,)) for op in step.ops))
    compiled = Assumption(where=replace(inside, line=8), what=f"{UNCOMPILED_FUNCTION}: as it is.")
    assert "cross-entropy" in advised(step)
    assert advised(replace(step, accounting=replace(step.accounting, assumed=(compiled,)))) == {}


def test_what_a_function_that_the_script_compiles_launches_is_not_what_the_cpu_is_slow_at():
    """Of its 100 launches of a loop, and of an update in it, none is advised on; without, each is."""
    for phase, kinds in ((Phase.OTHER, {"foreach"}), (Phase.UPDATE, {"update-loop"}), (Phase.FORWARD, set())):
        step = averaged(Tape(), update=phase)
        inside = Where(file="train.py", line=9, function="follow")
        ops = tuple(replace(op, chain=(inside,)) if op.where.line == 8 else op for op in step.ops)
        compiled = Assumption(where=replace(inside, line=7), what=f"{UNCOMPILED_FUNCTION}: as it is.")
        assert advised(step).keys() >= kinds | {"launching"}
        found = advised(replace(step, ops=ops, accounting=replace(step.accounting, assumed=(compiled,))))
        assert found.keys() == {"launching"}
        assert found["launching"].saves_us == pytest.approx(10 * 30)


def test_a_script_that_captures_cuda_graphs_is_not_told_to():
    step = averaged(Tape())
    captured = Assumption(where=None, what=f"{UNCAPTURED}: as it is.")
    assert "launching" in advised(step)
    assert "launching" not in advised(replace(step, accounting=replace(step.accounting, assumed=(captured,))))


CAUSES = ((30, IdleCause.LAUNCH), (40, IdleCause.LAUNCH), (50, IdleCause.GAP))


def test_a_value_that_the_script_waits_for_in_a_measured_step():
    tape = Tape()
    tape.call("_local_scalar_dense", {"self": tape.new()}, kind=Kind.MEMCPY, us=10, line=5)
    idle = (Idle(start_us=10, time_us=90, cause=IdleCause.SYNC),)
    one = advised(replace(tape.step(idle=idle), time_origin=Origin.MEASURED))["sync"]
    assert one.saves_us == 90
    assert one.what.startswith("Once in the step")
    assert [where.line for where in one.lines] == [5]


def test_the_largest_saving_stands_first_and_each_launch_is_saved_once():
    tape = Tape()
    for part in (loss, normed, attention, adamw):
        part(tape)
    found = advise(tape.step(), H200)
    assert {one.kind for one in found} >= {"cross-entropy", "fuse-norm", "attention", "optimizer"}
    saved = [one.saves_us for one in found]
    assert saved == sorted(saved, reverse=True)
    assert sum(saved) < tape.now
    assert sum(one.saves_bytes or 0 for one in found) < sum(one.kernel.min_bytes for one in tape.launches)


def test_below_a_hundredth_of_the_busy_time_nothing_is_said():
    """The chain of two layers saves 200 µs (see above)."""
    tape = Tape()
    normed(tape, layers=2)
    x = tape.new(10)
    rest = 20_000 - tape.now
    tape.call("mm", {"self": x, "mat2": x}, (x,), Kind.MATMUL, us=rest)
    assert "fuse-norm" in advised(tape.step())
    tape.call("mm", {"self": x, "mat2": x}, (x,), Kind.MATMUL, us=10)
    assert advise(tape.step(), H200) == ()


def test_a_launch_of_unknown_bytes_has_no_saving():
    tape = Tape()
    normed(tape)
    first = tape.launches[0]
    tape.launches[0] = replace(first, kernel=replace(first.kernel, min_bytes_read=None))
    assert advise(tape.step(), H200) == ()


def averaged(
    tape: Tape, parameters: int = 50, update: Phase = Phase.OTHER, waits_us: float = 30, clipped: bool = False
) -> Step:
    """A model's ten kernels, then an average of its weights kept in a loop: before each launch 30 µs of idle time."""
    starts = []
    for _ in range(10):
        tape.call("relu", {"self": tape.new(1000)}, (tape.new(1000),), line=3, us=5)
    for _ in range(parameters):
        average, weight = tape.new(1000), tape.new(1000)
        tape.call("mul_", {"self": average}, (average,), line=8, us=5, phase=update)
        tape.call("add_", {"self": average, "other": weight}, (average,), line=8, us=5, phase=update)
    if clipped:
        grads = tuple(tape.new(20_000) for _ in range(50))
        for grad in grads:
            tape.call("mul_", {"self": grad}, (grad,), line=9, us=5, phase=Phase.CLIP)
        tape.call("_fused_adamw_", {"self": (), "grads": grads}, (), Kind.OPTIMIZER, 5, 10, Phase.UPDATE, written=0)
    idle = []
    for number, one in enumerate(tape.launches):
        starts.append(one.start_us + waits_us * (number + 1))
        where = tape.ops[number].where
        idle.append(Idle(start_us=starts[-1] - waits_us, time_us=waits_us, cause=IdleCause.LAUNCH, where=where))
    tape.launches = [replace(one, start_us=start) for one, start in zip(tape.launches, starts, strict=True)]
    return tape.step(idle=tuple(idle))


@pytest.mark.parametrize(("phase", "kind"), [(Phase.OTHER, "foreach"), (Phase.UPDATE, "update-loop")])
def test_a_loop_over_tensors_outside_the_model_is_not_what_compiling_the_model_saves(phase, kind):
    """Of 2 × 50 launches two are left; the model's own ten wait 300 µs."""
    found = advised(averaged(Tape(), update=phase))
    assert found["launching"].saves_us == pytest.approx(10 * 30)
    assert "the model's 10 kernels" in found["launching"].what
    assert found[kind].saves_us == pytest.approx((100 - 2) * 30)
    assert found[kind].what.startswith("100 launches")
    assert [where.line for where in found[kind].lines] == [8]


def test_of_two_remedies_for_one_loop_of_updates_the_better_is_said():
    """Fused, the update's 100 launches save 490 µs of their own time; of the waiting for them, 98 times what each waits
    for."""
    slow = averaged(Tape(), update=Phase.UPDATE)
    assert advised(slow).keys() & {"optimizer", "update-loop"} == {"update-loop"}
    fast = averaged(Tape(), update=Phase.UPDATE, waits_us=1)
    assert advised(fast).keys() & {"optimizer", "update-loop"} == {"optimizer"}
    for step in (slow, fast):
        assert sum(one.saves_us for one in advise(step, H200)) <= step.step_us


def test_a_loop_that_clips_is_told_apart_from_the_others():
    """Before a fused update, 50 gradients of 40 kB are scaled one by one, and 50 averages are kept."""
    step = averaged(Tape(), clipped=True)
    found = advise(step, H200)
    assert sorted(one.kind for one in found if one.kind in ("clipping", "foreach")) == ["foreach", "foreach"]
    assert [one.what.split()[0] for one in found if one.kind == "foreach"] == ["100", "50"]
    assert sum(one.saves_us for one in found) <= step.step_us


def test_one_call_for_a_list_of_tensors_is_no_loop():
    tape = Tape()
    average = tape.new(1000)
    for _ in range(2):
        tape.call("_foreach_mul_", {"self": average}, (average,), line=8, us=5, phase=Phase.OTHER)
    where = tape.ops[0].where
    idle = tuple(Idle(start_us=start - 30, time_us=30, cause=IdleCause.LAUNCH, where=where) for start in (0, 5))
    assert "foreach" not in advised(tape.step(idle=idle))


def bfloat16_matmul(gpu) -> dict[str, Advice]:
    """4096³ on the CUDA cores: 137 GFLOP, far more than its bytes take."""
    tape = Tape()
    a, b = tape.new(4096, 4096), tape.new(4096, 4096)
    flops = 2 * 4096**3
    inputs = {"self": a, "mat2": b}
    tape.call("mm", inputs, (tape.new(4096, 4096),), Kind.MATMUL, 20_000, 5, flops=flops, math=Math.FP32)
    return advised(tape.step(), gpu)


def test_bfloat16_on_a_gpu_without_tensor_cores_for_it_is_told_of_float16():
    """A T4 does 8.1 TFLOP/s in float32 and 65 on its tensor cores: an eighth of the time, at the same share of both."""
    one = bfloat16_matmul(gpus.find("T4"))["float16"]
    assert one.saves_us == pytest.approx(20_000 * (1 - 8.1 / 65), rel=0.02)
    assert "T4 has no bfloat16 tensor cores" in one.what
    assert "GradScaler" in one.what


def test_bfloat16_where_tensor_cores_take_it_is_left_alone():
    assert "float16" not in bfloat16_matmul(gpus.find("A100-40GB"))


def test_where_no_product_is_known_float16_is_spoken_of_without_a_saving():
    tape = Tape()
    x = tape.new(64, 64)
    tape.call("mm", {"self": x, "mat2": x}, (x,), launches=0)
    step = tape.step()
    unknown = replace(step, accounting=replace(step.accounting, ops_without_cost=("aten::mm",)))
    assert advised(unknown, gpus.find("V100-SXM2-16GB"))["float16"].saves_us is None
