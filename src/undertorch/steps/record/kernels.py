"""Kernels of the script's own in CUDA C++ or PTX (`undertorch.cuda`, `undertorch.ptx`, and both inside an
`undertorch.torch_op`): compiled as for the GPU, and recorded as launches.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from undertorch.compilers.ptxas import resources
from undertorch.records import Argument, Gpu, Value
from undertorch.steps.record.facts import Facts
from undertorch.steps.record.importing import after_import
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import put
from undertorch.steps.record.recorder import Recorder
from undertorch.steps.record.refs import Refs

UNKNOWN = (
    "the kernel {name} is recorded with its grid and block{compiled}; which bytes it moves is not known, and its time"
    " is predicted as if it touched each of its tensors once."
)
COMPILED = ", and with the registers and shared memory that ptxas finds for it"
NOT_COMPILED = (
    "; its registers and shared memory are not known, since there is no ptxas here that compiles it for this GPU"
)


def install(gpu: Gpu, recorder: Recorder, facts: Facts, refs: Refs, notes: Notes) -> None:
    """Follows the launches of undertorch's own front end, as soon as the script uses it."""

    def replace(module: Any) -> None:
        launch = module.Sized.__call__

        def launched(sized: Any, *arguments: object) -> Any:
            tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
            if any(isinstance(tensor, FakeTensor) and tensor.device.type == "cuda" for tensor in tensors):
                file, name = sized.kernel.file, sized.kernel.name
                grid, block = _three(sized.grid), _three(sized.block)
                parameters = module.parsed(file.text)[0].functions[name].parameters
                used = None if gpu.compute_capability is None else resources(file.text, name, gpu.compute_capability)
                shared = None if used is None else used.static_shared_bytes + sized.dynamic_shared
                refused = _refused(arguments, len(parameters)) or _too_large(gpu, block, shared or sized.dynamic_shared)
                if refused is not None:
                    raise module.BadLaunch(f"{plain(name)}: {refused}")
                own: dict[str, Value] = {
                    "<grid>": grid,
                    "<block>": block,
                    "<registers>": None if used is None else used.registers,
                    "<shared_bytes>": shared,
                    "<dynamic_shared_bytes>": sized.dynamic_shared,
                }
                given = {f"param_{number}": refs.value(value) for number, value in enumerate(arguments)}
                notes.note(UNKNOWN.format(name=plain(name), compiled=COMPILED if used else NOT_COMPILED))
                listed = tuple(Argument(name=key, value=value) for key, value in (own | given).items())
                recorder.launched(f"undertorch::{plain(name)}", tensors, listed)
                for tensor in tensors:
                    facts.forget(tensor)
            return launch(sized, *arguments)

        put(module.Sized, "__call__", launched)

    after_import("undertorch.simt.frontends.kernels", replace)


def plain(name: str) -> str:
    """The C++ name of a kernel in no namespace (Itanium C++ ABI, 5.1: its length, then the name); others as they
    stand in the PTX.
    """
    mangled = re.match(r"_Z(\d+)", name)
    return name if mangled is None else name[mangled.end() : mangled.end() + int(mangled[1])]


def _three(size: int | Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*((size,) if isinstance(size, int) else size), 1, 1)[:3]
    return int(x), int(y), int(z)


def _refused(arguments: Sequence[object], parameters: int) -> str | None:
    """Why a launch on a GPU would not begin, in the words that undertorch has for it there."""
    if len(arguments) != parameters:
        return f"The kernel takes {parameters} arguments, and {len(arguments)} were given."
    for number, value in enumerate(arguments):
        if isinstance(value, torch.Tensor) and value.dim() and value.device.type == "cpu":
            return f"Argument {number} lies in the host's memory, and this launch is on a GPU; move it with .cuda()."
    return None


def _too_large(gpu: Gpu, block: tuple[int, int, int], shared_bytes: int) -> str | None:
    threads = block[0] * block[1] * block[2]
    if threads > gpu.max_threads_per_block:
        return f"it was launched with {threads} threads a block; at most {gpu.max_threads_per_block} are allowed."
    if shared_bytes > gpu.shared_per_block_optin:
        most = gpu.shared_per_block_optin
        return f"it asks for {shared_bytes} bytes of shared memory a block; {gpu.name} has {most}."
    return None
