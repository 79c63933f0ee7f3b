"""What can be passed to a kernel: tensors of any dtype by address, scalars and structs by value."""

import struct

import numpy as np
import pytest
import torch

import undertorch
from undertorch.simt import BadLaunch

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"

STORAGE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
template <typename T> __global__ void twice(T* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = T(2.0f * float(x[i]));
}
template __global__ void twice<__nv_bfloat16>(__nv_bfloat16*, int);
template __global__ void twice<__half>(__half*, int);
template __global__ void twice<__nv_fp8_e4m3>(__nv_fp8_e4m3*, int);
template __global__ void twice<__nv_fp8_e5m2>(__nv_fp8_e5m2*, int);
struct Settings { float scale; __nv_bfloat16 shift; signed char signs[3]; double last; };
__global__ void values(__nv_bfloat16 b, __half h, float f, double d, bool t, signed char c, short s, long long l,
                       Settings g, double* o) {
    o[0] = float(b); o[1] = float(h); o[2] = f; o[3] = d; o[4] = t; o[5] = c; o[6] = s; o[7] = double(l);
    o[8] = g.scale; o[9] = float(g.shift); o[10] = g.signs[2]; o[11] = g.last;
}
__global__ void column_sum(const float* x, long rows, long row_stride, long column_stride, float* out) {
    float sum = 0;
    for (long r = 0; r < rows; r++) sum += x[r * row_stride + threadIdx.x * column_stride];
    out[threadIdx.x] = sum;
}
"""


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(STORAGE)


@pytest.mark.parametrize(
    ("dtype", "c_type"),
    [
        (torch.bfloat16, "__nv_bfloat16"),
        (torch.float16, "__half"),
        (torch.float8_e4m3fn, "__nv_fp8_e4m3"),
        (torch.float8_e5m2, "__nv_fp8_e5m2"),
    ],
)
def test_storage_of_half_and_eighth_floats_is_torchs(kernels, dtype, c_type):
    """Doubled in the kernel and by torch: the same rounding, saturation apart (values stay far from the ends)."""
    name = next(k for k in kernels.kernels if c_type in k and "twice" in k)
    x = torch.randn(77, generator=torch.Generator().manual_seed(1)).to(dtype)
    wanted = (2 * x.float()).to(dtype)
    kernels[name][3, 32](x, 77)
    assert torch.equal(x.view(torch.uint8), wanted.view(torch.uint8))


def test_values_come_as_the_kernel_declares_them(kernels):
    settings = struct.pack("<fH3bxxxxxxxd", 1.5, 0x4048, 1, 2, -3, 0.1)  # 0x4048: 3.125 in bfloat16
    out = np.zeros(12)
    bfloat, half = torch.tensor(-2.5, dtype=torch.bfloat16), np.float16(0.75)
    kernels["values"][1, 1](bfloat, half, 3, 0.1, True, -7, -300, -(2**40), settings, out)
    assert out.tolist() == [-2.5, 0.75, 3, 0.1, 1, -7, -300, -(2.0**40), 1.5, 3.125, -3, 0.1]


@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x.t(), lambda x: x[1:, 2:], lambda x: x[:, ::2], lambda x: x[3:4].expand(5, -1)],
    ids=["contiguous", "transposed", "offset", "every other", "expanded"],
)
def test_a_view_is_passed_as_its_first_element_and_strides(kernels, view):
    x = view(torch.arange(63.0).reshape(7, 9))
    out = torch.zeros(x.shape[1])
    kernels["column_sum"][1, x.shape[1]](x, x.shape[0], *x.stride(), out)
    assert torch.equal(out, x.sum(0))


def test_a_view_of_an_array_is_passed_so_too(kernels):
    x = np.arange(63, dtype=np.float32).reshape(7, 9)[::-1, 1::3]
    out = np.zeros(3, np.float32)
    kernels["column_sum"][1, 3](x, 7, x.strides[0] // 4, x.strides[1] // 4, out)
    assert np.array_equal(out, x.sum(0))


def test_a_parameter_of_a_module_is_written_in_place(kernels):
    weight = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    name = next(k for k in kernels.kernels if "__nv_bfloat16" in k and "twice" in k)
    kernels[name][1, 8](weight, 8)
    assert torch.equal(weight, torch.full((8,), 2.0, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("number", "argument", "says"),
    [
        (0, 0.5, "float16 or bfloat16"),
        (2, 2**24 + 1, "no exact value of a float"),
        (4, 0.5, "takes an integer"),
        (5, 300, "does not fit"),
        (8, b"short", "it has 5 bytes, and the kernel takes 24"),
        (9, torch.zeros(12, dtype=torch.float64, device="meta"), "tensor on meta"),
        (9, torch.zeros(12, dtype=torch.float64).to_sparse(), r"layout torch\.sparse_coo"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_argument(kernels, number, argument, says):
    given = [torch.tensor(1, dtype=torch.bfloat16), np.float16(1), 1.0, 1.0, True, 1, 1, 1, bytes(24), np.zeros(12)]
    given[number] = argument
    with pytest.raises(BadLaunch, match=rf"Argument {number}[ :].*{says}"):
        kernels["values"][1, 1](*given)


def test_a_half_of_the_other_kind_is_refused_where_the_name_of_the_kernel_tells(kernels):
    given = [np.float16(1), np.float16(1), 1.0, 1.0, True, 1, 1, 1, bytes(24), np.zeros(12)]
    with pytest.raises(BadLaunch, match="Argument 0: the kernel takes __nv_bfloat16, which is bfloat16"):
        kernels["values"][1, 1](*given)
    given[:2] = [torch.tensor(1, dtype=torch.bfloat16)] * 2
    with pytest.raises(BadLaunch, match="Argument 1: the kernel takes __half, which is float16"):
        kernels["values"][1, 1](*given)


def test_an_option_that_names_an_architecture_wins():
    assert ".target sm_90" in undertorch.cuda("__global__ void k() {}", ["--gpu-architecture=compute_90"]).text
    assert ".target sm_80" in undertorch.cuda("__global__ void k() {}").text
