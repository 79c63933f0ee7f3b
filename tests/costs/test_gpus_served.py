"""No GPU is given a kernel that it cannot launch or does not have, nor arithmetic on a unit that it lacks."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from costs.by_hand import op, tensor, transposed
from undertorch.costs import kernels
from undertorch.gpus import all_gpus, find
from undertorch.gpus.occupancy import occupancy
from undertorch.records import Gpu, Kernel, Math, Op, Origin

GPUS = {gpu.name: gpu for gpu in all_gpus()}
DTYPES = ("bfloat16", "float16", "float32", "float64")


def mm(dtype: str, rows: int = 4096, columns: int = 3072, inner: int = 1000) -> Op:
    first, second = tensor(rows, inner, dtype=dtype), transposed(tensor(columns, inner, dtype=dtype))
    return op("mm", tensor(rows, columns, dtype=dtype), self=first, mat2=second)


def addmm(dtype: str) -> Op:
    first, second = tensor(2048, 768, dtype=dtype), tensor(768, 2304, dtype=dtype)
    out, bias = tensor(2048, 2304, dtype=dtype), tensor(2304, dtype=dtype)
    return op("addmm", out, self=bias, mat1=first, mat2=second, beta=1, alpha=1)


def convolution(dtype: str, kernel: int = 3) -> Op:
    source, result = tensor(8, 64, 56, 56, dtype=dtype), tensor(8, 128, 56, 56, dtype=dtype)
    return op(
        "convolution",
        result,
        input=source,
        weight=tensor(128, 64, kernel, kernel, dtype=dtype),
        bias=None,
        stride=(1, 1),
        padding=(kernel // 2, kernel // 2),
        dilation=(1, 1),
        transposed=False,
        output_padding=(0, 0),
        groups=1,
    )


def attention(library: str, features: int, dtype: str, *, causal: bool = True, dropout: float = 0.0) -> tuple[Op, Op]:
    """Forward and backward of 4 × 16 heads of 1000."""
    query, key, value, out, grad = (tensor(4, 16, 1000, features, dtype=dtype) for _ in range(5))
    sums = tensor(4, 16, 1000)
    name = f"_scaled_dot_product_{library}_attention"
    common = {"query": query, "key": key, "value": value, "dropout_p": dropout, "is_causal": causal}
    name_of_grad = "grad_out_" if library == "efficient" else "grad_out"
    back = {name_of_grad: grad, "out": out, "logsumexp": sums, **common}
    return op(name, out, sums, **common), op(f"{name}_backward", query, key, value, **back)


def others() -> Iterator[Op]:
    source, weight, statistics = tensor(4096, 768), tensor(768), tensor(4096, 1)
    yield op(
        "native_layer_norm", source, statistics, statistics,
        input=source, normalized_shape=(768,), weight=weight, bias=weight, eps=1e-5,
    )  # fmt: skip
    for width in (1000, 50304):
        logits = tensor(512, width)
        yield op("_softmax", logits, self=logits, dim=-1, half_to_float=False)
        yield op("_softmax_backward_data", logits, grad_output=logits, output=logits, dim=-1, input_dtype="float32")


def calls() -> Iterator[Op]:
    for dtype in DTYPES:
        yield mm(dtype)
        yield mm(dtype, columns=64, inner=4096)
        yield mm(dtype, columns=1)
        yield mm(dtype, inner=1001)
        yield addmm(dtype)
        yield convolution(dtype)
        yield convolution(dtype, kernel=1)
    for features in (32, 64, 96, 128, 160, 192, 224, 256):
        for causal in (True, False):
            for dropout in (0.0, 0.1):
                yield attention("flash", features, "bfloat16", causal=causal, dropout=dropout)[0]
                if dropout == 0.0 or features <= 192:
                    # Above 192 features flash-attention's backward takes dropout only with 144 KB of shared memory.
                    yield attention("flash", features, "bfloat16", causal=causal, dropout=dropout)[1]
    for features in (64, 128, 256):
        for dtype in DTYPES[:2]:
            yield from attention("cudnn", features, dtype)
            yield from attention("efficient", features, dtype)
        yield from attention("efficient", features, "float32")
    yield from others()


def launched(gpu: Gpu) -> Iterator[tuple[Op, Kernel]]:
    for call in calls():
        for tf32 in (False, True):
            found = kernels(replace(call, tf32=tf32), gpu)
            assert found, call.name
            yield from ((call, kernel) for kernel in found)


@pytest.mark.parametrize("name", GPUS)
def test_every_kernel_can_be_resident_on_its_gpu(name: str):
    gpu = GPUS[name]
    for call, kernel in launched(gpu):
        if kernel.shared_bytes is not None:
            assert kernel.shared_bytes <= gpu.shared_per_block_optin, (call.name, kernel.name)
        if None in (kernel.registers, kernel.shared_bytes, kernel.block):
            continue
        x, y, z = kernel.block
        held = occupancy(gpu, kernel.registers, kernel.shared_bytes, x * y * z)
        assert held.blocks_per_sm >= 1, (call.name, kernel.name, held.reason)


@pytest.mark.parametrize("name", GPUS)
def test_arithmetic_is_done_by_a_unit_that_the_sheet_has_a_peak_for(name: str):
    gpu = GPUS[name]
    for call, kernel in launched(gpu):
        assert kernel.math is None or kernel.math in gpu.peaks, (call.name, kernel.name)


@pytest.mark.parametrize("name", GPUS)
def test_kernels_are_named_for_an_architecture_that_the_gpu_runs(name: str):
    """sm90 kernels hold Hopper's own instructions (PTX ISA, sm_90a); sm80's run on everything since Ampere."""
    gpu = GPUS[name]
    nvidia = gpu.vendor == "NVIDIA"
    for call, kernel in launched(gpu):
        where = (call.name, kernel.name, kernel.library)
        if "sm90" in kernel.name:
            assert (gpu.vendor, gpu.compute_capability[0]) == ("NVIDIA", 9), where
        if "sm100" in kernel.name:
            assert (gpu.vendor, gpu.compute_capability[0]) == ("NVIDIA", 10), where
        if any(word in kernel.name for word in ("sm80", "ampere", "cutlass_80")):
            assert nvidia, where
            assert gpu.compute_capability >= (8, 0), where
        if not nvidia:
            assert kernel.library not in ("cuBLAS", "CUTLASS", "cuDNN", "flash", "xFormers"), where
            assert "Nhwc" not in kernel.name, where


def flash_backward(gpu: Gpu, features: int) -> Kernel:
    return next(
        kernel
        for kernel in kernels(attention("flash", features, "bfloat16")[1], gpu)
        if kernel.name.startswith("flash_bwd_dq_dk_dv")
    )


@pytest.mark.parametrize(
    ("features", "kib", "strips"),
    [(32, 96, 8), (64, 72, 8), (96, 92, 8), (128, 80, 16), (160, 96, 16), (192, 96, 16), (256, 96, 32)],
)
def test_flash_backward_keeps_to_99_kb_where_there_is_no_more(features: int, kib: int, strips: int):
    """flash_bwd_launch_template.h writes 96, 92 and 99 KB beside its smaller tiles; 1000 keys by 128, 64 or 32."""
    for name in ("RTX3090", "L4", "RTX5090"):
        kernel = flash_backward(find(name), features)
        assert (kernel.shared_bytes, kernel.grid[0]) == (kib * 1024, strips)


def test_flash_backward_of_256_features_gives_up_its_second_buffer_on_an_a100():
    """`A100, we don't do double buffering to save smem`: 144 KB; Hopper takes 176."""
    assert flash_backward(find("A100-80GB"), 256).shared_bytes == 144 * 1024
    assert flash_backward(find("H200"), 256).shared_bytes == 176 * 1024


def main(call: Op, gpu: str) -> Kernel:
    return max(kernels(call, find(gpu)), key=lambda kernel: kernel.flops or 0)


def test_bfloat16_before_ampere_is_multiplied_as_float32():
    for gpu in ("T4", "V100-SXM2-16GB"):
        assert main(mm("bfloat16"), gpu).math is Math.FP32
        assert main(mm("float16"), gpu).math is Math.TENSOR_FP16
    assert main(mm("float16"), "T4").name.startswith("turing_")
    assert main(mm("float16"), "V100-SXM2-16GB").name.startswith("volta_")


def test_amd_gets_its_own_libraries_and_kernels_without_a_guessed_name():
    for gpu in ("MI300X", "MI250X"):
        for call, name, library in (
            (mm("bfloat16"), "gemm", "hipBLASLt"),
            (convolution("float32"), "convolution", "MIOpen"),
            (attention("flash", 64, "bfloat16")[0], "attention", "AOTriton"),
        ):
            (kernel,) = kernels(call, find(gpu))
            assert (kernel.name, kernel.library, kernel.geometry_origin) == (name, library, Origin.PREDICTED)


@pytest.mark.parametrize(
    ("gpu", "allowed"),
    [("H200", Math.TENSOR_TF32), ("A100-80GB", Math.TENSOR_TF32), ("MI300X", Math.TENSOR_TF32)]
    + [(name, Math.FP32) for name in ("T4", "V100-SXM2-16GB", "MI250X")],
)
def test_float32_goes_to_tensor_cores_where_tf32_is_allowed_and_there(gpu: str, allowed: Math):
    for call in (mm("float32"), addmm("float32"), convolution("float32")):
        assert main(replace(call, tf32=True), gpu).math is allowed
        assert main(replace(call, tf32=False), gpu).math is Math.FP32
