"""What can be asked for and makes no sense is refused in one sentence, at the call; what makes sense is done."""

import os
import signal
import struct
import threading

import numpy as np
import pytest
import torch

import undertorch
from undertorch.simt import BadLaunch, Deadlock, PtxError

SOURCE = """
extern "C" __global__ void integer(float* y, int v) { *y = v; }
extern "C" __global__ void single(float* y, float v) { *y = v; }
extern "C" __global__ void twice(double* y, double v) { *y = v; }
extern "C" __global__ void wide(long long* y, long long v) { *y = v; }
struct Pair { float a; int b; double c; };
extern "C" __global__ void pair(double* y, Pair p) { y[0] = p.a; y[1] = p.b; y[2] = p.c; }
extern "C" __global__ void two(float* y, const float* x) { *y = *x; }
extern "C" __global__ void forever(volatile int* y) { while (y[1] == 0) y[0]++; }
extern "C" __global__ void counts(unsigned* y, long long n) {
    unsigned a = threadIdx.x;
    for (long long i = 0; i < n; i++) a = a * 1664525u + 1013904223u ^ (a >> 7);
    y[threadIdx.x] = a;
}
extern "C" __global__ void polls(volatile int* y) { while (y[0] == 0) {} }
extern "C" __global__ void much(int* y, int n) { __shared__ int s[12289]; s[n] = n; __syncthreads(); *y = s[n + 1]; }
extern "C" __global__ void no_barrier() { asm volatile("bar.sync 16;"); }
extern "C" __global__ void prints(int* y) { y[0] = printf("%d %*d %%", 1, 2, 3); y[1] = printf("plain"); }
"""
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


@pytest.fixture(scope="module")
def kernels():
    return undertorch.cuda(SOURCE)


@pytest.mark.parametrize(
    "size", [2, (2.0, 128), (2, 1.5), ("2", 1), ((), 1), (1, 0), (1, 1, 0, 0), (1, 1, -5), (1, 1, 1.5), (1, 1, None),
             (1, 1, -(1 << 40)), ((1, 1, 1, 1), 1)],
    ids=str,
)  # fmt: skip
def test_what_is_no_size_is_refused(kernels, size):
    with pytest.raises(BadLaunch):
        kernels["single"][size](np.zeros(1, np.float32), 1.0)


def test_integers_of_numpy_and_torch_are_sizes(kernels):
    y = np.zeros(1, np.float32)
    result = kernels["single"][np.int64(2), (np.int32(4), torch.tensor(2)), np.uint8(16)](y, 1.0)
    assert (result.grid, result.block) == ((2, 1, 1), (4, 2, 1))


@pytest.mark.parametrize(
    ("kernel", "value", "wanted"),
    [
        ("single", np.int32(3), 3),
        ("single", torch.tensor(3), 3),
        ("single", np.float64(0.5), 0.5),
        ("single", np.float16(0.25), 0.25),
        ("single", torch.tensor(0.375, dtype=torch.bfloat16), 0.375),
        ("single", np.array(1.5), 1.5),
        ("single", 0.1, np.float32(0.1)),
        ("single", np.float64(0.1), np.float32(0.1)),
        ("single", float("inf"), np.inf),
        ("integer", np.int64(-7), -7),
        ("integer", torch.tensor(9, dtype=torch.uint8), 9),
        ("integer", np.array(5), 5),
        ("twice", np.int64(3), 3),
        ("twice", np.array(2.5, np.float32), 2.5),
        ("twice", torch.tensor(1.5, dtype=torch.float64), 1.5),
        ("wide", np.int32(-1), -1),
    ],
    ids=str,
)
def test_a_scalar_that_c_would_convert_without_loss_is_converted(kernels, kernel, value, wanted):
    y = np.zeros(1, {"twice": np.float64, "wide": np.int64}.get(kernel, np.float32))
    kernels[kernel][1, 1](y, value)
    assert y[0] == wanted


@pytest.mark.parametrize(
    ("kernel", "value"),
    [
        ("single", (1 << 24) + 1),
        ("single", 10**400),
        ("single", 1e300),
        ("single", np.ones(2, np.float32)),
        ("single", 1j),
        ("single", None),
        ("single", bytearray(4)),
        ("integer", np.float32(4)),
        ("integer", 2.0),
        ("integer", 1 << 32),
        ("integer", np.int64(-(1 << 31) - 1)),
        ("twice", np.ones(2)),
        ("twice", torch.ones(1)),
        ("twice", (1 << 53) + 1),
        ("wide", np.float64(3)),
        ("pair", 7),
        ("pair", (1.5, 2, 3.5)),
        ("pair", np.zeros(16, np.uint8)),
        ("pair", b"short"),
    ],
    ids=str,
)
def test_a_scalar_of_the_wrong_kind_is_refused_by_its_number(kernels, kernel, value):
    with pytest.raises(BadLaunch, match=r"^Argument 1: "):
        kernels[kernel][1, 1](np.zeros(4), value)


def test_a_struct_is_bytes_or_a_record(kernels):
    record = np.array((1.5, 2, 3.5), dtype="f4,i4,f8")
    for given in (struct.pack("<fid", 1.5, 2, 3.5), record, record[()]):
        y = np.zeros(3)
        kernels["pair"][1, 1](y, given)
        assert y.tolist() == [1.5, 2, 3.5]


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        (torch.tensor([1 + 2j]).conj(), r"resolve_conj\(\)"),
        (torch.tensor([1 + 2j]).conj().imag, r"resolve_neg\(\)"),
        (torch.zeros(4, device="meta"), "has a shape and no values"),
        (torch.zeros(4).to_sparse(), "pass its parts"),
        (np.ones(4, ">f4"), "big-endian"),
        (np.array([object()]), "Python objects"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_memory_that_is_not_its_elements_is_refused_with_what_to_do(kernels, memory, says):
    with pytest.raises(BadLaunch, match=says):
        kernels["two"][1, 1](np.zeros(1, np.float32), memory)


@pytest.mark.parametrize(
    "setting",
    [{"gpu": None}, {"gpu": 3}, {"threads": 0}, {"threads": -3}, {"threads": 1.5}, {"threads": "2"}, {"seed": 1.5},
     {"seed": "x"}, {"instrument": "events"}, {"instrument": []}, {"patience": 0}, {"patience": "x"}],
    ids=str,
)  # fmt: skip
def test_what_is_no_setting_is_refused_at_once(setting):
    with pytest.raises(BadLaunch, match=f"^{next(iter(setting))}="):
        undertorch.machine(**setting)


@pytest.mark.parametrize("text", [None, b"x", 5, "a\0b", "a\ud800"], ids=repr)
def test_what_is_no_text_is_refused(text):
    for function in (undertorch.ptx, undertorch.cuda):
        with pytest.raises(BadLaunch):
            function(text)


def test_options_may_be_one_str():
    kernel = undertorch.cuda("__global__ void k(int* y) { *y = A + B; }", "-DA=2 -DB=3")["k"]
    y = np.zeros(1, np.int32)
    kernel[1, 1](y)
    assert y[0] == 5


def test_a_kernel_is_asked_for_by_a_str(kernels):
    with pytest.raises(BadLaunch, match="by its name"):
        kernels[None]


def test_ctrl_c_ends_all_host_threads_before_it_is_raised(kernels):
    y = np.zeros(2, np.int32)
    pressed = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    pressed.start()
    with undertorch.machine(threads=2), pytest.raises(KeyboardInterrupt):
        kernels["forever"][8, 32](y)
    pressed.join()
    held = y[0]
    threading.Event().wait(0.3)
    assert y[0] == held


def test_a_long_loop_that_waits_for_nobody_is_no_deadlock(kernels):
    y = np.zeros(32, np.uint32)
    with undertorch.machine(patience=0.01):
        kernels["counts"][1, 32](y, 3_000_000)
    assert y.any()


def test_a_loop_that_polls_what_nobody_changes_is_one_and_names_the_patience(kernels):
    with undertorch.machine(patience=0.2, threads=2), pytest.raises(Deadlock, match="patience"):
        kernels["polls"][2, 32](np.zeros(1, np.int32))


@pytest.mark.parametrize(("kernel", "says"), [("much", "49156 bytes"), ("no_barrier", "no barrier 16")])
def test_what_ptxas_refuses_is_refused(kernels, kernel, says):
    with pytest.raises((BadLaunch, PtxError), match=says):
        kernels[kernel][1, 32](*[np.zeros(1, np.int32), 1][: 2 * (kernel == "much")])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD.replace("8.0", "99.9"), "line 1: there is no .version 99.9"),
        (HEAD.replace("8.0", "new"), "line 1"),
        (HEAD.replace(".version 8.0\n", ""), "no .version"),
        (HEAD.replace("sm_80", "foo"), "line 2: .target"),
    ],
)
def test_a_head_that_no_assembler_takes_is_refused(text, says):
    with pytest.raises(PtxError, match=says):
        undertorch.ptx(text).kernels  # noqa: B018


def test_printf_answers_how_many_arguments_it_took(kernels):
    y = np.full(2, -1, np.int32)
    kernels["prints"][1, 1](y)
    assert y.tolist() == [3, 0]
