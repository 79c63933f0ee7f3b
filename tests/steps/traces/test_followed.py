"""One kernel of each recorded trace, followed by reading the raw JSON: to its launch, its call, its forward call.

Found by eye: the kernel and its launch share a correlation; the launch lies within the call on its thread; the call
within the node; the forward call has the node's sequence number and the same tensors.
"""

from dataclasses import dataclass
from functools import cache

import pytest

from steps.traces.by_hand import path
from undertorch.steps.traces.joining import NODE, Joined, join, node_of
from undertorch.steps.traces.nesting import nest
from undertorch.steps.traces.reading import read
from undertorch.steps.traces.starts import ROUND_US


@dataclass(frozen=True, kw_only=True)
class Followed:
    trace: str
    correlation: int
    kernel: str
    """Is in its name."""
    launch: str
    call: str
    node: str | None = None
    forward: str | None = None
    starts: float | None = None
    """Of the forward call."""


FOLLOWED = (
    Followed(
        trace="h200_gpt2_train",
        correlation=5199,
        kernel="cunn_SoftMaxBackward",
        launch="cudaLaunchKernel",
        call="aten::_log_softmax_backward_data",
        node="LogSoftmaxBackward0",
        forward="aten::_log_softmax",
        starts=5149111395432.583,
    ),
    Followed(
        trace="b200_eager_inference",
        correlation=328,
        kernel="multimem_all_reduce_kernel",
        launch="cudaLaunchKernel",
        call="symm_mem::multimem_all_reduce_",
    ),
    Followed(  # the kernel names the call within, _flash_attention_forward: the one that is dispatched is around it
        trace="h100_qwen_inference",
        correlation=692104,
        kernel="flash_fwd_kernel",
        launch="cudaLaunchKernel",
        call="aten::_scaled_dot_product_flash_attention",
    ),
    Followed(  # the gradient of the bias: a sum over the 5 rows
        trace="mi250_toy_train",
        correlation=133,
        kernel="sum_functor",
        launch="hipLaunchKernel",
        call="aten::sum",
        node="AddmmBackward0",
        forward="aten::addmm",
        starts=4203669603688.628,
    ),
    Followed(
        trace="mi300_resnet_checkpoint_train",
        correlation=8197,
        kernel="batch_norm_backward_kernel",
        launch="hipLaunchKernel",
        call="aten::native_batch_norm_backward",
        node="NativeBatchNormBackward0",
        forward="aten::native_batch_norm",
        starts=3743411256942.57,
    ),
    Followed(
        trace="normalization_layers",
        correlation=157,
        kernel="layer_norm_grad_input_kernel",
        launch="hipLaunchKernel",
        call="aten::native_layer_norm_backward",
        node="NativeLayerNormBackward0",
        forward="aten::native_layer_norm",
        starts=3545057581304.876,
    ),
    Followed(
        trace="v100_resnet_train",
        correlation=179475,
        kernel="max_pool_backward_nchw",
        launch="cudaLaunchKernel",
        call="aten::max_pool2d_with_indices_backward",
        node="MaxPool2DWithIndicesBackward0",
        forward="aten::max_pool2d_with_indices",
        starts=1712195495627091.5,
    ),
)


@cache
def joined(name: str) -> Joined:
    trace = read(path(name))
    nest(trace.on_cpu)
    return join(trace)


@pytest.mark.parametrize("known", FOLLOWED, ids=lambda known: known.trace)
def test_the_joins_are_those_that_the_raw_events_show(known):
    found = joined(known.trace)
    (kernel,) = [event for event in found.trace.on_gpu if event.correlation == known.correlation]
    assert known.kernel in kernel.name
    assert found.launch_of(kernel).name == known.launch
    call = found.call_of(kernel)
    assert call.name == known.call
    node, forward = node_of(call), found.forward_of(call)
    assert (None if node is None else node.name.removeprefix(NODE)) == known.node
    # Whole rounds are taken off starts that count from 1970.
    assert (None if forward is None else (forward.name, forward.start % ROUND_US)) == (
        None if known.forward is None else (known.forward, known.starts % ROUND_US)
    )
