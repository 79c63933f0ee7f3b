"""Triton kernels of the script's own (or of a library it uses): compiled as for the GPU, and recorded as launches."""

from typing import TYPE_CHECKING, Any

import torch

from undertorch.records import Argument, Gpu, Value
from undertorch.steps.record.facts import Facts
from undertorch.steps.record.importing import after_import
from undertorch.steps.record.notes import Notes
from undertorch.steps.record.patching import undone_by
from undertorch.steps.record.recorder import Recorder
from undertorch.steps.record.refs import Refs

if TYPE_CHECKING:
    from undertorch.compilers.triton_driver import TritonLaunch

UNKNOWN = (
    "the Triton kernel {name} is compiled for its grid, block, registers and shared memory; which bytes it moves is"
    " not known, and its time is predicted as if it touched each of its tensors once."
)
CHOSEN = "of {choices} configurations of the Triton kernel {name} the first that fits was taken: none can be measured."


def install(gpu: Gpu, recorder: Recorder, facts: Facts, refs: Refs, notes: Notes) -> None:
    """Puts a driver for the GPU in the place of Triton's, as soon as the script imports Triton."""

    def launched(launch: "TritonLaunch") -> None:
        notes.note(UNKNOWN.format(name=launch.name))
        tensors = [tensor for value in launch.arguments.values() if (tensor := _tensor(value)) is not None]
        recorder.launched(f"triton::{launch.name}", tensors, _arguments(launch, refs))
        for tensor in tensors:
            facts.forget(tensor)

    def chosen(name: str, choices: int) -> None:
        notes.note(CHOSEN.format(name=name, choices=choices))

    def replace(_: Any) -> None:
        from undertorch.compilers.triton_driver import Driver, put_in_place

        undone_by(put_in_place(Driver(gpu, launched, chosen)))

    after_import("triton", replace)


def _tensor(value: Any) -> torch.Tensor | None:
    """A tensor argument; of a tensor descriptor the tensor that it describes."""
    found = getattr(value, "base", value) if type(value).__name__ == "TensorDescriptor" else value
    return found if isinstance(found, torch.Tensor) else None


def _arguments(launch: "TritonLaunch", refs: Refs) -> tuple[Argument, ...]:
    """The launch's own under names that no parameter has, then the kernel's parameters."""
    own: dict[str, Value] = {
        "<grid>": launch.grid,
        "<block>": launch.block,
        "<registers>": launch.registers,
        "<shared_bytes>": launch.shared_bytes,
    }
    given = {
        name: refs.value(value if (tensor := _tensor(value)) is None else tensor)
        for name, value in launch.arguments.items()
    }
    return tuple(Argument(name=name, value=value) for name, value in (own | given).items())
