"""Inductor without a GPU: it writes the code for the GPU that is named, compiles no kernel of it and measures none.

Its code runs as it stands, on fake tensors: its own kernels announce their launches, those of libraries are ATen's ops.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from undertorch.steps.record.compiled import moved
from undertorch.steps.record.compiled.dynamo import as_torch_has_it
from undertorch.steps.record.cuda import Device
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.patching import put

aten = torch.ops.aten

SETTINGS = {
    "compile_threads": 1,
    "fx_graph_cache": False,
    "trace.provenance_tracking_level": 2,
}
"""Of torch._inductor.config. In other processes nothing would stand in for the GPU; the code of a run that has one is
not this one's; and of each call the lines are kept that it came from."""

UNMEASURED = {
    "max_autotune": False,
    "max_autotune_gemm": False,
    "max_autotune_pointwise": False,
    "coordinate_descent_tuning": False,
    "benchmark_fusion": False,
    "benchmark_combo_kernel": False,
    "cpp_wrapper": False,
    "triton.cudagraphs": False,
    **SETTINGS,
}
"""What a script may ask for that measures kernels on the GPU, has it hold them, or sets otherwise in between."""

ANSWERS = (
    *("current_device", "set_device", "device_count", "stream", "current_stream", "set_stream", "synchronize"),
    *("get_device_properties", "memory_allocated", "is_bf16_supported"),
)
"""Functions of torch.cuda that Dynamo's interface to the device took up before they were replaced."""

Make = Callable[[str, Any, str], Any]
"""Makes what stands for a Triton kernel, of its name, its tuner (with its configurations and what Inductor says of it)
and its source."""


VIEWS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)


class OnTheCpu(Exception):
    """Raised by what would compile a kernel for the CPU, which would write where no memory is."""


class OnTheHost(TorchDispatchMode):
    """Makes in host memory what a graph makes on the GPU: constants, which Inductor folds by computing them."""

    def __init__(self) -> None:
        enter: Any = super().__init__
        enter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for each op."""
        named = {name: _on_the_host(value) for name, value in (kwargs or {}).items()}
        return func(*map(_on_the_host, args), **named)


def _on_the_host(value: Any) -> Any:
    """A device among an op's arguments, given by name or in its place, as that of host memory."""
    return torch.device("cpu") if isinstance(value, torch.device) else value


def put_in_place(folder: Path, fakes: Fakes, make: Make) -> None:
    """Has Inductor write code for the GPU that torch.cuda answers for. `folder`: where it may put its files. Call once,
    before anything is compiled.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    from torch._dynamo.device_interface import CudaInterface
    from torch._functorch import config as functorch
    from torch._inductor import async_compile, config, constant_folding
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.runtime import triton_helpers

    for name, value in SETTINGS.items():
        setattr(config, name, value)
    functorch.enable_autograd_cache = False
    for name in ANSWERS:
        put(CudaInterface, name, staticmethod(getattr(torch.cuda, name)))
    put(CudaInterface, "get_raw_stream", staticmethod(_stream))
    put(torch._C, "_cuda_getCurrentRawStream", _stream)
    put(torch.cuda, "_DeviceGuard", Device)
    put(triton_helpers, "set_driver_to_gpu", lambda: None)  # undertorch's is Triton's driver already
    moved.follow()
    fold = constant_folding.ConstantFolder.run

    def folded(folder: Any) -> Any:
        with OnTheHost():
            return fold(folder)

    put(constant_folding.ConstantFolder, "run", folded)

    def triton(compiler: Any, name: str, source: str, device_str: str = "cuda") -> Any:
        return make(name, getattr(PyCodeCache.load(source), name), source)

    put(async_compile.AsyncCompile, "triton", triton)
    for name in ("cpp", "cpp_pybinding", "halide"):
        put(async_compile.AsyncCompile, name, _refused)
    _allocate(fakes)


def follow_graphs(compiled: Callable[[Any], None], failed: Callable[[BaseException], None]) -> None:
    """`compiled` is told of each graph that Inductor wrote code for; `failed` of why it wrote none: that graph's ops
    run as they stand then. Call once.
    """
    from torch._dynamo.exc import SkipFrame
    from torch._inductor import compile_fx, config
    from torch._inductor.utils import BoxedBool

    whole, one = compile_fx.compile_fx, compile_fx.compile_fx_inner

    def inner(graph: torch.fx.GraphModule, inputs: Sequence[Any], **named: Any) -> Any:
        if not _on_the_gpu(graph):
            return _boxed(graph)
        if "cudagraphs" in named:
            named["cudagraphs"] = BoxedBool(False)
        try:
            with as_torch_has_it(), config.patch(UNMEASURED):
                made = one(graph, inputs, **named)
        except Exception as error:
            failed(error)
            reason = getattr(error, "inner_exception", error)
            if isinstance(reason, SkipFrame):  # on such a GPU, too
                raise reason from None
            return _boxed(graph)
        compiled(made)
        return made

    def every(model: Any, inputs: Sequence[Any], inner_compile: Any = inner, **named: Any) -> Any:
        # Asked for, a wrapper in C++ would be built before a graph comes to `inner`.
        with config.patch(cpp_wrapper=False):
            return whole(model, inputs, inner_compile=inner_compile, **named)

    put(compile_fx, "compile_fx", every)


def _on_the_gpu(graph: torch.fx.GraphModule) -> bool:
    """Whether a tensor of a graph lies on the GPU."""
    values = (node.meta.get("val") for node in graph.graph.nodes)
    return any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in values)


def _boxed(graph: torch.fx.GraphModule) -> Any:
    """A graph's own ops, called as compiled code is: with a list that is emptied."""

    def run(arguments: list[Any]) -> Any:
        given = list(arguments)
        arguments.clear()
        return graph(*given)

    run.__dict__["_boxed_call"] = True
    return run


def _allocate(fakes: Fakes) -> None:
    """What the code calls past ATen to get memory, and to look at it otherwise. Neither is an op."""
    home = torch._C._dynamo.guards

    def empty(device: str) -> Callable[..., Any]:
        def made(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Any:
            named = {"dtype": dtype, "device": torch.device(device)}
            return fakes.run(aten.empty_strided.default, (), (list(size), list(stride)), named)

        return made

    def seen_as(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> Any:
        given = (tensor, list(size), list(stride), tensor.storage_offset() + offset)
        with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(VIEWS):  # as a mode is called
            return fakes.run(aten.as_strided.default, (type(tensor),), given, {})

    put(home, "_empty_strided_cuda", empty("cuda"))
    put(home, "_reinterpret_tensor", seen_as)


def _stream(device: int) -> int:
    return 0


def _refused(*given: Any, **named: Any) -> Any:
    raise OnTheCpu("a part of it runs on the CPU")
