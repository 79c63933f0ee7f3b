"""Arrays against the C++ types of pointers. The names are NVRTC's own."""

import numpy as np
import pytest
import torch

import undertorch
from undertorch.simt import BadLaunch
from undertorch.simt.frontends.mangled import parameters

SOURCE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
template <typename T, int N> struct Vec { T v[N]; };
namespace ns {
struct Pair { int x, y; };
typedef __nv_bfloat16 B;
template <typename T>
__global__ void inside(T* p, const Pair* q, const T* y, Vec<T, 4>* v, Vec<T, 4> w, float* f, T s) {}
template __global__ void inside<B>(B*, const Pair*, const B*, Vec<B, 4>*, Vec<B, 4>, float*, B);
__global__ void pairs(Pair* p, const Pair* q, Pair by_value, __half* h, const __half* g) {}
}
template <typename T, int N, bool B>
__global__ void many(const T* a, volatile int* b, T c, float** d, const volatile T* e, float4* f, void* g) {}
template __global__ void many<__half, -3, true>(
    const __half*, volatile int*, __half, float**, const volatile __half*, float4*, void*);
template <typename A, typename B> __global__ void two(const A* a, B* b, A* c, const B* d) {}
template __global__ void two<double, unsigned char>(const double*, unsigned char*, double*, const unsigned char*);
__global__ void none() {}
__global__ void unread(int (*rows)[4], float* x) {}
"""
TYPES = {
    "inside": ("__nv_bfloat16*", "ns::Pair*", "__nv_bfloat16*", "Vec*", "Vec", "float*", "__nv_bfloat16"),
    "pairs": ("ns::Pair*", "ns::Pair*", "ns::Pair", "__half*", "__half*"),
    "many": ("__half*", "int*", "__half", "float**", "__half*", "float4*", "void*"),
    "two": ("double*", "unsigned char*", "double*", "unsigned char*"),
    "none": (),
    "unread": None,
}


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


@pytest.mark.parametrize("kernel", TYPES)
def test_types_are_read_off_the_mangled_name(kernels, kernel):
    found = parameters(kernels[kernel].name)
    assert (None if found is None else tuple(type.name for type in found)) == TYPES[kernel]


@pytest.mark.parametrize("name", ["plain", "_Z", "_Z4", "_Z1kP", "_Z1kS_", "_Z1kPT_", "_ZN1aE", "_Z1kDpPT_", "_Z99k"])
def test_names_that_say_nothing_are_left_alone(name):
    assert not parameters(name)


def one(type):
    """A kernel that takes one pointer."""
    heads = "".join(f"#include <cuda_{name}.h>\n" for name in ("fp16", "bf16", "fp8"))
    return undertorch.cuda(f"{heads}struct S {{ int a; }}; __global__ void k({type}* x) {{}}")["k"][1, 1]


@pytest.mark.parametrize(
    ("type", "dtype", "wanted"),
    [
        ("float", torch.float16, "float32"),
        ("float", torch.float64, "float32"),
        ("const float", torch.int32, "float32"),
        ("__half", torch.float32, "float16"),
        ("__half", torch.bfloat16, "float16"),
        ("__nv_bfloat16", torch.float16, "bfloat16"),
        ("__nv_fp8_e4m3", torch.float8_e5m2, "float8_e4m3fn"),
        ("double", torch.float32, "float64"),
        ("int", torch.int64, "int32"),
        ("const int", torch.float32, "int32"),
        ("long long", torch.int32, "int64"),
        ("bool", torch.int32, "int8"),
        ("short", torch.int32, "int16"),
    ],
)
def test_elements_of_another_size_or_kind_are_refused_by_name(type, dtype, wanted):
    with pytest.raises(BadLaunch) as error:
        one(type)(torch.zeros(4, dtype=dtype))
    given = str(dtype).removeprefix("torch.")
    assert str(error.value).startswith(
        f"Argument 0: the kernel takes {type.removeprefix('const ')}*, which is {wanted},"
    )
    assert f"the elements given are {given};" in str(error.value)


@pytest.mark.parametrize(
    ("type", "array"),
    [
        ("float", torch.zeros(4, dtype=torch.int32).view(torch.float32)),
        ("float", torch.zeros(4, dtype=torch.complex64)),
        ("float", None),
        ("unsigned", torch.zeros(4, dtype=torch.int32)),
        ("unsigned long long", np.zeros(4, np.int64)),
        ("size_t", torch.zeros(4, dtype=torch.int64)),
        ("bool", torch.zeros(4, dtype=torch.bool)),
        ("bool", torch.zeros(4, dtype=torch.uint8)),
        ("__nv_bfloat16", np.zeros(4, np.uint16)),
        ("__nv_fp8_e5m2", np.zeros(4, np.uint8)),
        ("void", torch.zeros(4, dtype=torch.float16)),
        ("char", torch.zeros(4, dtype=torch.float16)),
        ("unsigned char", torch.zeros(4)),
        ("S", torch.zeros(4)),
        ("float4", torch.zeros(4, dtype=torch.float16)),
        ("float*", np.zeros(4, np.uint64)),
        ("float", np.zeros(4, [("x", np.float32)])),
    ],
)
def test_what_fits_or_may_be_meant_is_taken(type, array):
    one(type)(array)


def test_a_view_is_offered_where_the_size_fits():
    with pytest.raises(BadLaunch, match=r"or pass \.view\(float32\)"):
        one("float")(torch.zeros(4, dtype=torch.int32))
    with pytest.raises(BadLaunch) as error:
        one("float")(torch.zeros(4, dtype=torch.float16))
    assert "view" not in str(error.value)


def test_a_template_names_the_argument_of_the_wrong_type(kernels):
    fitting = [torch.zeros(4, dtype=torch.float64), np.zeros(4, np.uint8)] * 2
    kernels["two"][1, 1](*fitting)
    with pytest.raises(BadLaunch, match="Argument 2: the kernel takes double"):
        kernels["two"][1, 1](*fitting[:2], torch.zeros(4), fitting[3])
