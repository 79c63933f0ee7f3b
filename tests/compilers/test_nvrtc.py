"""CUDA C++ as people write it for nvcc goes through NVRTC too."""

import math
import sys
import uuid

import numpy as np
import pytest

import undertorch
from undertorch.compilers import standard_c
from undertorch.compilers.nvrtc import CudaError, compile_cuda

CONSTANTS = {
    "INFINITY": math.inf,
    "-INFINITY": -math.inf,
    "HUGE_VAL": math.inf,
    "M_PI": math.pi,
    "M_E": math.e,
    "M_SQRT2": math.sqrt(2),
    "M_LN2": math.log(2),
    "FLT_MAX": np.finfo(np.float32).max,
    "FLT_MIN": np.finfo(np.float32).tiny,
    "FLT_EPSILON": np.finfo(np.float32).eps,
    "DBL_MAX": sys.float_info.max,
    "DBL_MIN": sys.float_info.min,
    "DBL_EPSILON": sys.float_info.epsilon,
    "INT_MAX": 2**31 - 1,
    "INT_MIN": -(2**31),
    "UINT_MAX": 2**32 - 1,
    "CHAR_BIT": 8,
    "INT16_MIN": -(2**15),
    "UINT8_MAX": 255,
    "INT64_MAX / (1 << 30)": 2**33 - 1,
    "sizeof(int8_t)": 1,
    "sizeof(uint16_t)": 2,
    "sizeof(int32_t)": 4,
    "sizeof(uint64_t)": 8,
    "(uint8_t)-1": 255,
    "(int8_t)-1": -1,
}


def test_constants_and_types_of_cs_headers_are_there_without_including_any():
    """Values: IEEE 754 and two's complement, as NumPy and Python say them."""
    body = "".join(f"x[{n}] = {name};\n" for n, name in enumerate(CONSTANTS))
    x = np.zeros(len(CONSTANTS))
    undertorch.cuda(f"__global__ void k(double* x) {{ {body} }}")["k"][1, 1](x)
    assert dict(zip(CONSTANTS, x.tolist(), strict=True)) == CONSTANTS


def test_nan_is_none():
    x = np.zeros(2, np.float32)
    undertorch.cuda("__constant__ float c = NAN; __global__ void k(float* x) { x[0] = c; x[1] = -NAN; }")["k"][1, 1](x)
    assert np.isnan(x).all()


@pytest.mark.parametrize("header", standard_c.EMPTY)
def test_cs_headers_can_be_included(header):
    assert ".entry" in compile_cuda(
        f"#include <{header}>\n__global__ void k(uint32_t* x) {{ *x = 1; assert(*x == 1); }}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "typedef long int64_t; __global__ void k(int64_t* x) { *x = 1; }",
        "typedef long long int64_t; __global__ void k(int64_t* x) { *x = INT_MAX; }",
        "#define INFINITY 3.f\n__global__ void k(float* x) { *x = INFINITY; }",
        "__constant__ float FLT_MAX = 1; __global__ void k(float* x) { *x = FLT_MAX; }",
        "#include <cuda/std/cstdint>\n#include <cuda/std/cfloat>\n#include <cuda/std/climits>\n"
        "__global__ void k(float* x) { *x = FLT_MAX; }",
    ],
)
def test_a_source_that_declares_such_names_itself_keeps_its_own(source):
    assert ".entry" in compile_cuda(source)


def test_lines_are_reported_under_the_name_that_was_given(monkeypatch, tmp_path):
    source = "#line 1\n__global__ void k(float* x) { *x = 1; }"
    monkeypatch.chdir(tmp_path)
    here = compile_cuda(source, name="mine.cu")
    assert '.file\t1 "mine.cu"' in here
    monkeypatch.chdir(tmp_path.parent)
    assert compile_cuda(source, name="mine.cu") == here


def test_an_error_counts_lines_of_the_source():
    with pytest.raises(CudaError, match=r"mine\.cu\(2\): error: identifier \"nothing\""):
        compile_cuda("__global__ void k() {\n  nothing; }", name="mine.cu")


def test_an_empty_log_writes_into_nobodys_bytes():
    """Python has one object for each single byte: what is written into it changes it for the whole process."""
    compile_cuda(f"__global__ void nothing() {{}} // not kept from before: {uuid.uuid4()}")
    assert [bytes([n])[0] for n in range(256)] == list(range(256))
