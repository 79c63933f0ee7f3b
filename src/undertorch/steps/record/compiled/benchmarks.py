"""What Inductor measures on the GPU while it compiles: a product with and without rows filled up to whole 16 bytes.

Here both are predicted, as a step's ops are: their kernels from the costs, their times for the GPU that is named.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from undertorch.records import Argument, Gpu, Math, Op, Phase, TensorRef
from undertorch.steps.predict.prediction import time_us
from undertorch.steps.record.fakes import Fakes
from undertorch.steps.record.patching import put
from undertorch.steps.record.precision import tf32
from undertorch.steps.record.refs import Refs

PEAKS = {torch.float16: Math.TENSOR_FP16, torch.bfloat16: Math.TENSOR_BF16}


class Benchmarks(TorchDispatchMode):
    """Runs ops on fake tensors, and sums up their times."""

    def __init__(self, gpu: Gpu, fakes: Fakes, refs: Refs) -> None:
        enter: Any = super().__init__
        enter()
        self._gpu = gpu
        self._fakes = fakes
        self._refs = refs
        self._us = 0.0

    def put_in_place(self) -> None:
        """Has Inductor ask here. Call once."""
        from torch._dynamo.repro import after_aot
        from torch._inductor import utils
        from torch._inductor.fx_passes import pad_mm
        from torch.utils import _triton

        put(pad_mm, "no_dispatch", lambda: self)
        put(pad_mm, "get_do_bench", lambda: self.run_us)
        put(utils, "get_device_tflops", self._tflops)
        put(utils, "get_gpu_dram_gbps", lambda: self._gpu.memory_bandwidth / 1e9)
        # Both run a compiler to ask for its version.
        put(_triton, "triton_hash_with_backend", lambda: self._gpu.name)
        put(after_aot, "_cuda_system_info_comment", lambda: "")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for each op."""
        named = kwargs or {}
        arguments = self._refs.arguments(func._schema, args, named)
        result = self._fakes.run(func, types, args, named)
        made = result if isinstance(result, list | tuple) else (result,)
        outputs = tuple(self._refs.tensor(one) for one in made if isinstance(one, torch.Tensor))
        self._us += self.op_us(func._schema.name, arguments, func._overloadname, outputs)
        return result

    def op_us(
        self, name: str, arguments: tuple[Argument, ...], overload: str = "", outputs: tuple[TensorRef, ...] = ()
    ) -> float:
        """What an op of that name takes."""
        op = Op(
            id=0,
            name=name,
            overload=overload,
            torch=str(torch.__version__),
            where=None,
            phase=Phase.OTHER,
            arguments=arguments,
            outputs=outputs,
            tf32=tf32(name),
        )
        return time_us(op, self._gpu)

    def run_us(self, run: Callable[[], Any]) -> float:
        """What a function's ops take together."""
        before = self._us
        run()
        return self._us - before

    def _tflops(self, dtype: torch.dtype) -> float:
        plain = Math.TENSOR_TF32 if torch.backends.cuda.matmul.allow_tf32 else Math.FP32
        peaks = self._gpu.peaks
        return peaks.get(PEAKS.get(dtype, plain), peaks[Math.FP32]) / 1e12
