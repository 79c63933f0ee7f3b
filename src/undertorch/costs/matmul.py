"""Matrix products (native/cuda/Blas.cpp, torch 2.11): what is copied first, which library call is made, its bytes.

FLOPs are 2 · rows · columns · inner exactly, whatever the epilogue (as torch.utils.flop_counter counts). Which kernel
cuBLAS takes is modelled: see gemm/. float32 goes to the tensor cores as TF32 where torch was told to allow it (Op.tf32)
and the GPU has it.
"""

from dataclasses import dataclass, replace
from math import gcd

from undertorch.costs.building import ceil_div, inner, pytorch, temporary, vector_math, viewed, zeros
from undertorch.costs.gemm.launches import launches, modelled
from undertorch.costs.gemm.product import Epilogue, Product
from undertorch.costs.least_bytes import least_bytes
from undertorch.costs.registry import cost
from undertorch.costs.units import generation, matrix_math
from undertorch.records import Gpu, Kernel, Kind, Op, TensorRef

BIAS_DTYPES = ("float64", "float32", "float16", "bfloat16")
"""Those that cublasLt adds a bias for (isInputCompliesAddmmCudaLt)."""

MOST_ALIGNMENT = 16
"""Bytes; more than that makes no kernel available."""

DOT_ELEMENTS = 128
"""Of a block of cuBLAS' `dot_kernel` (100,000 elements: 782 blocks, recorded)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A matrix, or a batch of them, as cuBLAS takes it."""

    tensor: TensorRef
    order: str
    """`r` row-major or `c` column-major."""
    leading: int
    """Elements from one row (column) to the next."""


@cost("aten::mm")
def mm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """`self` times `mat2`."""
    return product_of(op, gpu, op.tensor("self"), op.tensor("mat2"), op.results[0])


@cost("aten::addmm", "aten::addmm_")
def addmm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """`beta · self + alpha · mat1 · mat2`."""
    return _addmm(op, gpu, Epilogue.BIAS)


@cost("aten::_addmm_activation")
def addmm_activation(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The same through GELU or ReLU: in the epilogue, or by a kernel of its own where the bias is no vector."""
    gelu = op.arg("use_gelu") is True
    if _fuses_bias(op):
        return _addmm(op, gpu, Epilogue.GELU_BIAS if gelu else Epilogue.RELU_BIAS)
    result = op.results[0]
    activation = (
        inner(op, gpu, "aten::gelu_", result, self=result, approximate="tanh")
        if gelu
        else inner(op, gpu, "aten::relu_", result, self=result)
    )
    return (*_addmm(op, gpu, Epilogue.NONE), *activation)


@cost("aten::bmm")
def bmm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A product for each of a batch, in one launch."""
    return product_of(op, gpu, op.tensor("self"), op.tensor("mat2"), op.results[0])


@cost("aten::baddbmm", "aten::baddbmm_")
def baddbmm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """`beta · self + alpha · batch1 · batch2`; `self` is copied into the result, which the product adds to."""
    return _added(op, gpu, op.tensor("batch1"), op.tensor("batch2"))


@cost("aten::mv")
def mv(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """`self`, a matrix, times a vector."""
    return _times_vector(op, gpu, op.tensor("self"), added=False)


@cost("aten::addmv", "aten::addmv_")
def addmv(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """`beta · self + alpha · mat · vec`."""
    source, result = op.tensor("self"), op.results[0]
    added = op.arg("beta") != 0
    copies: tuple[Kernel, ...] = ()
    if added and result.elements and not _same(source, result):
        copies = inner(op, gpu, "aten::copy_", result, self=result, src=_expanded(source, result.shape))
    return (*copies, *_times_vector(op, gpu, op.tensor("mat"), added=added))


@cost("aten::dot", "aten::vdot")
def dot(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Blocks multiply and add up 128 elements each; one block adds their sums."""
    first = op.tensor("self")
    count, result = first.elements, op.results[0]
    if count == 0:
        return zeros(op, gpu, result)
    others = [tensor for tensor in op.inputs if tensor is not first]
    sums = ceil_div(count, DOT_ELEMENTS)
    size = 4 if result.itemsize <= 4 else result.itemsize
    if generation(gpu) is None:
        return (_neutral_dot(op, first, [first, *others], count),)
    recorded = size == 4
    return (
        modelled(
            pytorch(
                "dot_kernel",
                Kind.MATMUL,
                sums,
                DOT_ELEMENTS,
                read=least_bytes([first, *others]),
                written=sums * size,
                flops=2 * count - sums,
                math=vector_math(first.dtype),
                registers=28 if recorded else None,
                shared=512 if recorded else None,
                library="cuBLAS",
            )
        ),
        modelled(
            pytorch(
                "reduce_1Block_kernel",
                Kind.MATMUL,
                1,
                DOT_ELEMENTS,
                read=sums * size,
                written=result.bytes,
                flops=sums - 1,
                math=vector_math(first.dtype),
                registers=24 if recorded else None,
                shared=768 if recorded else None,
                library="cuBLAS",
            )
        ),
    )


def _neutral_dot(op: Op, first: TensorRef, read: list[TensorRef], count: int) -> Kernel:
    """A dot product by a library whose kernels are not modelled."""
    return modelled(
        pytorch(
            "dot",
            Kind.MATMUL,
            ceil_div(count, DOT_ELEMENTS),
            DOT_ELEMENTS,
            read=least_bytes(read),
            written=op.results[0].bytes,
            flops=2 * count - 1,
            math=vector_math(first.dtype),
            library="hipBLAS",
        )
    )


@cost("aten::_scaled_mm")
def scaled_mm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A product of 8-bit floats, whose scales (and bias) the kernel applies."""
    extras = [tensor for name in ("scale_a", "scale_b", "bias", "scale_result") for tensor in op.tensors(name)]
    epilogue = Epilogue.BIAS if op.tensors("bias") else Epilogue.NONE
    return product_of(
        op, gpu, op.tensor("self"), op.tensor("mat2"), op.results[0], extras=tuple(extras), epilogue=epilogue
    )


@cost("aten::_int_mm")
def int_mm(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """A product of 8-bit whole numbers into 32-bit ones."""
    return product_of(op, gpu, op.tensor("self"), op.tensor("mat2"), op.results[0])


@cost("aten::linear")
def linear(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """mm or addmm over all leading dimensions, for whoever sees a linear layer before autograd takes it apart."""
    source, weight, result = op.tensor("input"), op.tensor("weight"), op.results[0]
    source, copies = _as_matrix(op, gpu, source)
    bias = op.tensors("bias")
    written = viewed(result, (source.shape[0], weight.shape[0]))
    turned = transposed(weight)
    if bias:
        main = inner(op, gpu, "aten::addmm", written, self=bias[0], mat1=source, mat2=turned, beta=1, alpha=1)
    else:
        main = inner(op, gpu, "aten::mm", written, self=source, mat2=turned)
    return (*copies, *main)


@cost("aten::linear_backward")
def linear_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """The gradients that `output_mask` asks for: of input and weight a product each, of the bias a sum."""
    source, copies = _as_matrix(op, gpu, op.tensor("self"))
    grad, more = _as_matrix(op, gpu, op.tensor("grad_output"))
    weight = op.tensor("weight")
    kernels = [*copies, *more]
    to_input, to_weight, to_bias = op.outputs
    if to_input is not None:
        kernels += inner(op, gpu, "aten::mm", viewed(to_input, source.shape), self=grad, mat2=weight)
    if to_weight is not None:
        kernels += inner(op, gpu, "aten::mm", to_weight, self=transposed(grad), mat2=source)
    if to_bias is not None:
        kernels += inner(
            op, gpu, "aten::sum", to_bias, overload="dim_IntList", self=grad, dim=(0,), keepdim=False, dtype=None
        )
    return tuple(kernels)


def product_of(
    op: Op,
    gpu: Gpu,
    first: TensorRef,
    second: TensorRef,
    result: TensorRef,
    *,
    extras: tuple[TensorRef, ...] = (),
    epilogue: Epilogue = Epilogue.NONE,
) -> tuple[Kernel, ...]:
    """The kernels of a product of matrices, or of batches of them. `extras`: what it reads besides, such as a bias."""
    if result.elements == 0:
        return ()
    if first.shape[-1] == 0:
        return zeros(op, gpu, result)
    if not _row_major(result):
        # A result that lies column by column is the transposed product.
        first, second, result = transposed(second), transposed(first), transposed(result)
    left, left_copy = _factor(op, gpu, first, 1)
    right, right_copy = _factor(op, gpu, second, 2)
    rows, inner_size, columns = first.shape[-2], first.shape[-1], second.shape[-1]
    product = Product(
        rows=rows,
        columns=columns,
        inner=inner_size,
        batch=first.shape[0] if len(first.shape) == 3 else 1,
        layout=left.order + right.order,
        dtype=first.dtype,
        math=matrix_math(first.dtype, gpu, tf32=op.tf32),
        alignment=_alignment(left, right, result, columns),
        epilogue=epilogue,
    )
    main = launches(
        product,
        gpu,
        read=least_bytes([left.tensor, right.tensor, *extras]),
        written=result.bytes,
    )
    return (*left_copy, *right_copy, *main)


def transposed(tensor: TensorRef) -> TensorRef:
    """The view with the last two dimensions swapped."""
    *batch, rows, columns = tensor.shape
    *steps, row, column = tensor.strides
    return replace(tensor, shape=(*batch, columns, rows), strides=(*steps, column, row))


def _addmm(op: Op, gpu: Gpu, epilogue: Epilogue) -> tuple[Kernel, ...]:
    first, second, result = op.tensor("mat1"), op.tensor("mat2"), op.results[0]
    if not _fuses_bias(op):
        return _added(op, gpu, first, second)
    if first.shape[-1] == 0:
        return _only_added(op, gpu)
    return product_of(op, gpu, first, second, result, extras=(op.tensor("self"),), epilogue=epilogue)


def _fuses_bias(op: Op) -> bool:
    """Whether cublasLt adds the bias (isInputCompliesAddmmCudaLt): a contiguous vector, as it is."""
    bias, second, result = op.tensor("self"), op.tensor("mat2"), op.results[0]
    vector = len(bias.shape) >= 1 and bias.elements == bias.shape[-1] == second.shape[-1]
    return (
        op.arg("beta") == 1
        and result.contiguous
        and bias.contiguous
        and vector
        and bias.dtype in BIAS_DTYPES
        and second.shape[0] > 1
        and second.shape[1] > 1
        and not _same(bias, result)
    )


def _added(op: Op, gpu: Gpu, first: TensorRef, second: TensorRef) -> tuple[Kernel, ...]:
    """`self` goes into the result, which the product reads and adds to."""
    result = op.results[0]
    if result.elements == 0:
        return ()
    if first.shape[-1] == 0:
        return _only_added(op, gpu)
    if op.arg("beta") == 0:
        return product_of(op, gpu, first, second, result)
    return (*_into_result(op, gpu), *product_of(op, gpu, first, second, result, extras=(result,)))


def _into_result(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    source, result = op.tensor("self"), op.results[0]
    if _same(source, result):
        return ()
    return inner(op, gpu, "aten::copy_", result, self=result, src=_expanded(source, result.shape), non_blocking=False)


def _only_added(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """With nothing to multiply, `beta · self` is left."""
    source, result, beta = op.tensor("self"), op.results[0], op.arg("beta")
    if result.elements == 0:
        return ()
    if beta == 0:
        return zeros(op, gpu, result)
    scaled = inner(op, gpu, "aten::mul", result, overload="Scalar", self=_expanded(source, result.shape), other=beta)
    # baddbmm has copied it by then; addmm multiplies on the way.
    return (*(_into_result(op, gpu) if op.name.startswith("aten::baddbmm") else ()), *scaled)


def _times_vector(op: Op, gpu: Gpu, matrix: TensorRef, *, added: bool) -> tuple[Kernel, ...]:
    vector, result = op.tensor("vec"), op.results[0]
    if result.elements == 0:
        return ()
    if vector.elements == 0:
        return zeros(op, gpu, result) if not added else ()
    # The vector is a single row, the matrix stands transposed on its right.
    row = viewed(vector, (1, vector.elements), (vector.elements, vector.strides[0]))
    out = viewed(result, (1, result.elements))
    extras = (result,) if added else ()
    return product_of(op, gpu, row, transposed(matrix), out, extras=extras)


def _factor(op: Op, gpu: Gpu, tensor: TensorRef, number: int) -> tuple[Factor, tuple[Kernel, ...]]:
    """As it lies where rows or columns are contiguous, otherwise as a row-major copy (prepare_matrix_for_cublas)."""
    rows, columns = tensor.shape[-2:]
    row, column = tensor.strides[-2:]
    if len(tensor.shape) == 2 and tensor.contiguous:
        return Factor(tensor=tensor, order="r", leading=row if rows > 1 else columns), ()
    if column == 1 and row >= max(1, columns):
        return Factor(tensor=tensor, order="r", leading=row if rows > 1 else columns), ()
    if row == 1 and column >= max(1, rows):
        return Factor(tensor=tensor, order="c", leading=column if columns > 1 else rows), ()
    copy = temporary(tensor.shape, tensor.dtype, tensor.device, number)
    kernels = inner(op, gpu, "aten::clone", copy, self=tensor, memory_format="contiguous_format")
    return Factor(tensor=copy, order="r", leading=columns), kernels


def _alignment(left: Factor, right: Factor, result: TensorRef, columns: int) -> int:
    """Bytes that every row or column of factors and result starts at a multiple of."""
    leading = result.strides[-2] if result.shape[-2] > 1 else columns
    starts = [leading * result.itemsize, result.offset * result.itemsize]
    for factor in (left, right):
        tensor = factor.tensor
        starts += [factor.leading * tensor.itemsize, tensor.offset * tensor.itemsize]
        if len(tensor.shape) == 3:
            starts.append(tensor.strides[0] * tensor.itemsize)
    return gcd(MOST_ALIGNMENT, *starts)


def _row_major(result: TensorRef) -> bool:
    return result.contiguous or result.strides[-1] == 1


def _as_matrix(op: Op, gpu: Gpu, tensor: TensorRef) -> tuple[TensorRef, tuple[Kernel, ...]]:
    """All leading dimensions as rows; a copy where they are no view."""
    width = tensor.shape[-1]
    shape = (tensor.elements // width if width else 0, width)
    if len(tensor.shape) == 2:
        return tensor, ()
    if tensor.contiguous:
        return viewed(tensor, shape), ()
    copy = temporary(shape, tensor.dtype, tensor.device, 3)
    return copy, inner(
        op, gpu, "aten::clone", viewed(copy, tensor.shape), self=tensor, memory_format="contiguous_format"
    )


def _expanded(tensor: TensorRef, shape: tuple[int, ...]) -> TensorRef:
    missing = len(shape) - len(tensor.shape)
    steps = (0,) * missing + tuple(
        0 if size == 1 else step for size, step in zip(tensor.shape, tensor.strides, strict=True)
    )
    return replace(tensor, shape=shape, strides=steps)


def _same(source: TensorRef, result: TensorRef) -> bool:
    return source.storage == result.storage and source.offset == result.offset
