"""Which of a GPU's units does an Op's arithmetic: tensor cores where the sheet has them, else what stands in."""

from undertorch.records import Gpu, Math

STANDS_IN = {
    Math.TENSOR_FP64: Math.FP64,
    Math.TENSOR_TF32: Math.FP32,
    Math.TENSOR_BF16: Math.FP32,
    Math.TENSOR_FP16: Math.FP32,
    Math.TENSOR_FP8: Math.FP32,
    Math.TENSOR_INT8: Math.FP32,
}
"""Without such tensor cores: 16 bits are multiplied as float32, which their sums are kept in anyway; integers count
with FP32's lanes."""

TENSOR_CORES = {
    "bfloat16": Math.TENSOR_BF16,
    "float16": Math.TENSOR_FP16,
    "float64": Math.TENSOR_FP64,
    "complex128": Math.TENSOR_FP64,
    "float8_e4m3fn": Math.TENSOR_FP8,
    "float8_e5m2": Math.TENSOR_FP8,
    "int8": Math.TENSOR_INT8,
}


def available(gpu: Gpu, wanted: Math) -> Math:
    """The unit itself where the GPU's sheet has a peak for it, otherwise the one that stands in for it."""
    return wanted if wanted in gpu.peaks else STANDS_IN.get(wanted, wanted)


def matrix_math(dtype: str, gpu: Gpu, *, tf32: bool) -> Math:
    """The unit that multiplies matrices of a dtype; `tf32`: whether float32 may be rounded to TF32."""
    if dtype == "float32":
        return available(gpu, Math.TENSOR_TF32 if tf32 else Math.FP32)
    return available(gpu, TENSOR_CORES.get(dtype, Math.FP32))


def generation(gpu: Gpu) -> int | None:
    """The major compute capability of an NVIDIA GPU; 8 where none is known. None: a GPU of another vendor.

    AMD's numbers run through the same range (gfx942 is 9.4 to torch) and say nothing of NVIDIA's kernels.
    """
    if gpu.vendor != "NVIDIA":
        return None
    return 8 if gpu.compute_capability is None else gpu.compute_capability[0]
