"""Arguments of a kernel whose C++ types its name tells; views; memory that a kernel reaches by pointers in memory."""

import ctypes
import struct
import threading

import numpy as np
import pytest
import torch

import undertorch
from undertorch.simt import BadLaunch, Fault

SOURCE = """
__global__ void i32(long long* o, int v) { o[0] = v; }
__global__ void u32(long long* o, unsigned v) { o[0] = v; }
__global__ void i8(long long* o, signed char v) { o[0] = v; }
__global__ void u8(long long* o, unsigned char v) { o[0] = v; }
__global__ void i64(long long* o, long long v) { o[0] = v; }
__global__ void truth(long long* o, bool v) { o[0] = v == true ? 1 : v == false ? 0 : 2; }
__global__ void f32(long long* o, float v) { ((double*)o)[0] = v; }
__global__ void f64(long long* o, double v) { ((double*)o)[0] = v; }
struct Both { float* far; int n; };
__global__ void inside(float* o, Both both) { o[0] = both.far[both.n]; }
__global__ void through(float* o, float** far) { o[0] = far[0][1]; }
__global__ void copies(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
"""


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


def given(kernels, name, value, dtype=np.int64):
    o = np.zeros(1, np.int64)
    kernels[name][1, 1](o, value)
    return o.view(dtype)[0]


@pytest.mark.parametrize(
    ("name", "fitting", "others"),
    [
        ("i32", (-(2**31), 2**31 - 1, True), (2**31, -(2**31) - 1, np.uint32(2**31), 2**64)),
        ("u32", (0, 2**32 - 1), (-1, 2**32, np.int8(-3))),
        ("i8", (-128, 127), (128, 255, -129)),
        ("u8", (0, 255), (-1, 256)),
        ("i64", (-(2**63), 2**63 - 1), (2**63, np.uint64(2**64 - 1))),
        ("truth", (0, 1, True, False, np.True_, torch.tensor(True)), (2, -1, 255, np.uint8(255))),
    ],
)
def test_an_integer_fits_the_c_type_or_is_refused(kernels, name, fitting, others):
    for value in fitting:
        assert given(kernels, name, value) == int(value)
    for value in others:
        with pytest.raises(BadLaunch, match=r"Argument 1: .*does not fit"):
            given(kernels, name, value)


def test_floats_are_rounded_whoever_s_they_are(kernels):
    """As C converts; NumPy's 0.3 is no worse than Python's."""
    for value in (0.3, np.float64(0.3), torch.tensor(0.3, dtype=torch.float64), np.array(0.3)):
        assert given(kernels, "f32", value, np.float64) == np.float32(0.3)
    assert given(kernels, "f64", 0.3, np.float64) == 0.3
    for value in (3.4028235677973366e38, 1e39, np.float64(-1e39), 2**128, 16777217, np.longdouble(1) / 3):
        with pytest.raises(BadLaunch, match="Argument 1"):
            given(kernels, "f32", value, np.float64)


def test_a_pointer_asks_for_an_array(kernels):
    for value in ([0.0] * 8, 1.5, True):
        with pytest.raises(BadLaunch, match="takes a pointer, float"):
            kernels["copies"][1, 1](value, None, 0)
    with pytest.raises(BadLaunch, match="masked"):
        kernels["copies"][1, 1](np.ma.zeros(3, np.float32), np.zeros(3, np.float32), 3)


def test_memory_behind_pointers_is_named_by_reachable(kernels):
    class Both(ctypes.Structure):
        _fields_ = (("far", ctypes.c_void_p), ("n", ctypes.c_int))

    far, o = np.arange(4, dtype=np.float32), np.zeros(1, np.float32)
    for both in (Both(far.ctypes.data, 3), struct.pack("Pi4x", far.ctypes.data, 3)):
        kernels["inside"][1, 1](o, both, reachable=[far])
        assert o[0] == 3
    kernels["through"][1, 1](o, np.array([far.ctypes.data], np.uint64), reachable=[far])
    assert o[0] == 1
    with pytest.raises(Fault, match=r"reachable=\["):
        kernels["through"][1, 1](o, np.array([far.ctypes.data], np.uint64))


@pytest.mark.parametrize("view", [lambda n: np.ones(n, np.float32)[1:], lambda n: torch.ones(n)[1:],
                                  lambda n: torch.ones(n)[1:].numpy()])  # fmt: skip
def test_a_view_s_sectors_are_counted_where_it_lies_in_its_allocation(kernels, view):
    """32 requests of 128 bytes from the second element on touch 5 sectors each; from the first on, 4."""
    with undertorch.machine(instrument="counters"):
        counters = kernels["copies"][8, 128](np.empty(1024, np.float32), view(1100), 1024).counters
    (loads,) = [a for a in counters.accesses if not a.site.writes]
    assert (loads.sectors, loads.ideal) == (160, 128)


def test_a_read_only_view_beside_its_array_does_not_forbid_the_array(kernels):
    y = np.zeros(8, np.float32)
    view = y[:4]
    view.flags.writeable = False
    kernels["copies"][1, 32](y, view, 4)
    with pytest.raises(Fault, match="may not be written to"):
        kernels["copies"][1, 32](view, np.ones(4, np.float32), 4)


def test_variables_keep_the_alignment_that_they_ask_for():
    text = """.version 8.0
.target sm_80
.address_size 64
.global .align 256 .b8 g[8];
.global .align 4096 .b8 h[8];
.visible .entry k(.param .u64 p) {
.local .align 1 .b8 w[3]; .local .align 128 .b8 q[64];
.reg .b64 %rd<9>; .reg .b32 %r<4>;
ld.param.u64 %rd1,[p]; mov.u64 %rd2,q; cvta.local.u64 %rd2,%rd2; and.b64 %rd2,%rd2,127;
mov.u64 %rd3,g; and.b64 %rd3,%rd3,255; or.b64 %rd2,%rd2,%rd3; mov.u64 %rd3,h; and.b64 %rd3,%rd3,4095;
or.b64 %rd2,%rd2,%rd3; mov.u32 %r1,%tid.x; mul.wide.u32 %rd4,%r1,8; add.u64 %rd4,%rd1,%rd4;
st.global.u64 [%rd4],%rd2; ret;
}
"""
    o = np.full(70, 9, np.uint64)
    undertorch.ptx(text)["k"][1, 70](o)
    assert not o.any()


def test_32_bit_addresses_of_shared_memory_wrap_and_nothing_is_written_before_it():
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.shared .align 16 .b8 s[64];\n"
    body = "{\n.reg .b32 %r<9>; .reg .b64 %rd<3>;\nld.param.u64 %rd1,[p]; mov.u32 %r3,77;\n"
    wraps = "mov.u32 %r1,-4; st.shared.u32 [s],%r3; ld.shared.u32 %r2,[%r1+4]; st.global.u32 [%rd1],%r2; ret;\n}\n"
    y = np.zeros(16, np.int32)
    undertorch.ptx(f"{head}.visible .entry k(.param .u64 p) {body}{wraps}")["k"][1, 1](y)
    assert y[0] == 77
    before = "mov.u32 %r1,0; cp.async.cg.shared.global [%r1+-16],[%rd1],16; cp.async.wait_all; ret;\n}\n"
    with pytest.raises(Fault, match="-0x10 of shared memory"):
        undertorch.ptx(f"{head}.visible .entry k(.param .u64 p) {body}{before}")["k"][1, 1](y)


def test_a_setting_takes_numpy_s_numbers(kernels):
    o = np.zeros(1, np.int64)
    for options in ({"seed": np.uint8(200)}, {"threads": np.int8(2)}, {"patience": np.float32(3)}):
        with undertorch.machine(**options):
            kernels["i64"][2000, 64](o, 5)
        assert o[0] == 5


def test_one_launch_after_the_other_looks_at_no_variable_again():
    """With 1,000 variables a launch took 50 ms: each was looked for among all others."""
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    many = "".join(f".global .align 1 .b8 g{n}[1];\n" for n in range(1000))
    file = undertorch.ptx(head + many + ".visible .entry k() { ret; }")
    file["k"][1, 1]()
    first = dict(file.memory.arrays)
    file["k"][1, 1]()
    assert len(file.memory.placed) == 1
    assert all(file.memory.arrays[name] is room for name, room in first.items())
    assert threading.active_count() >= 1
