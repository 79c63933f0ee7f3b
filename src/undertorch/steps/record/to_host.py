"""What the script asks of the GPU past ATen: that it is done, or what a storage holds. The CPU waits for either."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from undertorch.records import Argument, TensorRef, Value
from undertorch.steps.record.recorder import Recorder
from undertorch.steps.record.storages import Storages


class ToHost:
    """Records waits, and copies of whole storages to the host."""

    def __init__(self, recorder: Recorder, storages: Storages) -> None:
        self._recorder = recorder
        self._storages = storages
        self._threads = threading.local()

    def waited(self, name: str) -> None:
        """A function of CUDA's was called that returns once the GPU is done. Of an event it would be once the GPU came
        past it; it counts as all that was called before.
        """
        self._recorder.called(name)

    @contextmanager
    def each_storage_once(self) -> Iterator[None]:
        """Copies inside are those of one file, in which a storage stands once."""
        before = self._copied()
        self._threads.copied = set()
        try:
            yield
        finally:
            self._threads.copied = before

    def copied(self, tensor: torch.Tensor) -> None:
        """The storage of a tensor of the GPU is copied to the host, all its bytes, as torch.save and pickle do it."""
        if tensor.device.type != "cuda" or tensor.layout != torch.strided:
            return
        number, copied = self._storages.number(tensor), self._copied()
        if copied is not None and number in copied:
            return
        if copied is not None:
            copied.add(number)
        size = tensor.untyped_storage().nbytes()
        source = _bytes(size, str(tensor.device), number)
        target = _bytes(size, "cpu", self._storages.unseen())
        arguments: dict[str, Value] = {"self": target, "src": source, "non_blocking": False}
        listed = tuple(Argument(name=name, value=value) for name, value in arguments.items())
        self._recorder.called("aten::copy_", [tensor], listed, (target,))

    def _copied(self) -> set[int] | None:
        found: set[int] | None = getattr(self._threads, "copied", None)
        return found


def _bytes(size: int, device: str, storage: int) -> TensorRef:
    return TensorRef(shape=(size,), strides=(1,), dtype="uint8", device=device, storage=storage, offset=0, version=0)
