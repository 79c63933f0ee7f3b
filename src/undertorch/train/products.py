"""Matrix products by cuBLASLt itself, with what torch does not ask it for.

Of each product cuBLASLt names several algorithms, of which torch takes the first; here they are measured once
(ops/choose.py). And it has an epilogue that torch does not reach: GELU that also keeps what went into it, as a backward
needs it, which spares a pass over a large matrix. On an H200, 32768 rows of GPT-2 124M: 278 µs for 350, and products
5 to 12 % faster than torch's.

Tried there and dropped: DGELU_BGRAD, the gradient of GELU on the way out of a product (880 µs for 440), and BGRADB, the
sums of a bias's gradient beside the weight's, which cuBLASLt computes in a kernel of its own.

The enumerations are those of cublasLt.h of CUDA 13.0; they belong to its binary interface.
"""

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, partial
from typing import Any

import torch
import triton
from torch import Tensor

from undertorch.costs.linear_act import ACTIVATED_PIECE, ACTIVATED_WARPS, GELU_TANH
from undertorch.ops import linear_act_kernels
from undertorch.ops.calls import on_device_of, on_machine
from undertorch.ops.choose import chosen, may_measure
from undertorch.ops.operators import operator

HALVES = (torch.bfloat16, torch.float16)
"""Of float32 torch's settings decide how a product is computed, and its GELU is good to 1e-6 only."""

REAL_TYPES = {torch.float32: 0, torch.bfloat16: 14, torch.float16: 2}
"""cudaDataType_t (library_types.h)."""
COMPUTE_FLOAT32 = 68
"""CUBLAS_COMPUTE_32F."""
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER, AUX_POINTER, AUX_WIDTH = 3, 4, 7, 8, 11, 12
"""cublasLtMatmulDescAttributes_t."""
MOST_WORKSPACE = 1
"""cublasLtMatmulPreferenceAttributes_t."""
WORKSPACE = 32 * 2**20
"""Bytes: what NVIDIA recommends for Hopper ("cublasSetWorkspace" in cuBLAS's documentation)."""
ALIGNMENT = 256
"""Bytes: what cuBLASLt takes for granted where it is not told otherwise (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_*)."""
ALGORITHMS = 8
"""That are asked for."""
ROUNDS = 5
"""Of the timing that says which of them are worth measuring well."""


class Epilogue(IntEnum):
    """cublasLtEpilogue_t: what is done to a product on its way out."""

    NONE = 1
    BIAS = 4
    GELU_AUX_BIAS = 32 | 128 | 4


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True, slots=True)
class Algorithm:
    """cublasLtMatmulAlgo_t: one of cuBLASLt's for a product."""

    data: bytes

    def __str__(self) -> str:
        return f"cuBLASLt {self.data.hex()}"


@dataclass(frozen=True, slots=True)
class Torchs:
    """torch's matmul; with an epilogue that it does not have, and a kernel of ours after it."""

    def __str__(self) -> str:
        return "torch"


Way = Torchs | Algorithm


class NotServed(RuntimeError):
    """cuBLASLt has no kernel for a product, or is not there."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """One operand as cuBLASLt takes it, column after column."""

    rows: int
    columns: int
    apart: int
    """Elements from one column to the next."""
    turned: bool
    dtype: torch.dtype


def operand(x: Tensor) -> Matrix:
    """Of x (M, K), whose transpose stands in the product: row-major, or itself a transpose of such a matrix."""
    rows, columns = x.shape
    if x.stride(1) == 1:
        return Matrix(columns, rows, x.stride(0), False, x.dtype)
    if x.stride(0) == 1:
        return Matrix(rows, columns, x.stride(1), True, x.dtype)
    raise NotServed("a matrix whose neither rows nor columns are dense")


@cache
def library() -> Any:
    """libcublasLt, which torch has loaded. Raises NotServed."""
    if torch.version.cuda is None:
        raise NotServed("torch was built without CUDA")
    name = f"libcublasLt.so.{torch.version.cuda.split('.')[0]}"
    try:
        loaded = ctypes.CDLL(name)
    except OSError as error:
        raise NotServed(str(error)) from error
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    loaded.cublasLtMatmulDescSetAttribute.argtypes = [pointer, ctypes.c_int, pointer, size]
    loaded.cublasLtMatmulPreferenceSetAttribute.argtypes = [pointer, ctypes.c_int, pointer, size]
    loaded.cublasLtMatmulDescCreate.argtypes = [pointer, ctypes.c_int, ctypes.c_int]
    numbers = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64]
    loaded.cublasLtMatrixLayoutCreate.argtypes = [pointer, *numbers]
    loaded.cublasLtMatmulAlgoGetHeuristic.argtypes = [*[pointer] * 7, ctypes.c_int, pointer, pointer]
    loaded.cublasLtMatmul.argtypes = [*[pointer] * 14, size, pointer]
    return loaded


def asked(status: int, what: str) -> None:
    """Raises NotServed where cuBLASLt did not do it."""
    if status:
        raise NotServed(f"{what}: cublasStatus_t {status}")


@cache
def handle(device: int) -> ctypes.c_void_p:
    """Of a device, for as long as the process lives."""
    made = ctypes.c_void_p()
    with torch.cuda.device(device):
        asked(library().cublasLtCreate(ctypes.byref(made)), "cublasLtCreate")
    return made


@cache
def workspace(device: int) -> Tensor:
    """Products of a device run one after the other, and share it."""
    return torch.empty(WORKSPACE, dtype=torch.uint8, device=f"cuda:{device}")


@dataclass(frozen=True, slots=True)
class Key:
    """What a plan holds for."""

    first: Matrix
    second: Matrix
    out: torch.dtype
    epilogue: Epilogue
    device: int


class Plan:
    """A product of given shapes: cuBLASLt's descriptions of it, and the algorithms that it names."""

    def __init__(self, key: Key) -> None:
        self.key, lt = key, library()
        self.description = ctypes.c_void_p()
        asked(
            lt.cublasLtMatmulDescCreate(ctypes.byref(self.description), COMPUTE_FLOAT32, REAL_TYPES[torch.float32]),
            "cublasLtMatmulDescCreate",
        )
        # Row after row its result is (M, N) = first @ second; column after column (N, M) = second @ first.
        self.set(TRANSPOSE_A, ctypes.c_int32(key.second.turned))
        self.set(TRANSPOSE_B, ctypes.c_int32(key.first.turned))
        self.set(EPILOGUE, ctypes.c_uint32(key.epilogue))
        width = key.second.columns if key.second.turned else key.second.rows
        height = key.first.rows if key.first.turned else key.first.columns
        if key.epilogue is Epilogue.GELU_AUX_BIAS:
            self.set(AUX_WIDTH, ctypes.c_int64(width))
        self.layouts = [self._layout(key.second), self._layout(key.first)]
        self.layouts.append(self._layout(Matrix(width, height, width, False, key.out)))
        self.found: tuple[Algorithm, ...] = ()

    def set(self, attribute: int, value: Any) -> None:
        """Of the description."""
        asked(
            library().cublasLtMatmulDescSetAttribute(
                self.description, attribute, ctypes.byref(value), ctypes.sizeof(value)
            ),
            f"cublasLtMatmulDescSetAttribute {attribute}",
        )

    @staticmethod
    def _layout(matrix: Matrix) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        asked(
            library().cublasLtMatrixLayoutCreate(
                ctypes.byref(made), REAL_TYPES[matrix.dtype], matrix.rows, matrix.columns, matrix.apart
            ),
            "cublasLtMatrixLayoutCreate",
        )
        return made

    def algorithms(self, bias: Tensor | None, aux: Tensor | None) -> Sequence[Algorithm]:
        """The best by cuBLASLt's guess first. Raises NotServed where there is none."""
        if self.found:
            return self.found
        lt, preference, count = library(), ctypes.c_void_p(), ctypes.c_int()
        self.point(bias, aux)  # their alignment counts
        asked(lt.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "cublasLtMatmulPreferenceCreate")
        most = ctypes.c_uint64(WORKSPACE)
        asked(
            lt.cublasLtMatmulPreferenceSetAttribute(preference, MOST_WORKSPACE, ctypes.byref(most), 8),
            "cublasLtMatmulPreferenceSetAttribute",
        )
        results = (Heuristic * ALGORITHMS)()
        second, first, out = self.layouts
        asked(
            lt.cublasLtMatmulAlgoGetHeuristic(
                handle(self.key.device), self.description, second, first, out, out, preference, ALGORITHMS,
                ctypes.byref(results), ctypes.byref(count),
            ),
            f"no algorithm for {self.key}",
        )  # fmt: skip
        lt.cublasLtMatmulPreferenceDestroy(preference)
        self.found = tuple(
            Algorithm(struct.pack("8Q", *each.algorithm)) for each in results[: count.value] if each.state == 0
        )
        if not self.found:
            raise NotServed(f"no algorithm for {self.key}")
        return self.found

    def point(self, bias: Tensor | None, aux: Tensor | None) -> None:
        """Says where the vector and the matrix beside the product lie."""
        if bias is not None:
            self.set(BIAS_POINTER, ctypes.c_void_p(bias.data_ptr()))
        if aux is not None:
            self.set(AUX_POINTER, ctypes.c_void_p(aux.data_ptr()))

    def run(
        self, algorithm: Algorithm, first: Tensor, second: Tensor, bias: Tensor | None, out: Tensor, aux: Tensor | None
    ) -> None:
        """In the current stream."""
        self.point(bias, aux)
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        layout_second, layout_first, layout_out = self.layouts
        asked(
            library().cublasLtMatmul(
                handle(self.key.device), self.description, ctypes.byref(one), second.data_ptr(), layout_second,
                first.data_ptr(), layout_first, ctypes.byref(zero), out.data_ptr(), layout_out, out.data_ptr(),
                layout_out, algorithm.data, workspace(self.key.device).data_ptr(), WORKSPACE,
                torch.cuda.current_stream(self.key.device).cuda_stream,
            ),
            f"cublasLtMatmul of {self.key}",
        )  # fmt: skip


@cache
def plan(key: Key) -> Plan:
    """One a kind of product."""
    return Plan(key)


def planned(first: Tensor, second: Tensor, epilogue: Epilogue) -> Plan:
    """Of first (M, K) @ second (K, N), each dense in its rows or in its columns. Raises NotServed."""
    return plan(Key(operand(first), operand(second), first.dtype, epilogue, first.device.index))


def times(ways: Sequence[Callable[[], Any]]) -> list[float]:
    """Least microseconds of each, in turn; infinite for one that does not run."""
    least = [math.inf] * len(ways)
    for turn in range(ROUNDS + 1):
        for number, way in enumerate(ways):
            if turn and least[number] == -1.0:
                continue
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            try:
                begin.record()
                way()
                end.record()
            except (NotServed, torch.OutOfMemoryError):
                least[number] = -1.0
                continue
            end.synchronize()
            if turn:
                least[number] = min(least[number], begin.elapsed_time(end) * 1e3)
    return [math.inf if taken < 0 else taken for taken in least]


def ways(
    run: Callable[..., Any], first: Tensor, second: Tensor, bias: Tensor | None, epilogue: Epilogue
) -> tuple[Way, ...]:
    """Who may compute it: torch, then cuBLASLt's algorithms, those first that are the fastest at a glance: choose.py
    does not measure all.
    """
    if not first.is_cuda or first.dtype not in HALVES or on_machine():
        return (Torchs(),)
    try:
        aux = first.new_empty((first.shape[0], second.shape[1])) if epilogue is Epilogue.GELU_AUX_BIAS else None
        found = planned(first, second, epilogue).algorithms(bias, aux)
    except NotServed:
        return (Torchs(),)
    if may_measure():
        taken = dict(zip(found, times([partial(run, way, first, second, bias) for way in found]), strict=True))
        found = sorted(found, key=lambda way: taken[way])
    return Torchs(), *found


def aligned(*tensors: Tensor | None) -> bool:
    """Whether they begin where an algorithm was chosen for: a view, such as of FSDP's buffers, may not."""
    return all(tensor is None or tensor.data_ptr() % ALIGNMENT == 0 for tensor in tensors)


def _product(way: Way, first: Tensor, second: Tensor, bias: Tensor | None) -> Tensor:
    if isinstance(way, Torchs) or not aligned(first, second, bias):
        return torch.mm(first, second) if bias is None else torch.addmm(bias, first, second)
    out = first.new_empty((first.shape[0], second.shape[1]))
    epilogue = Epilogue.NONE if bias is None else Epilogue.BIAS
    planned(first, second, epilogue).run(way, first, second, bias, out, None)
    return out


def _gelu_product(way: Way, first: Tensor, second: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(way, Torchs) or not aligned(first, second, bias):
        before = torch.addmm(bias, first, second)
        out = torch.empty_like(before)
        with on_device_of(before):
            linear_act_kernels.activate[(triton.cdiv(out.numel(), ACTIVATED_PIECE),)](
                before, out, out.numel(), KIND=GELU_TANH, BLOCK=ACTIVATED_PIECE, num_warps=ACTIVATED_WARPS
            )
        return out, before
    out, before = (first.new_empty((first.shape[0], second.shape[1])) for _ in range(2))
    planned(first, second, Epilogue.GELU_AUX_BIAS).run(way, first, second, bias, out, before)
    return out, before


def _chosen(name: str, run: Callable[..., Any], first: Tensor, second: Tensor, bias: Tensor | None) -> Way:
    (rows, inner), width = first.shape, second.shape[1]
    epilogue = Epilogue.GELU_AUX_BIAS if name == "gelu_product" else Epilogue.NONE if bias is None else Epilogue.BIAS
    laid = "".join("n" if tensor.stride(-1) == 1 else "t" for tensor in (first, second))

    def measured(way: Way, given: Sequence[Any]) -> None:
        run(way, *given)  # and let go: results of all ways together may have no room

    found: Way = chosen(
        name, first, rows, width, partial(ways, run, first, second, bias, epilogue), measured, (first, second, bias),
        detail=f"of {rows}x{inner} {laid}{', biased' * (bias is not None)}",
    )  # fmt: skip
    return found


def product_of(first: Tensor, second: Tensor, bias: Tensor | None) -> Tensor:
    """first (M, K) @ second (K, N), and the bias (N,) added to each row."""
    return _product(_chosen("product", _product, first, second, bias), first, second, bias)


def gelu_product_of(first: Tensor, second: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """gelu_tanh(first @ second + bias), and what went into the GELU."""
    return _gelu_product(_chosen("gelu_product", _gelu_product, first, second, bias), first, second, bias)


product = operator(
    "product",
    "(Tensor first, Tensor second, Tensor? bias) -> Tensor",
    product_of,
    lambda first, second, bias: first.new_empty((first.shape[0], second.shape[1])),
)
gelu_product = operator(
    "gelu_product",
    "(Tensor first, Tensor second, Tensor bias) -> (Tensor, Tensor)",
    gelu_product_of,
    lambda first, second, bias: tuple(first.new_empty((first.shape[0], second.shape[1])) for _ in range(2)),
)
