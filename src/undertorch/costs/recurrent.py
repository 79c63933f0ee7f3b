"""Recurrent layers: cells by PyTorch's own kernels (native/cuda/RNN.cu), whole layers by cuDNN's, which are modelled.

cuDNN's source is closed. Its standard algorithm is taken: of each layer and direction the inputs of all time steps in
one matmul, then for each step a matmul with the recurrent weights and one kernel for the gates; backward the same in
reverse, and the gradients of the weights over all steps at once. Its persistent algorithms, which keep the recurrent
weights on chip, are not modelled. Everything about these launches is predicted, their total FLOPs are not: every
algorithm does these products.

FLOPs a hidden unit of the gates: LSTM 30 forward, 40 backward; GRU 25 and 35; a plain cell 5 and 5.
"""

from dataclasses import dataclass

from undertorch.costs.building import ceil_div, inner, pytorch, temporary, vector_math
from undertorch.costs.registry import cost
from undertorch.costs.units import generation
from undertorch.records import DTYPE_BYTES, Gpu, Kernel, Kind, Op, Origin, TensorRef, Value

CELL_THREADS = 512
"""AT_APPLY_THREADS_PER_BLOCK of ATen/cuda/CUDAApplyUtils.cuh."""

CELL_BLOCKS_AN_SM = 4
"""AT_APPLY_BLOCKS_PER_SM of the same file."""

GATES = {0: 1, 1: 1, 2: 4, 3: 3}
"""By cuDNN's number of the cell (cudnnRNNMode_t): a rectified or a hyperbolic one, LSTM, GRU."""

NAMES = {0: "RNN", 1: "RNN", 2: "LSTM", 3: "GRU"}
FLOPS = {1: (5, 5), 4: (30, 40), 3: (25, 35)}
"""Of a hidden unit, forward and backward, by its gates."""

NOTE = "cuDNN's algorithm is modelled: a matmul of all inputs, then a matmul and the gates a time step."


@cost("aten::_thnn_fused_lstm_cell")
def lstm_cell(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads both products, biases and the cell; writes hidden state, cell, and the gates for the backward."""
    return (_cell(op, gpu, "lstm_cell_forward", op.tensor("cx").elements, FLOPS[4][0]),)


@cost("aten::_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Gradients of the gates and of the cell; those of the biases are sums over the batch."""
    gates = op.results[0]
    kernel = _cell(op, gpu, "lstm_cell_backward", op.tensor("cx").elements, FLOPS[4][1], op.results[:2])
    return (kernel, *_bias_sums(op, gpu, gates, op.results[2:]))


@cost("aten::_thnn_fused_gru_cell")
def gru_cell(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Reads both products, biases and the hidden state; writes the new one, and five values a unit for the backward."""
    return (_cell(op, gpu, "gru_cell_forward", op.tensor("hx").elements, FLOPS[3][0]),)


@cost("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Gradients of both products and of the hidden state; those of the biases are sums over the batch."""
    kernel = _cell(op, gpu, "gru_cell_backward", op.tensor("grad_hy").elements, FLOPS[3][1], op.results[:3])
    sums = [
        launch
        for gates, bias in zip(op.results[:2], op.results[3:], strict=False)
        for launch in _bias_sums(op, gpu, gates, (bias,))
    ]
    return (kernel, *sums)


def _cell(op: Op, gpu: Gpu, name: str, units: int, flops: int, written: tuple[TensorRef, ...] | None = None) -> Kernel:
    results = op.results if written is None else written
    return pytorch(
        name,
        Kind.ELEMENTWISE,
        max(1, min(ceil_div(units, CELL_THREADS), gpu.sms * CELL_BLOCKS_AN_SM)),
        CELL_THREADS,
        read=sum(tensor.bytes for tensor in op.inputs),
        written=sum(tensor.bytes for tensor in results),
        flops=flops * units,
        math=vector_math(results[0].dtype),
        shared=0,
    )


def _bias_sums(op: Op, gpu: Gpu, gates: TensorRef, biases: tuple[TensorRef, ...]) -> tuple[Kernel, ...]:
    """One sum a bias."""
    return tuple(
        kernel
        for bias in biases
        for kernel in inner(
            op, gpu, "aten::sum", bias, overload="dim_IntList", self=gates, dim=(0,), keepdim=False, dtype=None
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer in one direction."""

    inputs: int
    """Features that come in."""
    hidden: int
    """Features of the hidden state, after the projection where there is one."""
    cells: int
    """Units that have gates."""
    projected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A call of cuDNN's recurrent layers."""

    steps: tuple[int, ...]
    """Sequences that are still running, a time step."""
    gates: int
    name: str
    layers: tuple[Layer, ...]
    dtype: str
    device: str

    @property
    def rows(self) -> int:
        """Of all time steps together."""
        return sum(self.steps)


@cost("aten::_cudnn_rnn")
def cudnn_rnn(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Layer after layer: all inputs at once, then step after step."""
    stack = _stack(op)
    launches: list[Kernel] = []
    for layer in stack.layers:
        gates = stack.gates * layer.cells
        launches += _product(op, gpu, stack, stack.rows, layer.inputs, gates)
        for batch in stack.steps:
            launches += _product(op, gpu, stack, batch, layer.hidden, gates)
            launches.append(_pointwise(stack, layer, batch, backward=False, gpu=gpu))
            if layer.projected:
                launches += _product(op, gpu, stack, batch, layer.cells, layer.hidden)
    return tuple(launches)


@cost("aten::_cudnn_rnn_backward")
def cudnn_rnn_backward(op: Op, gpu: Gpu) -> tuple[Kernel, ...]:
    """Step after step back, then the gradients of the inputs and of the weights over all steps."""
    stack = _stack(op)
    launches: list[Kernel] = []
    for layer in reversed(stack.layers):
        gates = stack.gates * layer.cells
        for batch in reversed(stack.steps):
            if layer.projected:
                launches += _product(op, gpu, stack, batch, layer.hidden, layer.cells)
            launches.append(_pointwise(stack, layer, batch, backward=True, gpu=gpu))
            launches += _product(op, gpu, stack, batch, gates, layer.hidden)
        launches += _product(op, gpu, stack, stack.rows, gates, layer.inputs)
        launches += _product(op, gpu, stack, gates, stack.rows, layer.inputs)
        launches += _product(op, gpu, stack, gates, stack.rows, layer.hidden)
        if layer.projected:
            launches += _product(op, gpu, stack, layer.hidden, stack.rows, layer.cells)
    return tuple(launches)


def _stack(op: Op) -> Stack:
    source = op.tensor("input")
    mode, hidden, projection = (_number(op.arg(name)) for name in ("mode", "hidden_size", "proj_size"))
    directions = 2 if op.arg("bidirectional") else 1
    lengths = op.arg("batch_sizes")
    if isinstance(lengths, tuple) and lengths:
        steps = tuple(_number(length) if not isinstance(length, TensorRef) else 0 for length in lengths)
    else:
        time, batch = (source.shape[1], source.shape[0]) if op.arg("batch_first") else source.shape[:2]
        steps = (batch,) * time
    out = projection or hidden
    layers = tuple(
        Layer(
            inputs=source.shape[-1] if number == 0 else out * directions,
            hidden=out,
            cells=hidden,
            projected=bool(projection),
        )
        for number in range(_number(op.arg("num_layers")))
        for _ in range(directions)
    )
    return Stack(
        steps=steps, gates=GATES[mode], name=NAMES[mode], layers=layers, dtype=source.dtype, device=source.device
    )


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _product(op: Op, gpu: Gpu, stack: Stack, rows: int, inner_size: int, columns: int) -> tuple[Kernel, ...]:
    left = temporary((rows, inner_size), stack.dtype, stack.device, 1)
    right = temporary((inner_size, columns), stack.dtype, stack.device, 2)
    result = temporary((rows, columns), stack.dtype, stack.device, 3)
    return inner(op, gpu, "aten::mm", result, self=left, mat2=right)


def _pointwise(stack: Stack, layer: Layer, batch: int, *, backward: bool, gpu: Gpu) -> Kernel:
    """Gates of one time step. It reads the products of input and state, the cell; writes state, cell, and the gates."""
    units = batch * layer.cells
    item = DTYPE_BYTES[stack.dtype]
    return Kernel(
        name=f"{stack.name}_elementWise_{'bp' if backward else 'fp'}",
        kind=Kind.ELEMENTWISE,
        library="MIOpen" if generation(gpu) is None else "cuDNN",
        grid=(max(1, ceil_div(units, CELL_THREADS)), 1, 1),
        block=(CELL_THREADS, 1, 1),
        geometry_origin=Origin.PREDICTED,
        min_bytes_read=(2 * stack.gates + 1) * units * item,
        min_bytes_written=(stack.gates + 2) * units * item,
        flops=FLOPS[stack.gates][backward] * units,
        bytes_origin=Origin.PREDICTED,
        math=vector_math(stack.dtype),
        note=NOTE,
    )
