"""The rarer branches of PyTorch's own kernels, as cases for `golden_ops.py`: dtypes, strides, alignment, huge sizes.

python benchmarks/golden_edge_cases.py OUT.json.gz          (needs CUDA; a minute on an H200)
"""

import sys
from collections.abc import Iterator

import torch

import golden_ops
from golden_op_cases import BF16, F16, F32, F64, I64, Case, aten, case, randn

I32, U8, I8, BOOL = torch.int32, torch.uint8, torch.int8, torch.bool
C64, C128 = torch.complex64, torch.complex128
FP8 = torch.float8_e4m3fn
N = 100_003
PAST_32_BITS = 2_200_000_001


def ints(*shape: int, dtype: torch.dtype = I64) -> torch.Tensor:
    return torch.randint(1, 100, shape, device="cuda").to(dtype)


def like(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return randn(*shape, dtype=dtype) if dtype.is_floating_point else ints(*shape, dtype=dtype)


def unary_edges() -> Iterator[Case]:
    for dtype in (I64, I32, U8, F16):
        for name in ("abs", "neg", "sign", "ceil"):
            yield case(f"{name} {dtype}", getattr(aten, name).default, like(dtype, N))
    for name in ("round", "floor", "trunc", "frac", "sgn", "nan_to_num"):
        yield case(f"{name} bf16", getattr(aten, name).default, randn(N, dtype=BF16))
    for name in ("sigmoid", "exp", "sqrt", "tanh", "log1p", "expm1", "atan", "cosh", "erf", "rsqrt", "reciprocal"):
        yield case(f"{name} i64", getattr(aten, name).default, ints(N))
        yield case(f"{name} f16", getattr(aten, name).default, randn(N, dtype=F16))
    for name in ("logical_not", "signbit", "isposinf", "isneginf", "isnan", "isinf"):
        for dtype in (F32, BF16, I64):
            yield case(f"{name} {dtype}", getattr(aten, name).default, like(dtype, N))
    yield case("bitwise_not i64", aten.bitwise_not.default, ints(N))
    yield case("logit", aten.logit.default, torch.rand(N, device="cuda"))
    yield case("neg_ transposed", aten.neg_.default, randn(300, 400).t())
    yield case("neg sliced out", aten.neg.out, randn(300, 400), out=randn(300, 800)[:, :400])
    yield case("abs c64", aten.neg.default, torch.randn(N, device="cuda", dtype=C64))
    yield case("neg empty", aten.neg.default, randn(0, 5))
    yield case("neg channels last", aten.neg.default, randn(4, 3, 20, 20).to(memory_format=torch.channels_last))
    yield case("neg past 32 bits", aten.neg.default, torch.zeros(PAST_32_BITS, device="cuda", dtype=BF16))
    yield case("neg 2d past 32 bits", aten.neg.default, torch.zeros(40000, 60000, device="cuda", dtype=BF16)[:, 1:])


def jitted() -> Iterator[Case]:
    names = ["digamma", "lgamma", "erfc", "erfinv", "exp2", "i0", "sinc", "special_entr", "special_erfcx"]
    names += ["special_i0e", "special_i1", "special_i1e", "special_log_ndtr", "special_ndtri"]
    for name in names:
        yield case(f"{name} f32", getattr(aten, name).default, torch.rand(N, device="cuda"))
    for name in ("erfinv", "exp2", "lgamma", "sinc"):
        function = getattr(aten, name).default
        yield case(f"{name} bf16", function, torch.rand(N, device="cuda").bfloat16())
        yield case(f"{name} f64", function, torch.rand(N, device="cuda", dtype=F64))
        yield case(f"{name} offset", function, torch.rand(N, device="cuda")[1:])
        yield case(f"{name} transposed", function, torch.rand(300, 800, device="cuda")[:, :400])
        yield case(f"{name} i64", function, ints(N))
    for dtype in (I32, I64, U8):
        yield case(f"gcd {dtype}", aten.gcd.default, ints(N, dtype=dtype), ints(N, dtype=dtype))
    yield case("lcm i64", aten.lcm.default, ints(N), ints(N))
    yield case("cos c64", aten.cos.default, torch.randn(N, device="cuda", dtype=C64))
    yield case(
        "mul c64", aten.mul.Tensor, torch.randn(N, device="cuda", dtype=C64), torch.randn(N, device="cuda", dtype=C64)
    )


def binary_edges() -> Iterator[Case]:
    pairs = ((I64, I32), (I64, F32), (U8, I8), (BOOL, BOOL), (F16, BF16), (F32, F64), (I32, BF16), (BOOL, F32))
    for a, b in pairs:
        yield case(f"add {a} {b}", aten.add.Tensor, like(a, N), like(b, N))
    for name in ("eq", "ne", "ge", "gt", "le", "lt"):
        for dtype in (F32, I64, F64, U8):
            yield case(f"{name} {dtype}", getattr(aten, name).Tensor, like(dtype, N), like(dtype, N))
        yield case(f"{name} scalar", getattr(aten, name).Scalar, randn(N, dtype=BF16), 0.5)
    yield case("eq_", aten.eq_.Tensor, randn(N), randn(N))
    yield case("eq i64 f32", aten.eq.Tensor, ints(N), randn(N))
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield case(f"{name} f32", getattr(aten, name).default, randn(N), randn(N))
        yield case(f"{name} bool", getattr(aten, name).default, randn(N) > 0, randn(N) > 0)
    for name in ("bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"):
        yield case(f"{name} i32", getattr(aten, name).Tensor, ints(N, dtype=I32), ints(N, dtype=I32))
    yield case("bitwise_and scalar", aten.bitwise_and.Scalar, ints(N), 7)
    for name in ("remainder", "fmod"):
        yield case(f"{name} f32", getattr(aten, name).Tensor, randn(N), randn(N))
        yield case(f"{name} i64 scalar", getattr(aten, name).Scalar, ints(N), 7)
    yield case("floor_divide i64", aten.floor_divide.default, ints(N), ints(N))
    for mode in ("trunc", "floor"):
        yield case(f"div {mode} f32", aten.div.Tensor_mode, randn(N), randn(N), rounding_mode=mode)
        yield case(f"div {mode} scalar", aten.div.Tensor_mode, randn(N), 3.0, rounding_mode=mode)
    yield case("div i64", aten.div.Tensor, ints(N), ints(N))
    yield case("div scalar", aten.div.Tensor, randn(N, dtype=BF16), 3.0)
    yield case("div i64 scalar", aten.div.Tensor, ints(N), 3)
    for name in ("atan2", "hypot", "fmax", "fmin", "logaddexp", "logaddexp2", "nextafter", "heaviside"):
        yield case(f"{name} f32", getattr(aten, name).default, randn(N), randn(N))
    yield case("copysign", aten.copysign.Tensor, randn(N), randn(N))
    yield case("xlogy", aten.xlogy.Tensor, randn(N), randn(N))
    yield case("special_xlog1py", aten.special_xlog1py.default, randn(N), randn(N))
    yield case("minimum i64", aten.minimum.default, ints(N), ints(N))
    yield case("mul cpu scalar", aten.mul.Tensor, randn(N), torch.tensor(2.0))
    yield case("mul cpu scalar first", aten.mul.Tensor, torch.tensor(2.0), randn(N))
    yield case("mul bf16 0d f32", aten.mul.Tensor, randn(N, dtype=BF16), randn())
    yield case("add i64 0d f32", aten.add.Tensor, ints(N), randn())
    yield case("add i64 number", aten.add.Tensor, ints(N), 1.5)
    yield case("rsub", aten.rsub.Scalar, randn(N), 1.0)
    yield case("sub alpha", aten.sub.Tensor, randn(N), randn(N), alpha=2)
    yield case("add out cast", aten.add.out, randn(N), randn(N), out=randn(N, dtype=BF16))
    yield case("mul outer", aten.mul.Tensor, randn(300, 1), randn(1, 500))
    yield case("mul 5d", aten.mul.Tensor, randn(3, 4, 5, 6, 7).permute(4, 2, 0, 3, 1), randn(7, 5, 3, 6, 4))
    yield case(
        "mul nhwc bias", aten.mul.Tensor, randn(4, 8, 20, 20).to(memory_format=torch.channels_last), randn(8, 1, 1)
    )
    yield case(
        "add past 32 bits", aten.add.Tensor, *(torch.zeros(46000, 46800, device="cuda", dtype=BF16) for _ in "ab")
    )


def powers_and_choices() -> Iterator[Case]:
    for exponent in (0, 1, 2, 0.5, -0.5, -1, -2, 1.7):
        yield case(f"pow {exponent}", aten.pow.Tensor_Scalar, randn(N).abs(), exponent)
    yield case("pow i64 2", aten.pow.Tensor_Scalar, ints(N), 2)
    yield case("pow i64 0.5", aten.pow.Tensor_Scalar, ints(N), 0.5)
    yield case("pow tensors", aten.pow.Tensor_Tensor, randn(N).abs(), randn(N))
    yield case("pow base", aten.pow.Scalar, 2.0, randn(N))
    yield case("pow base 1", aten.pow.Scalar, 1, randn(N))
    yield case("clamp i64", aten.clamp.default, ints(N), 5, 50)
    yield case("clamp i64 float", aten.clamp.default, ints(N), 0.5, 1.5)
    yield case("clamp tensors", aten.clamp.Tensor, randn(N), randn(N), randn(N))
    yield case("clamp min tensor", aten.clamp.Tensor, randn(N), randn(N))
    yield case("clamp_min bf16", aten.clamp_min.default, randn(N, dtype=BF16), 0)
    yield case("clamp_max f16", aten.clamp_max.default, randn(N, dtype=F16), 0.5)
    mask = randn(300, 400) > 0
    yield case("where mixed", aten.where.self, mask, randn(300, 400), randn(300, 400, dtype=BF16))
    yield case("where cpu scalar", aten.where.self, mask, randn(300, 400), torch.tensor(0.0))
    yield case("where broadcast", aten.where.self, mask, randn(300, 1), randn(400))
    yield case("where 0d", aten.where.self, mask, randn(300, 400), randn())
    yield case("where bf16", aten.where.self, mask, randn(300, 400, dtype=BF16), randn(300, 400, dtype=BF16))
    yield case("where uint8", aten.where.self, mask.to(U8), randn(300, 400), randn(300, 400))
    yield case("masked_fill tensor", aten.masked_fill.Tensor, randn(300, 400), mask, randn())
    yield case("masked_fill cpu tensor", aten.masked_fill.Tensor, randn(300, 400), mask, torch.tensor(1.0))
    yield case("masked_fill strided", aten.masked_fill.Scalar, randn(400, 300).t(), mask, 0.0)
    yield case("masked_fill_ same shape", aten.masked_fill_.Scalar, randn(300, 400, dtype=BF16), mask, 0.0)
    yield case("lerp tensor", aten.lerp.Tensor, randn(N), randn(N), randn(N))
    yield case("lerp bf16", aten.lerp.Scalar, randn(N, dtype=BF16), randn(N, dtype=BF16), 0.3)
    yield case("addcmul i64", aten.addcmul.default, ints(N), ints(N), ints(N), value=2)
    yield case("addcmul broadcast", aten.addcmul.default, randn(300, 400), randn(400), randn(300, 1))
    yield case("addcdiv bf16", aten.addcdiv.default, *(randn(N, dtype=BF16) for _ in "abc"))
    for dtype in (F32, BF16, I64, BOOL, F64):
        yield case(f"tril odd {dtype}", aten.tril.default, like(dtype, 1000, 333))
    yield case("triu_", aten.triu_.default, randn(7, 130, 131))
    yield case("triu strided", aten.triu.default, randn(130, 131).t())


def activation_edges() -> Iterator[Case]:
    x, y = randn(N, dtype=BF16), randn(N, dtype=BF16)
    for name in ("elu", "celu", "selu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "mish", "relu6"):
        yield case(f"{name}", getattr(aten, name).default, x)
    yield case("softshrink", aten.softshrink.default, x)
    yield case("threshold", aten.threshold.default, x, 0.0, 0.0)
    yield case("gelu tanh", aten.gelu.default, x, approximate="tanh")
    yield case("elu_backward", aten.elu_backward.default, x, 1.0, 1.0, 1.0, False, y)
    yield case("hardtanh_backward", aten.hardtanh_backward.default, x, y, -1.0, 1.0)
    for name in ("hardsigmoid", "hardswish", "mish", "gelu"):
        yield case(f"{name}_backward", getattr(aten, f"{name}_backward").default, x, y)
    yield case("leaky_relu_backward", aten.leaky_relu_backward.default, x, y, 0.1, False)
    yield case(
        "log_sigmoid_backward", aten.log_sigmoid_backward.default, x, y, torch.empty(0, device="cuda", dtype=BF16)
    )
    yield case("softplus_backward", aten.softplus_backward.default, x, y, 1.0, 20.0)
    yield case("softshrink_backward", aten.softshrink_backward.default, x, y, 0.5)
    yield case("hardshrink_backward", aten.hardshrink_backward.default, x, y, 0.5)
    yield case("logit_backward", aten.logit_backward.default, randn(N), torch.rand(N, device="cuda"))
    yield case("threshold_backward f32", aten.threshold_backward.default, randn(N), randn(N), 0)
    for dtype in (F32, BF16):
        yield case(
            f"glu_backward {dtype}",
            aten.glu_backward.default,
            randn(500, 100, dtype=dtype),
            randn(500, 200, dtype=dtype),
            -1,
        )
        yield case(f"glu dim 0 {dtype}", aten.glu.default, randn(500, 200, dtype=dtype), 0)
    yield case("prelu", aten._prelu_kernel.default, randn(8, 16, 30), randn(16, 1))
    yield case("prelu_backward", aten._prelu_kernel_backward.default, randn(8, 16, 30), randn(16, 1), randn(8, 16, 30))


def random_edges() -> Iterator[Case]:
    dropout = aten.native_dropout.default
    for dtype in (F32, BF16, F64):
        for n in (1001, 1002, 1004, 1000):
            yield case(f"dropout {dtype} {n}", dropout, randn(n, dtype=dtype), 0.1, True)
    yield case("dropout transposed", dropout, randn(300, 400).t(), 0.1, True)
    yield case("dropout sliced", dropout, randn(300, 800)[:, :400], 0.1, True)
    yield case("dropout offset", dropout, randn(1001)[1:], 0.1, True)
    yield case("dropout eval", dropout, randn(N), 0.1, False)
    yield case("dropout all", dropout, randn(N), 1.0, True)
    yield case("dropout empty", dropout, randn(0), 0.1, True)
    backward = aten.native_dropout_backward.default
    yield case("dropout backward f32", backward, randn(N), randn(N) > 0, 1.1)
    yield case("dropout backward strided", backward, randn(300, 400).t(), randn(400, 300) > 0, 1.1)
    yield case("bernoulli", aten.bernoulli.default, torch.rand(N, device="cuda"))
    yield case("bernoulli p", aten.bernoulli.p, randn(N), 0.3)
    yield case("bernoulli_ tensor", aten.bernoulli_.Tensor, randn(N), torch.rand(N, device="cuda"))
    yield case("rand f64", aten.rand.default, [N], dtype=F64, device="cuda")
    yield case("rand_like bf16", aten.rand_like.default, randn(N, dtype=BF16))
    yield case("randn bf16", aten.randn.default, [N], dtype=BF16, device="cuda")
    yield case("randn_like f16", aten.randn_like.default, randn(N, dtype=F16))
    yield case("normal_ strided", aten.normal_.default, randn(300, 800)[:, :400])
    yield case("random_", aten.random_.default, ints(N))
    yield case("random_ to", aten.random_.to, ints(N, dtype=I32), 100)
    yield case("randint_like", aten.randint_like.default, ints(N), 100)
    for name in ("log_normal_", "cauchy_", "exponential_"):
        yield case(name, getattr(aten, name).default, randn(N))
    yield case("geometric_", aten.geometric_.default, randn(N), 0.5)
    yield case("uniform_ past 32 bits", aten.uniform_.default, torch.zeros(PAST_32_BITS, device="cuda", dtype=BF16))


def fill_edges() -> Iterator[Case]:
    for dtype in (BOOL, U8, I8, I32, I64, F16, F64, C64, C128, FP8):
        yield case(f"zeros {dtype}", aten.zeros.default, [1_000_003], dtype=dtype, device="cuda")
    yield case("fill_ cuda tensor", aten.fill_.Tensor, randn(300, 400), randn())
    yield case("fill_ cpu tensor", aten.fill_.Tensor, randn(300, 400), torch.tensor(1.0))
    yield case("scalar_tensor", aten.scalar_tensor.default, 1.5, device="cuda")
    yield case("new_ones", aten.new_ones.default, randn(3), [1000])
    yield case("full_like bool", aten.full_like.default, randn(N) > 0, True)
    yield case("zero_ transposed", aten.zero_.default, randn(300, 400).t())
    yield case("zero_ offset bool", aten.zero_.default, (randn(N) > 0)[1:])
    yield case("zeros empty", aten.zeros.default, [0, 7], device="cuda")
    yield case("fill_ past 32 bits", aten.fill_.Scalar, torch.empty(PAST_32_BITS, device="cuda", dtype=BF16), 1)
    yield case("fill_diagonal_", aten.fill_diagonal_.default, randn(100, 300), 1.0)
    yield case("arange bf16", aten.arange.start_step, 0, 1000, 2, dtype=BF16, device="cuda")
    yield case("logspace", aten.logspace.default, 0, 3, 1000, device="cuda")
    yield case("linspace i64", aten.linspace.default, 0, 1000, 333, dtype=I64, device="cuda")
    yield case("linspace one", aten.linspace.default, 0, 1000, 1, device="cuda")
    yield case("eye tall", aten.eye.m, 500, 300, dtype=BF16, device="cuda")


def copy_edges() -> Iterator[Case]:
    dtypes = (F32, BF16, F16, F64, I64, I32, U8, BOOL)
    for a in dtypes:
        for b in dtypes:
            if a is not b:
                yield case(f"{a} to {b}", aten._to_copy.default, like(a, N), dtype=b)
    for a in (F32, BF16, F16, F64):
        yield case(f"{a} to fp8", aten._to_copy.default, randn(N, dtype=a), dtype=FP8)
        yield case(f"fp8 to {a}", aten._to_copy.default, randn(N).to(FP8), dtype=a)
    images = randn(4, 3, 20, 20).to(memory_format=torch.channels_last)
    yield case("clone channels last", aten.clone.default, images)
    yield case("clone channels last contiguous", aten.clone.default, images, memory_format=torch.contiguous_format)
    yield case("cast channels last", aten._to_copy.default, images, dtype=BF16)
    yield case("to channels last", aten._to_copy.default, randn(4, 3, 20, 20), memory_format=torch.channels_last)
    yield case("copy_ broadcast", aten.copy_.default, randn(300, 400), randn(400))
    yield case("copy_ column", aten.copy_.default, randn(300, 400), randn(300, 1))
    yield case("copy_ 0d", aten.copy_.default, randn(300, 400), randn())
    yield case("copy_ cast transposed both", aten.copy_.default, randn(300, 400, dtype=BF16).t(), randn(300, 400).t())
    yield case("copy_ into slice", aten.copy_.default, randn(300, 800)[:, 400:], randn(300, 400))
    yield case("copy_ rows slice", aten.copy_.default, randn(600, 400)[300:], randn(300, 400))
    yield case("copy_ offset cast", aten.copy_.default, randn(1001, dtype=BF16)[1:], randn(1000))
    yield case(
        "clone one element", aten.clone.default, randn(300, 400)[5:6, 7:8], memory_format=torch.contiguous_format
    )
    yield case(
        "clone bool strided", aten.clone.default, (randn(300, 400) > 0).t(), memory_format=torch.contiguous_format
    )
    yield case("clone empty", aten.clone.default, randn(0, 4))
    yield case("copy_ host cast", aten.copy_.default, randn(300, 400, dtype=BF16), torch.randn(300, 400))
    yield case(
        "copy_ host cast later",
        aten.copy_.default,
        randn(300, 400, dtype=BF16),
        torch.randn(300, 400).pin_memory(),
        True,
    )
    yield case("copy_ host transposed", aten.copy_.default, randn(300, 400), torch.randn(400, 300).t())
    yield case("copy_ host into strided", aten.copy_.default, randn(400, 300).t(), torch.randn(300, 400))
    yield case("copy_ to host strided", aten.copy_.default, torch.randn(300, 400), randn(400, 300).t())
    yield case("copy_ to host cast", aten.copy_.default, torch.randn(300, 400), randn(300, 400, dtype=BF16))
    yield case(
        "cast past 32 bits", aten._to_copy.default, torch.zeros(PAST_32_BITS, device="cuda", dtype=BF16), dtype=F32
    )
    yield case("repeat 1d", aten.repeat.default, randn(100, dtype=BF16), [3, 2])
    yield case("repeat ones", aten.repeat.default, randn(30, 40), [1, 1])
    yield case("pad cut", aten.constant_pad_nd.default, randn(30, 40), [-1, 2], 0.0)
    yield case("pad only cut", aten.constant_pad_nd.default, randn(30, 40), [-1, -2], 0.0)
    yield case("flip two", aten.flip.default, randn(30, 40, 50), [0, 2])
    yield case("flip bf16 last", aten.flip.default, randn(300, 400, dtype=BF16), [-1])
    yield case("flip one row", aten.flip.default, randn(1, 400), [0])
    yield case("roll flat", aten.roll.default, randn(300, 400), [5])
    yield case("roll two", aten.roll.default, randn(300, 400), [5, 6], [0, 1])
    yield case("roll strided", aten.roll.default, randn(400, 300).t(), [5], [1])
    yield case("slice_backward", aten.slice_backward.default, randn(300, 100), [300, 400], 1, 50, 150, 1)
    yield case("slice_backward step", aten.slice_backward.default, randn(300, 100), [300, 400], 1, 0, 2**63 - 1, 4)
    yield case("select_backward", aten.select_backward.default, randn(400), [300, 400], 0, -1)
    yield case("select_backward last", aten.select_backward.default, randn(300), [300, 400], 1, 3)
    yield case("diagonal_backward", aten.diagonal_backward.default, randn(300), [300, 400], 1, 0, 1)
    yield case("slice_scatter", aten.slice_scatter.default, randn(300, 400), randn(300, 100), 1, 50, 150)
    yield case("select_scatter", aten.select_scatter.default, randn(300, 400), randn(400), 0, 7)


def cat_edges() -> Iterator[Case]:
    cat, stack = aten.cat.default, aten.stack.default
    for dtype in (BOOL, U8, I64, F64, F16):
        yield case(f"cat {dtype}", cat, [like(dtype, 300, 48), like(dtype, 300, 80)], 1)
        yield case(f"cat odd {dtype}", cat, [like(dtype, 301, 47), like(dtype, 301, 81)], 1)
    for dtype in (C64, C128):
        yield case(f"cat {dtype}", cat, [torch.randn(300, 48, device="cuda", dtype=dtype) for _ in "ab"], 1)
        yield case(f"cat odd {dtype}", cat, [torch.randn(301, 47, device="cuda", dtype=dtype) for _ in "ab"], 0)
    yield case("cat unaligned", cat, [randn(1001)[1:], randn(1000)], 0)
    yield case("cat 5d", cat, [randn(2, 3, 4, 5, 6), randn(2, 3, 4, 5, 6)], 2)
    yield case("cat nhwc", cat, [randn(4, 8, 20, 20).to(memory_format=torch.channels_last) for _ in "ab"], 1)
    yield case(
        "cat nhwc one not", cat, [randn(4, 8, 20, 20).to(memory_format=torch.channels_last), randn(4, 8, 20, 20)], 1
    )
    yield case("cat mixed dtypes", cat, [randn(300, 48), randn(300, 48, dtype=BF16)], 1)
    yield case("cat empty among", cat, [randn(0), randn(300, 48), randn(300, 48)], 1)
    yield case("cat one", cat, [randn(300, 48)], 1)
    yield case("cat one strided", cat, [randn(48, 300).t()], 1)
    yield case("cat 70 strided", cat, [randn(5, 7).t() for _ in range(70)], 0)
    yield case("cat 130 dim 1", cat, [randn(20, 3) for _ in range(130)], 1)
    yield case("cat 130 sizes", cat, [randn(20, 4 * (1 + i % 7)) for i in range(130)], 1)
    yield case("cat sizes of 1", cat, [randn(1, 1, 48), randn(1, 1, 48)], 1)
    yield case("cat middle", cat, [randn(30, 5, 40), randn(30, 6, 40)], 1)
    yield case("stack last", stack, [randn(300, 48), randn(300, 48)], -1)
    yield case("stack middle", stack, [randn(300, 48), randn(300, 48)], 1)
    yield case("stack last bf16", stack, [randn(300, 47, dtype=BF16), randn(300, 47, dtype=BF16)], 2)


def reduction_edges() -> Iterator[Case]:
    total = aten.sum.dim_IntList
    for dtype in (F32, BF16):
        for width in (2, 3, 31, 33, 127, 128, 129, 256, 1000, 4095):
            yield case(f"sum last {dtype} {width}", total, randn(4096, width, dtype=dtype), [-1])
            yield case(f"sum first {dtype} {width}", total, randn(4096, width, dtype=dtype), [0])
        yield case(f"sum middle {dtype}", total, randn(64, 128, 33, dtype=dtype), [1])
        yield case(f"sum outer {dtype}", total, randn(64, 128, 36, dtype=dtype), [0, 2])
        yield case(f"sum offset {dtype}", total, randn(4096 * 64 + 1, dtype=dtype)[1:].view(4096, 64), [0])
        yield case(f"sum sliced {dtype}", total, randn(4096, 130, dtype=dtype)[:, :128], [0])
        yield case(f"sum transposed {dtype}", total, randn(768, 4096, dtype=dtype).t(), [0])
        yield case(
            f"sum nhwc {dtype}",
            total,
            randn(8, 64, 28, 28, dtype=dtype).to(memory_format=torch.channels_last),
            [0, 2, 3],
        )
        yield case(f"sum nchw {dtype}", total, randn(8, 64, 28, 28, dtype=dtype), [0, 2, 3])
        yield case(f"sum expanded {dtype}", total, randn(1, 768, dtype=dtype).expand(4096, 768), [0])
        yield case(f"var first {dtype}", aten.var.correction, randn(4096, 768, dtype=dtype), [0])
        for width in (127, 128, 129):
            yield case(f"var last {dtype} {width}", aten.var.correction, randn(4096, width, dtype=dtype), [-1])
        yield case(f"std_mean {dtype}", aten.std_mean.correction, randn(512, 768, dtype=dtype), [1])
        yield case(f"max first {dtype}", aten.max.dim, randn(4096, 768, dtype=dtype), 0)
        yield case(f"max all {dtype}", aten.max.default, randn(512, 768, dtype=dtype))
        yield case(f"argmax first {dtype}", aten.argmax.default, randn(4096, 768, dtype=dtype), 0)
        yield case(f"argmax all {dtype}", aten.argmax.default, randn(512, 768, dtype=dtype))
        for order in (0, 1, 3, "inf", "-inf"):
            yield case(
                f"norm {order} {dtype}",
                aten.linalg_vector_norm.default,
                randn(512, 768, dtype=dtype),
                float(order),
                [-1],
            )
        yield case(f"prod first {dtype}", aten.prod.dim_int, randn(512, 768, dtype=dtype), 0)
        yield case(f"nansum {dtype}", aten.nansum.default, randn(512, 768, dtype=dtype), [-1])
        yield case(f"aminmax {dtype}", aten.aminmax.default, randn(512, 768, dtype=dtype))
        yield case(f"amin first {dtype}", aten.amin.default, randn(512, 768, dtype=dtype), [0])


def reduction_dtypes() -> Iterator[Case]:
    total, mean = aten.sum.dim_IntList, aten.mean.dim
    for dtype in (I32, U8, I64, F16, F64, BOOL, C64):
        x = torch.randn(512, 768, device="cuda", dtype=C64) if dtype is C64 else like(dtype, 512, 768)
        yield case(f"sum all {dtype}", aten.sum.default, x)
        yield case(f"sum first {dtype}", total, x, [0])
    yield case("sum bf16 to f32 first", total, randn(4096, 768, dtype=BF16), [0], dtype=F32)
    yield case("sum i64 to f32", total, ints(512, 768), [0], dtype=F32)
    yield case("sum f32 to f64", total, randn(512, 768), [0], dtype=F64)
    yield case("mean f16 to f32", mean, randn(512, 768, dtype=F16), [1], dtype=F32)
    yield case("mean f64", mean, randn(512, 768, dtype=F64), [1])
    yield case("var f64", aten.var.correction, randn(512, 768, dtype=F64), [1])
    yield case("var all f64", aten.var.correction, randn(5120, 768, dtype=F64))
    yield case("argmax all strided", aten.argmax.default, randn(512, 768).t())
    yield case("argmax size 1", aten.argmax.default, randn(512, 1), 1)
    yield case("argmin f64", aten.argmin.default, randn(512, 768, dtype=F64), 1)
    yield case("max i64", aten.max.dim, ints(512, 768), 1)
    yield case("max 0d", aten.max.dim, randn(), 0)
    yield case("max other", aten.max.other, randn(N), randn(N))
    yield case("any f32 dim", aten.any.dim, randn(512, 768), 0)
    yield case("any dims", aten.any.dims, randn(512, 768) > 0, [0, 1])
    yield case("all i64", aten.all.default, ints(512, 768))
    yield case("any one", aten.any.default, randn(1) > 0)
    yield case("any one f32", aten.any.default, randn(1, 1))
    yield case("norm dtype", aten.linalg_vector_norm.default, randn(512, 768, dtype=BF16), 2, [0], False, dtype=F32)
    yield case("norm size 1", aten.linalg_vector_norm.default, randn(512, 1), 2, [1])
    yield case("norm size 1 order 0", aten.linalg_vector_norm.default, randn(512, 1), 0, [1])
    yield case("norm p dim", aten.norm.ScalarOpt_dim, randn(512, 768), 2, [1])
    yield case("norm p", aten.norm.Scalar, randn(512, 768), 2)
    yield case("prod i64", aten.prod.default, ints(512, 768))
    yield case("prod bool", aten.prod.default, randn(512, 768) > 0)
    yield case("count_nonzero f32", aten.count_nonzero.dim_IntList, randn(512, 768), [1])
    yield case("logsumexp two", aten.logsumexp.default, randn(32, 64, 128), [0, 2], True)
    yield case("sum empty", total, randn(0, 768), [0])
    yield case("mean empty", aten.mean.default, randn(0))
    yield case("sum 0d", aten.sum.default, randn())
    yield case("sum past 32 bits", aten.sum.default, torch.zeros(PAST_32_BITS, device="cuda", dtype=BF16))
    yield case("sum rows past 32 bits", total, torch.zeros(3, 800_000_000, device="cuda", dtype=BF16), [1])
    yield case("sum columns past 32 bits", total, torch.zeros(3000, 400_000, device="cuda"), [0])
    yield case("argmax past 32 bits", aten.argmax.default, torch.zeros(PAST_32_BITS, device="cuda", dtype=BF16))


def some(dtype: torch.dtype = F32) -> list[torch.Tensor]:
    return [like(dtype, n) for n in (1, 7, 70_000, 65_536, 200_001)]


def foreach_edges() -> Iterator[Case]:
    for name in ("neg", "abs", "sigmoid", "exp", "reciprocal", "rsqrt", "sign", "erfc", "lgamma", "frac"):
        yield case(f"foreach {name}", getattr(aten, f"_foreach_{name}").default, some())
    yield case("foreach neg i64", aten._foreach_neg.default, some(I64))
    yield case("foreach sqrt_", aten._foreach_sqrt_.default, [t.abs() for t in some()])
    yield case("foreach sqrt i64", aten._foreach_sqrt.default, some(I64))
    yield case("foreach add list", aten._foreach_add.List, some(), some(), alpha=2)
    yield case("foreach sub list", aten._foreach_sub.List, some(), some())
    yield case("foreach mul list", aten._foreach_mul.List, some(), some())
    yield case("foreach div list", aten._foreach_div.List, some(), some())
    yield case("foreach mul scalarlist", aten._foreach_mul.ScalarList, some(), [1.0, 2.0, 3.0, 4.0, 5.0])
    yield case("foreach add tensor", aten._foreach_add.Tensor, some(), randn())
    yield case("foreach mul_ cpu tensor", aten._foreach_mul_.Tensor, some(), torch.tensor(2.0))
    yield case("foreach mul_ other dtype", aten._foreach_mul_.Tensor, some(BF16), randn())
    yield case("foreach pow scalar", aten._foreach_pow.Scalar, [t.abs() for t in some()], 2.0)
    yield case("foreach pow list", aten._foreach_pow.List, [t.abs() for t in some()], some())
    yield case("foreach pow base", aten._foreach_pow.ScalarAndTensor, 0.9, some())


def foreach_slow_paths_and_norms() -> Iterator[Case]:
    yield case("foreach maximum", aten._foreach_maximum.List, some(), some())
    yield case("foreach clamp_max", aten._foreach_clamp_max.Scalar, some(), 0.5)
    yield case("foreach clamp_min_ list", aten._foreach_clamp_min_.List, some(), some())
    yield case("foreach lerp list", aten._foreach_lerp.List, some(), some(), some())
    yield case("foreach lerp_ list", aten._foreach_lerp_.List, some(), some(), some())
    yield case("foreach addcmul tensor", aten._foreach_addcmul.Tensor, some(), some(), some(), torch.ones(5))
    yield case("foreach addcdiv scalar", aten._foreach_addcdiv.Scalar, some(), some(), some())
    yield case("foreach addcmul_ bf16", aten._foreach_addcmul_.Scalar, some(BF16), some(BF16), some(BF16))
    for order in (1, "inf", 3):
        yield case(f"foreach norm {order}", aten._foreach_norm.Scalar, some(), float(order))
    yield case("foreach norm dtype", aten._foreach_norm.Scalar, some(BF16), 2, F32)
    yield case("foreach norm many", aten._foreach_norm.Scalar, [randn(3) for _ in range(900)], 2)
    yield case("foreach norm empty among", aten._foreach_norm.Scalar, [randn(0), *some()], 2)
    yield case("foreach max", aten._foreach_max.default, some())
    yield case("foreach add_ many", aten._foreach_add_.Scalar, [randn(3) for _ in range(900)], 1)
    yield case("foreach add_ strided", aten._foreach_add_.Scalar, [randn(30, 40).t() for _ in range(3)], 1)
    yield case("foreach add_ not dense", aten._foreach_add_.Scalar, [randn(30, 80)[:, :40] for _ in range(3)], 1)
    yield case(
        "foreach add_ mixed dtypes",
        aten._foreach_add_.List,
        [randn(30), randn(40)],
        [randn(30, dtype=BF16), randn(40, dtype=BF16)],
    )
    yield case("foreach add_ i64", aten._foreach_add_.Scalar, some(I64), 1)
    yield case("foreach add i64 float", aten._foreach_add.Scalar, some(I64), 1.5)
    yield case("foreach add_ empty among", aten._foreach_add_.Scalar, [randn(0), *some()], 1)
    yield case("foreach div i64", aten._foreach_div.Scalar, some(I64), 2)
    yield case("foreach div_ scalar", aten._foreach_div_.Scalar, some(), 2)
    yield case("foreach copy_ same", aten._foreach_copy_.default, some(), some())
    yield case("foreach copy_ i64", aten._foreach_copy_.default, some(), some(I64))
    yield case("foreach copy_ other strides", aten._foreach_copy_.default, [randn(30, 40)], [randn(40, 30).t()])
    yield case("foreach zero_ not dense", aten._foreach_zero_.default, [randn(30, 80)[:, :40], randn(7)])
    found, scale = torch.zeros(1, device="cuda"), torch.ones(1, device="cuda")
    unscale = aten._amp_foreach_non_finite_check_and_unscale_.default
    yield case(
        "unscale mixed", unscale, [randn(30), randn(40, dtype=F16), randn(30, 80)[:, :40], randn(9)], found, scale
    )
    yield case("unscale f16", unscale, some(F16), found, scale)


FAMILIES = (
    unary_edges,
    jitted,
    binary_edges,
    powers_and_choices,
    activation_edges,
    random_edges,
    fill_edges,
    copy_edges,
    cat_edges,
    reduction_edges,
    reduction_dtypes,
    foreach_edges,
    foreach_slow_paths_and_norms,
)

if __name__ == "__main__":
    golden_ops.FAMILIES = FAMILIES
    golden_ops.main(sys.argv[1])
