"""torch.compile at work below the recorder: Dynamo follows the script's frames as ever, on tensors that are fake.

It gives compiled code up where a dispatch mode is about, and looks at every Python function below a compiled call: ours
are none of the script's (`unseen`), and those of torch's that we replaced are its own again while it traces.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import Optimizer
from torch.utils import _python_dispatch

from undertorch.steps.record.patching import as_ever, put, undone_by

FOLLOWED: tuple[tuple[Any, str], ...] = (
    (nn.Module, "_call_impl"),
    (nn.Module, "_apply"),
    (nn.Parameter, "__new__"),
    (torch.autograd.graph, "_engine_run_backward"),
    (torch.autograd, "_engine_run_backward"),
    (torch.autograd.graph.saved_tensors_hooks, "__init__"),
    (Optimizer, "__init__"),
    *((FakeTensor, name) for name in ("__repr__", "__format__", "__array__", "tolist", "numpy", "data_ptr", "data")),
)
"""What the recorder put in the place of torch's own, and what a graph must not hold."""

OURS = "undertorch.steps"
"""Package whose functions are no part of a graph."""


def put_in_place(
    watched: AbstractContextManager[object],
    choose_attention: Callable[..., int],
    failed: Callable[[BaseException], None],
) -> None:
    """Has Dynamo compile in this process. `watched`: under it the script's ops are recorded. `failed` is told of what
    Dynamo could not compile, which runs in eager then.

    Call once, before anything is compiled.
    """
    from torch._dynamo import config, convert_frame, exc, trace_rules

    trace_rules.add(OURS)
    # The recorder's mode is no reason to leave code uncompiled.
    for name in ("is_in_any_mode_without_ignore_compile_internals", "any_torch_dispatch_mode_on_stack"):
        put(convert_frame, name, lambda: False)
    put(config, "suppress_errors", True)
    logging.getLogger(convert_frame.__name__).addFilter(_of_no_failure)
    compile_frame = convert_frame._compile

    def compiled(*given: Any, **named: Any) -> Any:
        try:
            with as_torch_has_it():
                return compile_frame(*given, **named)
        except (exc.BackendCompilerFailed, exc.InternalTorchDynamoError) as error:
            failed(error)
            raise

    put(convert_frame, "_compile", compiled)
    _let_optimizers_begin(watched)
    # Tracing on fake tensors of its own, torch must not ask for a device, either, nor which attention one would take.
    put(FakeTensorMode, "avoid_device_init", property(lambda mode: True))
    choice = torch.ops.aten._fused_sdp_choice.default
    table = fake_impls.op_implementations_dict
    table[choice] = lambda mode, func, *given, **named: choose_attention(*given, **named)
    undone_by(lambda: table.pop(choice, None))


def _let_optimizers_begin(watched: AbstractContextManager[object]) -> None:
    """While it traces an optimizer, Dynamo has it make its state, which is the script's."""
    from torch._dynamo.variables import optimizer as variables

    call: Any = variables.OptimizerVariable.call_method

    def called(variable: Any, tx: Any, name: str, *given: Any, **named: Any) -> Any:
        if name != "_init_group":
            return call(variable, tx, name, *given, **named)
        optimizer = variable.value
        begin = optimizer._init_group

        def begun(*given: Any, **named: Any) -> Any:
            with watched:
                return begin(*given, **named)

        optimizer.__dict__[name] = begun
        try:
            return call(variable, tx, name, *given, **named)
        finally:
            del optimizer.__dict__[name]

    put(variables.OptimizerVariable, "call_method", called)
    # Asks CUDA's allocator, which a CPU build lacks; no graph owns a tensor here.
    put(variables, "_is_static_for_cudagraphs", lambda tensor: False)


@contextmanager
def as_torch_has_it() -> Iterator[None]:
    """While it lasts, nobody watches: what runs is torch's own work, on no GPU."""
    with as_ever(FOLLOWED), _python_dispatch._disable_current_modes():
        yield


def _of_no_failure(record: logging.LogRecord) -> bool:
    """What could not be compiled is told as an assumption, not as a log."""
    return record.exc_info is None or sys.exc_info()[0] is None
