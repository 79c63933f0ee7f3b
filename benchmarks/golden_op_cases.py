"""Calls of single ATen ops, over families, dtypes, shapes and layouts: what `golden_ops.py` asks the GPU.

Each case is a name, tensors that are made beforehand, and the call itself. The shapes are chosen at the places where
PyTorch's host code takes another branch: alignment, odd widths, strided inputs, few and many rows, a table's edges.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

aten = torch.ops.aten
BF16, F16, F32, F64, I64 = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64


@dataclass(frozen=True)
class Case:
    name: str
    call: Callable[[], object]


def randn(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=F32).to(dtype)


def case(name: str, function: Callable[..., object], *args: object, **kwargs: object) -> Case:
    return Case(name, lambda: function(*args, **kwargs))


def elementwise() -> Iterator[Case]:
    for dtype in (F32, BF16, F64):
        for n in (1, 511, 4096, 1_000_003, 32768 * 768):
            x, y = randn(n, dtype=dtype), randn(n, dtype=dtype)
            yield case(f"add {dtype} {n}", aten.add.Tensor, x, y)
            yield case(f"gelu {dtype} {n}", aten.gelu.default, x)


def functors() -> Iterator[Case]:
    x, y = randn(32768, 3072, dtype=BF16), randn(32768, 3072, dtype=BF16)
    for name in ("silu", "relu", "tanh", "sigmoid", "exp", "neg", "sqrt", "rsqrt", "abs", "log", "reciprocal", "sin"):
        yield case(f"{name} bf16", getattr(aten, name).default, x)
    for name in ("mul", "sub", "div", "maximum", "eq", "lt"):
        overload = "default" if name == "maximum" else "Tensor"
        yield case(f"{name} bf16", getattr(getattr(aten, name), overload), x, y)
    yield case("mul scalar bf16", aten.mul.Tensor, x, 0.5)
    yield case("pow scalar bf16", aten.pow.Tensor_Scalar, x, 3.0)
    yield case("pow 2 f32", aten.pow.Tensor_Scalar, x.float(), 2)
    yield case("gelu_backward bf16", aten.gelu_backward.default, x, y, approximate="tanh")
    yield case("silu_backward bf16", aten.silu_backward.default, x, y)
    yield case("tanh_backward bf16", aten.tanh_backward.default, x, y)
    yield case("sigmoid_backward bf16", aten.sigmoid_backward.default, x, y)
    yield case("threshold_backward bf16", aten.threshold_backward.default, x, y, 0)
    yield case("add_ bf16", aten.add_.Tensor, x.clone(), y)
    yield case("mul_ scalar f32", aten.mul_.Tensor, randn(4096, 4096), 0.9)


def layouts() -> Iterator[Case]:
    yield case("add mixed f32 bf16", aten.add.Tensor, randn(32768, 768), randn(32768, 768, dtype=BF16))
    yield case("add_ mixed f32 bf16", aten.add_.Tensor, randn(32768, 768), randn(32768, 768, dtype=BF16))
    yield case("mul mixed bf16 f32", aten.mul.Tensor, randn(32768, 768, dtype=BF16), randn(32768, 768))
    yield case("add bias broadcast f32", aten.add.Tensor, randn(32, 1024, 768), randn(1024, 768))
    yield case("add bias broadcast bf16", aten.add.Tensor, randn(32768, 768, dtype=BF16), randn(768, dtype=BF16))
    yield case("mul column broadcast", aten.mul.Tensor, randn(4096, 1), randn(4096, 1024))
    yield case("add transposed f32", aten.add.Tensor, randn(4096, 2048).t(), randn(2048, 4096))
    yield case("add both transposed f32", aten.add.Tensor, randn(4096, 2048).t(), randn(4096, 2048).t())
    yield case("add sliced f32", aten.add.Tensor, randn(4096, 2048)[:, 1:1025], randn(4096, 1024))
    yield case("mul offset view bf16", aten.mul.Tensor, randn(100_001, dtype=BF16)[1:], randn(100_000, dtype=BF16))
    yield case("add offset view f32", aten.add.Tensor, randn(100_001)[1:], randn(100_000))
    yield case("neg permuted bf16", aten.neg.default, randn(32, 16, 1024, 64, dtype=BF16).permute(0, 2, 1, 3))
    yield case(
        "cat halves rope mul",
        aten.mul.Tensor,
        randn(4, 4096, 32, 128, dtype=BF16).transpose(1, 2),
        randn(1, 1, 4096, 128, dtype=BF16),
    )


def masks_and_scalars() -> Iterator[Case]:
    mask = torch.ones(1024, 1024, device="cuda", dtype=torch.bool).triu(1)
    scores = randn(8, 12, 1024, 1024, dtype=BF16)
    yield case("masked_fill bf16", aten.masked_fill.Scalar, scores, mask, float("-inf"))
    yield case("masked_fill_ bf16", aten.masked_fill_.Scalar, scores.clone(), mask, 0.0)
    yield case("where", aten.where.self, mask, randn(1024, 1024), randn(1024, 1024))
    yield case("clamp", aten.clamp.default, randn(1_000_000), -1.0, 1.0)
    yield case("lerp scalar", aten.lerp.Scalar, randn(1_000_000), randn(1_000_000), 0.1)
    yield case("lerp_ scalar", aten.lerp_.Scalar, randn(1_000_000), randn(1_000_000), 0.1)
    yield case("addcmul", aten.addcmul.default, randn(1_000_000), randn(1_000_000), randn(1_000_000))
    yield case("addcdiv_", aten.addcdiv_.default, randn(1_000_000), randn(1_000_000), randn(1_000_000), value=-0.1)
    yield case("isnan f32", aten.isnan.default, randn(1_000_000))
    yield case("logical_not", aten.logical_not.default, mask)
    yield case("bitwise_and", aten.bitwise_and.Tensor, mask, mask.t().contiguous())
    yield case("add int64", aten.add.Tensor, torch.arange(100_000, device="cuda"), 1)
    yield case("zero dim add", aten.add.Tensor, randn(), randn())
    yield case("div by zero dim tensor", aten.div.Tensor, randn(1_000_000), randn())
    yield case("tril", aten.tril.default, randn(1024, 1024))
    yield case("triu bf16", aten.triu.default, randn(64, 512, 512, dtype=BF16), 1)
    yield case("glu", aten.glu.default, randn(8192, 2048, dtype=BF16), -1)
    yield case("leaky_relu", aten.leaky_relu.default, randn(1_000_000))
    yield case("log_sigmoid", aten.log_sigmoid_forward.default, randn(1_000_000))
    yield case("softplus", aten.softplus.default, randn(1_000_000))


def copies() -> Iterator[Case]:
    for n in (768, 768 * 3072, 50304 * 768, 1_000_003):
        x = randn(n)
        yield case(f"f32 to bf16 {n}", aten._to_copy.default, x, dtype=BF16)
        yield case(f"bf16 to f32 {n}", aten._to_copy.default, x.to(BF16), dtype=F32)
    x = randn(4_000_000)
    yield case("f32 to f16", aten._to_copy.default, x, dtype=F16)
    yield case("f32 to f64", aten._to_copy.default, x, dtype=F64)
    yield case("i64 to f32", aten._to_copy.default, x.to(I64), dtype=F32)
    yield case("bool to f32", aten._to_copy.default, x > 0, dtype=F32)
    yield case("bool to bf16", aten._to_copy.default, x > 0, dtype=BF16)
    yield case("f32 to bool", aten._to_copy.default, x, dtype=torch.bool)
    for dtype in (F32, BF16):
        yield case(f"clone {dtype}", aten.clone.default, randn(4_000_000, dtype=dtype))
        yield case(f"copy_ {dtype}", aten.copy_.default, randn(4_000_000, dtype=dtype), randn(4_000_000, dtype=dtype))
        yield case(
            f"clone transposed {dtype}",
            aten.clone.default,
            randn(4096, 2048, dtype=dtype).t(),
            memory_format=torch.contiguous_format,
        )
        heads = randn(32, 12, 1024, 64, dtype=dtype).transpose(1, 2)
        yield case(f"clone heads {dtype}", aten.clone.default, heads, memory_format=torch.contiguous_format)
        yield case(
            f"clone sliced {dtype}",
            aten.clone.default,
            randn(4096, 3072, dtype=dtype)[:, 1024:2048],
            memory_format=torch.contiguous_format,
        )
        yield case(
            f"cat 2 {dtype}", aten.cat.default, [randn(4096, 1024, dtype=dtype), randn(4096, 512, dtype=dtype)], 1
        )
        yield case(f"cat 3 dim0 {dtype}", aten.cat.default, [randn(100, 77, dtype=dtype) for _ in range(3)], 0)
        yield case(f"cat many {dtype}", aten.cat.default, [randn(50, dtype=dtype) for _ in range(200)], 0)
        yield case(
            f"stack 3 heads {dtype}", aten.stack.default, [randn(8, 12, 512, 64, dtype=dtype) for _ in range(3)], 0
        )
        yield case(
            f"stack strided {dtype}",
            aten.stack.default,
            [randn(8, 512, 12, 64, dtype=dtype).transpose(1, 2) for _ in range(3)],
            0,
        )
        yield case(f"stack scalars {dtype}", aten.stack.default, [randn(dtype=dtype) for _ in range(148)], 0)
        yield case(
            f"rope halves {dtype}",
            aten.cat.default,
            [randn(4, 32, 1024, 64, dtype=dtype), randn(4, 32, 1024, 64, dtype=dtype)],
            -1,
        )
    host = torch.randn(1 << 20)
    yield case("host to device", aten._to_copy.default, host, device=torch.device("cuda"))
    yield case(
        "pinned to device", aten._to_copy.default, host.pin_memory(), device=torch.device("cuda"), non_blocking=True
    )
    yield case("device to host", aten._to_copy.default, randn(1 << 20), device=torch.device("cpu"))
    yield case("item", aten._local_scalar_dense.default, randn())
    yield case("copy_ transposed into", aten.copy_.default, randn(2048, 4096).t(), randn(4096, 2048))
    yield case("copy_ cast strided", aten.copy_.default, randn(4096, 2048, dtype=BF16), randn(2048, 4096).t())
    yield case("repeat", aten.repeat.default, randn(1024, 512), [2, 3])
    yield case("flip", aten.flip.default, randn(1024, 512), [0])
    yield case("roll", aten.roll.default, randn(1024, 512), [3], [1])
    yield case("constant_pad", aten.constant_pad_nd.default, randn(64, 100, 100), [1, 1, 2, 2], 0.0)


def fills() -> Iterator[Case]:
    for n in (1, 768, 50304 * 768):
        yield case(f"zeros {n}", aten.zeros.default, [n], device="cuda")
        yield case(f"zero_ {n}", aten.zero_.default, randn(n))
        yield case(f"fill_ {n}", aten.fill_.Scalar, randn(n), 1.5)
        yield case(f"full {n}", aten.full.default, [n], 2.0, device="cuda")
        yield case(f"zeros_like bf16 {n}", aten.zeros_like.default, randn(n, dtype=BF16))
        yield case(f"ones_like bf16 {n}", aten.ones_like.default, randn(n, dtype=BF16))
    yield case("zero_ strided", aten.zero_.default, randn(1024, 1024)[:, :512])
    yield case("new_zeros", aten.new_zeros.default, randn(3), [1024, 1024])
    for n in (1, 1024, 100_000):
        yield case(f"arange {n}", aten.arange.default, n, device="cuda")
    yield case("arange float", aten.arange.start_step, 0.0, 128.0, 2.0, device="cuda")
    yield case("linspace", aten.linspace.default, 0, 1, 1000, device="cuda")
    yield case("eye", aten.eye.default, 512, device="cuda")


def randoms() -> Iterator[Case]:
    for dtype in (F32, BF16):
        for n in (1000, 32768 * 768):
            yield case(f"native_dropout {dtype} {n}", aten.native_dropout.default, randn(n, dtype=dtype), 0.1, True)
    mask = torch.rand(32768, 768, device="cuda") > 0.1
    yield case(
        "native_dropout_backward", aten.native_dropout_backward.default, randn(32768, 768, dtype=BF16), mask, 1.11
    )
    for n in (1, 100_000, 50304 * 768):
        yield case(f"rand {n}", aten.rand.default, [n], device="cuda")
        yield case(f"randn {n}", aten.randn.default, [n], device="cuda")
        yield case(f"normal_ {n}", aten.normal_.default, randn(n), 0.0, 0.02)
        yield case(f"uniform_ {n}", aten.uniform_.default, randn(n), -1.0, 1.0)
        yield case(f"bernoulli_ {n}", aten.bernoulli_.float, randn(n), 0.5)
    yield case("randint", aten.randint.low, 0, 50257, [32, 1024], device="cuda")
    yield case("randperm", aten.randperm.default, 100_000, device="cuda")
    yield case("multinomial", aten.multinomial.default, torch.rand(8, 50257, device="cuda"), 1)
    yield case("exponential_", aten.exponential_.default, randn(8, 50257))


def reductions() -> Iterator[Case]:
    shapes = [
        (32768, 768),
        (32768, 3072),
        (768, 32768),
        (1, 50304),
        (50304, 1),
        (7, 13),
        (1024, 1024),
        (131072, 64),
        (1_000_003,),
    ]
    for dtype in (F32, BF16):
        for shape in shapes:
            x = randn(*shape, dtype=dtype)
            yield case(f"sum all {dtype} {shape}", aten.sum.default, x)
            for dim in range(len(shape)):
                yield case(f"sum {dim} {dtype} {shape}", aten.sum.dim_IntList, x, [dim])
                yield case(f"sum {dim} keepdim {dtype} {shape}", aten.sum.dim_IntList, x, [dim], True)
            yield case(f"mean last {dtype} {shape}", aten.mean.dim, x, [-1])
            yield case(f"amax last {dtype} {shape}", aten.amax.default, x, [-1])
    x = randn(32, 1024, 768)
    yield case("sum 0 f32 3d", aten.sum.dim_IntList, x, [0], True)
    yield case("sum 01 f32 3d", aten.sum.dim_IntList, x, [0, 1])
    yield case("sum 02 f32 3d", aten.sum.dim_IntList, x, [0, 2])
    yield case("sum 01 bf16 3d", aten.sum.dim_IntList, x.to(BF16), [0, 1])
    yield case("sum strided", aten.sum.dim_IntList, randn(1024, 4096).t(), [0])
    yield case("sum bf16 to f32", aten.sum.dim_IntList, x.to(BF16), [-1], dtype=F32)
    yield case("mean all", aten.mean.default, x)
    yield case("max all", aten.max.default, x)
    yield case("max dim", aten.max.dim, x, -1)
    yield case("argmax dim", aten.argmax.default, x, -1)
    yield case("min dim", aten.min.dim, x, 0)
    yield case("any bool", aten.any.default, x > 3)
    yield case("all bool", aten.all.default, x > -10)
    yield case("var", aten.var.correction, x, [-1])
    yield case("var_mean", aten.var_mean.correction, x, [-1])
    yield case("std all", aten.std.correction, x)
    yield case("norm 2", aten.linalg_vector_norm.default, x, 2)
    yield case("norm 2 148", aten.linalg_vector_norm.default, randn(148), 2)
    yield case("norm 2 dim", aten.linalg_vector_norm.default, x, 2, [-1])
    yield case("norm 2 bf16", aten.linalg_vector_norm.default, x.to(BF16), 2)
    yield case("norm inf", aten.linalg_vector_norm.default, x, float("inf"))
    yield case("prod", aten.prod.dim_int, x, -1)
    yield case("logsumexp", aten.logsumexp.default, x, [-1])
    yield case("sum bool", aten.sum.default, x > 0)
    yield case("count_nonzero", aten.count_nonzero.default, x > 0)
    yield case("sum int64", aten.sum.default, torch.arange(100_000, device="cuda"))
    yield case("isinf any chain", lambda t: aten.any.default(aten.isinf.default(t)), x)


def norms() -> Iterator[Case]:
    for dtype in (F32, BF16):
        for rows, width in (
            (32768, 768),
            (16384, 4096),
            (4096, 8192),
            (128, 768),
            (1000, 1023),
            (8, 50304),
            (64, 64),
            (32768, 128),
        ):
            x, g = randn(rows, width, dtype=dtype), randn(rows, width, dtype=dtype)
            w, b = randn(width, dtype=dtype), randn(width, dtype=dtype)
            _, mean, rstd = aten.native_layer_norm(x, [width], w, b, 1e-5)
            yield case(f"layer_norm {dtype} {rows}x{width}", aten.native_layer_norm.default, x, [width], w, b, 1e-5)
            yield case(
                f"layer_norm_backward {dtype} {rows}x{width}",
                aten.native_layer_norm_backward.default,
                g,
                x,
                [width],
                mean,
                rstd,
                w,
                b,
                [True, True, True],
            )
            yield case(
                f"layer_norm_backward input {dtype} {rows}x{width}",
                aten.native_layer_norm_backward.default,
                g,
                x,
                [width],
                mean,
                rstd,
                w,
                b,
                [True, False, False],
            )
            if hasattr(aten, "_fused_rms_norm"):
                yield case(f"rms_norm {dtype} {rows}x{width}", aten._fused_rms_norm.default, x, [width], w, 1e-6)
                _, rms = aten._fused_rms_norm(x, [width], w, 1e-6)
                yield case(
                    f"rms_norm_backward {dtype} {rows}x{width}",
                    aten._fused_rms_norm_backward.default,
                    g,
                    x,
                    [width],
                    rms,
                    w,
                    [True, True],
                )
    x, w = randn(32, 64, 56, 56), randn(64)
    yield case("group_norm", aten.native_group_norm.default, x, w, w, 32, 64, 56 * 56, 32, 1e-5)
    mean, var = randn(64), torch.rand(64, device="cuda")
    yield case("batch_norm", aten.native_batch_norm.default, x, w, w, mean, var, True, 0.1, 1e-5)
    yield case("cudnn_batch_norm", aten.cudnn_batch_norm.default, x, w, w, mean, var, True, 0.1, 1e-5)


def softmaxes() -> Iterator[Case]:
    for dtype in (F32, BF16):
        for rows, width in (
            (32768, 50304),
            (8192, 50257),
            (98304, 1024),
            (98304, 512),
            (4096, 1000),
            (4096, 2048),
            (4096, 2049),
            (4096, 32768),
            (100, 128256),
            (1, 10),
            (1000, 33),
        ):
            x = randn(rows // 2 if rows * width > 1 << 30 and dtype == BF16 else rows, width, dtype=dtype)
            for name in ("_softmax", "_log_softmax"):
                yield case(f"{name} {dtype} {rows}x{width}", getattr(aten, name).default, x, -1, False)
                y = getattr(aten, name)(x, -1, False)
                yield case(
                    f"{name}_backward {dtype} {rows}x{width}",
                    getattr(aten, name + "_backward_data").default,
                    x,
                    y,
                    -1,
                    dtype,
                )
                del y
    x = randn(64, 1000, 50)
    yield case("softmax spatial", aten._softmax.default, x, 1, False)
    yield case("log_softmax bf16 to f32", aten._softmax.default, randn(4096, 1024, dtype=F16), -1, True)


def losses() -> Iterator[Case]:
    for rows, width in ((32768, 50304), (8192, 50257), (128, 10), (1, 10)):
        logp = randn(rows, width)
        target = torch.randint(0, width, (rows,), device="cuda")
        for reduction in (0, 1, 2):
            loss, weight = aten.nll_loss_forward(logp, target, None, reduction, -100)
            yield case(
                f"nll {rows}x{width} {reduction}", aten.nll_loss_forward.default, logp, target, None, reduction, -100
            )
            yield case(
                f"nll_backward {rows}x{width} {reduction}",
                aten.nll_loss_backward.default,
                torch.ones_like(loss),
                logp,
                target,
                None,
                reduction,
                -100,
                weight,
            )
    x, y = randn(4096, 1000), randn(4096, 1000)
    yield case("mse", aten.mse_loss.default, x, y)
    yield case("mse_backward", aten.mse_loss_backward.default, randn(), x, y, 1)
    yield case("smooth_l1", aten.smooth_l1_loss.default, x, y)
    yield case("huber", aten.huber_loss.default, x, y)
    yield case("bce_with_logits", aten.binary_cross_entropy_with_logits.default, x, torch.rand_like(y))


def embeddings() -> Iterator[Case]:
    for vocab, width, n, dtype in (
        (50304, 768, 32768, F32),
        (1024, 768, 1024, F32),
        (50304, 768, 2000, F32),
        (50304, 768, 3073, F32),
        (128256, 4096, 16384, BF16),
        (1000, 33, 5000, F32),
    ):
        w = randn(vocab, width, dtype=dtype)
        index = torch.randint(0, vocab, (n,), device="cuda")
        g = randn(n, width, dtype=dtype)
        yield case(f"embedding {vocab}x{width} {n} {dtype}", aten.embedding.default, w, index)
        yield case(
            f"embedding_backward {vocab}x{width} {n} {dtype}",
            aten.embedding_dense_backward.default,
            g,
            index,
            vocab,
            -1,
            False,
        )
        yield case(f"index_select {vocab}x{width} {n} {dtype}", aten.index_select.default, w, 0, index)
    x = randn(4096, 1000)
    index = torch.randint(0, 1000, (4096, 1), device="cuda")
    rows = torch.randint(0, 4096, (512,), device="cuda")
    yield case("gather", aten.gather.default, x, 1, index)
    yield case("index rows", aten.index.Tensor, x, [rows])
    yield case("index pairs", aten.index.Tensor, x, [rows, rows[:512] % 1000])
    yield case("index_put accumulate", aten.index_put_.default, x.clone(), [rows], randn(512, 1000), True)
    yield case("index_put", aten.index_put_.default, x.clone(), [rows], randn(512, 1000), False)
    yield case("index_add", aten.index_add_.default, x.clone(), 0, rows, randn(512, 1000))
    yield case("scatter", aten.scatter.src, torch.zeros_like(x), 1, index, randn(4096, 1))
    yield case("scatter_add", aten.scatter_add_.default, torch.zeros_like(x), 1, index, randn(4096, 1))
    yield case("one_hot like scatter value", aten.scatter.value, torch.zeros_like(x), 1, index, 1.0)
    yield case("nonzero", aten.nonzero.default, x[:, 0] > 0)
    yield case("masked_select", aten.masked_select.default, x, x > 0)


def matmuls() -> Iterator[Case]:
    shapes = [
        (32768, 2304, 768),
        (32768, 768, 768),
        (32768, 3072, 768),
        (32768, 768, 3072),
        (32768, 50304, 768),
        (768, 2304, 32768),
        (768, 768, 32768),
        (3072, 768, 32768),
        (768, 3072, 32768),
        (50304, 768, 32768),
        (8192, 8192, 8192),
        (4096, 4096, 4096),
        (2048, 2048, 2048),
        (1024, 1024, 1024),
        (512, 512, 512),
        (128, 128, 128),
        (16384, 14336, 4096),
        (16384, 4096, 14336),
        (4096, 128256, 4096),
        (1, 4096, 4096),
        (16, 4096, 4096),
        (64, 4096, 4096),
        (256, 4096, 1024),
        (1000, 1000, 1000),
        (32768, 10, 784),
        (784, 128, 60000),
        (128, 784, 64),
        (8192, 1024, 64),
        (16384, 6144, 4096),
        (4096, 16384, 512),
        (384, 50257, 768),
    ]
    for m, n, k in shapes:
        for dtype in (BF16, F32) if m * n * k < 1e12 else (BF16,):
            a, b, at, bt = (
                randn(m, k, dtype=dtype),
                randn(k, n, dtype=dtype),
                randn(k, m, dtype=dtype),
                randn(n, k, dtype=dtype),
            )
            yield case(f"mm NN {dtype} {m}x{n}x{k}", aten.mm.default, a, b)
            yield case(f"mm NT {dtype} {m}x{n}x{k}", aten.mm.default, a, bt.t())
            yield case(f"mm TN {dtype} {m}x{n}x{k}", aten.mm.default, at.t(), b)
            if dtype == BF16:
                yield case(f"addmm NT {dtype} {m}x{n}x{k}", aten.addmm.default, randn(n, dtype=dtype), a, bt.t())
    yield case("mm f16 4096", aten.mm.default, randn(4096, 4096, dtype=F16), randn(4096, 4096, dtype=F16))
    yield case("mm f64 1024", aten.mm.default, randn(1024, 1024, dtype=F64), randn(1024, 1024, dtype=F64))
    for dtype in (BF16, F32):
        yield case(
            f"bmm scores {dtype}",
            aten.bmm.default,
            randn(384, 1024, 64, dtype=dtype),
            randn(384, 1024, 64, dtype=dtype).transpose(1, 2),
        )
        yield case(
            f"bmm values {dtype}",
            aten.bmm.default,
            randn(384, 1024, 1024, dtype=dtype),
            randn(384, 1024, 64, dtype=dtype),
        )
        yield case(
            f"bmm experts {dtype}",
            aten.bmm.default,
            randn(8, 1024, 1024, dtype=dtype),
            randn(8, 1024, 4096, dtype=dtype),
        )
        yield case(f"mv {dtype}", aten.mv.default, randn(4096, 4096, dtype=dtype), randn(4096, dtype=dtype))
        yield case(f"dot {dtype}", aten.dot.default, randn(100_000, dtype=dtype), randn(100_000, dtype=dtype))
    yield case(
        "addmm gelu",
        aten._addmm_activation.default,
        randn(3072, dtype=BF16),
        randn(32768, 768, dtype=BF16),
        randn(3072, 768, dtype=BF16).t(),
        use_gelu=True,
    )


def attentions() -> Iterator[Case]:
    def through(
        function: Callable[..., object], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **kwargs: object
    ) -> Callable[[], object]:
        return lambda: function(q, k, v, **kwargs)

    for batch, heads, length, width in (
        (32, 12, 1024, 64),
        (4, 32, 4096, 128),
        (8, 16, 512, 64),
        (1, 16, 333, 64),
        (2, 8, 2048, 256),
    ):
        for causal in (True, False):
            q, k, v, g = (randn(batch, heads, length, width, dtype=BF16) for _ in range(4))
            name = f"{batch}x{heads}x{length}x{width} {'causal' if causal else 'full'}"
            yield Case(
                f"flash {name}", through(aten._scaled_dot_product_flash_attention.default, q, k, v, is_causal=causal)
            )
            out = aten._scaled_dot_product_flash_attention(q, k, v, is_causal=causal)
            yield case(
                f"flash_backward {name}",
                aten._scaled_dot_product_flash_attention_backward.default,
                g,
                q,
                k,
                v,
                out[0],
                out[1],
                out[2],
                out[3],
                out[4],
                out[5],
                0.0,
                causal,
                out[6],
                out[7],
            )
            yield Case(
                f"efficient {name}",
                through(
                    aten._scaled_dot_product_efficient_attention.default,
                    q,
                    k,
                    v,
                    attn_bias=None,
                    compute_log_sumexp=True,
                    is_causal=causal,
                ),
            )
            eff = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
            yield case(
                f"efficient_backward {name}",
                aten._scaled_dot_product_efficient_attention_backward.default,
                g,
                q,
                k,
                v,
                None,
                eff[0],
                eff[1],
                eff[2],
                eff[3],
                0.0,
                [True, True, True, False],
                causal,
            )
            if width <= 128:
                yield Case(
                    f"cudnn {name}",
                    through(
                        aten._scaled_dot_product_cudnn_attention.default,
                        q,
                        k,
                        v,
                        attn_bias=None,
                        compute_log_sumexp=True,
                        is_causal=causal,
                    ),
                )
                cud = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)
                yield case(
                    f"cudnn_backward {name}",
                    aten._scaled_dot_product_cudnn_attention_backward.default,
                    g,
                    q,
                    k,
                    v,
                    cud[0],
                    cud[1],
                    cud[6],
                    cud[7],
                    None,
                    cud[2],
                    cud[3],
                    cud[4],
                    cud[5],
                    0.0,
                    causal,
                )


def optimizers() -> Iterator[Case]:
    sizes = [
        50304 * 768,
        1024 * 768,
        *([768 * 2304, 2304, 768 * 768, 768, 768 * 3072, 3072, 768 * 3072, 768, 768, 768, 768, 768] * 12),
    ]
    params, grads, first, second = ([randn(n) for n in sizes] for _ in range(4))
    second = [t.abs() for t in second]
    steps = [torch.ones((), device="cuda") for _ in sizes]
    common = {
        "lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.95,
        "weight_decay": 0.1,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }
    yield case("fused_adamw", aten._fused_adamw_.default, params, grads, first, second, [], steps, **common)
    yield case(
        "fused_adam", aten._fused_adam_.default, params[2:], grads[2:], first[2:], second[2:], [], steps[2:], **common
    )
    yield case(
        "fused_sgd",
        aten._fused_sgd_.default,
        params,
        grads,
        first,
        weight_decay=0.0,
        momentum=0.9,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )
    yield case("foreach_norm", aten._foreach_norm.Scalar, grads, 2)
    yield case("foreach_mul_ tensor", aten._foreach_mul_.Tensor, grads, randn().abs())
    yield case("foreach_mul_ scalar", aten._foreach_mul_.Scalar, grads, 0.9)
    yield case("foreach_add_ steps", aten._foreach_add_.Scalar, steps, 1)
    yield case("foreach_lerp_", aten._foreach_lerp_.Scalar, first, grads, 0.1)
    yield case("foreach_addcmul_", aten._foreach_addcmul_.Scalar, second, grads, grads, 0.1)
    yield case("foreach_addcdiv_", aten._foreach_addcdiv_.ScalarList, params, first, second, [-0.001] * len(params))
    yield case("foreach_sqrt", aten._foreach_sqrt.default, second)
    yield case("foreach_div_", aten._foreach_div_.ScalarList, second, [1.01] * len(second))
    yield case("foreach_add_ scalar", aten._foreach_add_.Scalar, second, 1e-8)
    yield case("foreach_add_ list", aten._foreach_add_.List, params, grads, alpha=-0.1)
    yield case("foreach_zero_", aten._foreach_zero_.default, grads)
    yield case("foreach_copy_ bf16", aten._foreach_copy_.default, [p.to(BF16) for p in params], params)
    yield case("foreach_norm bf16", aten._foreach_norm.Scalar, [p.to(BF16) for p in params], 2)
    yield case(
        "amp unscale",
        aten._amp_foreach_non_finite_check_and_unscale_.default,
        grads,
        torch.zeros(1, device="cuda"),
        torch.ones(1, device="cuda"),
    )
    yield case(
        "amp update",
        aten._amp_update_scale_.default,
        torch.ones(1, device="cuda"),
        torch.ones(1, device="cuda", dtype=torch.int32),
        torch.zeros(1, device="cuda"),
        2.0,
        0.5,
        2000,
    )


def sorts() -> Iterator[Case]:
    for shape in ((32, 1024), (8, 50257), (1_000_000,), (4096, 8)):
        x = randn(*shape)
        yield case(f"sort {shape}", aten.sort.default, x, -1)
        yield case(f"topk {shape}", aten.topk.default, x, min(8, shape[-1]), -1)
        yield case(f"cumsum {shape}", aten.cumsum.default, x, -1)
    yield case("cumsum dim 0", aten.cumsum.default, randn(1024, 512), 0)


def convolutions() -> Iterator[Case]:
    for dtype in (F32, BF16):
        for name, n, c, h, out, k, stride, pad in (
            ("stem", 64, 3, 224, 64, 7, 2, 3),
            ("3x3", 64, 64, 56, 64, 3, 1, 1),
            ("1x1", 64, 256, 56, 64, 1, 1, 0),
        ):
            for layout in (torch.contiguous_format, torch.channels_last):
                x = randn(n, c, h, h, dtype=dtype).to(memory_format=layout)
                w = randn(out, c, k, k, dtype=dtype).to(memory_format=layout)
                args = (None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1)
                y = aten.convolution(x, w, *args)
                label = f"{name} {dtype} {'nhwc' if layout == torch.channels_last else 'nchw'}"
                yield case(f"conv {label}", aten.convolution.default, x, w, *args)
                yield case(
                    f"conv_backward {label}",
                    aten.convolution_backward.default,
                    y,
                    x,
                    w,
                    [0],
                    *args[1:],
                    [True, True, False],
                )
    x = randn(64, 64, 112, 112, dtype=BF16)
    yield case("max_pool2d", aten.max_pool2d_with_indices.default, x, [3, 3], [2, 2], [1, 1])
    y, index = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    yield case(
        "max_pool2d_backward",
        aten.max_pool2d_with_indices_backward.default,
        y,
        x,
        [3, 3],
        [2, 2],
        [1, 1],
        [1, 1],
        False,
        index,
    )
    yield case("avg_pool2d", aten.avg_pool2d.default, x, [2, 2], [2, 2])
    yield case("adaptive_avg_pool2d", aten._adaptive_avg_pool2d.default, x, [7, 7])
    yield case("upsample_nearest2d", aten.upsample_nearest2d.default, x, [224, 224])


FAMILIES: tuple[Callable[[], Iterator[Case]], ...] = (
    elementwise,
    functors,
    layouts,
    masks_and_scalars,
    copies,
    fills,
    randoms,
    reductions,
    norms,
    softmaxes,
    losses,
    embeddings,
    matmuls,
    attentions,
    optimizers,
    sorts,
    convolutions,
)
