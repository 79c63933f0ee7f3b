"""What `with undertorch.machine(…)` puts in place of torch's and Triton's, at once or as soon as they are imported."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from undertorch.simt.frontends.imports import after_import
from undertorch.simt.frontends.kernels import CURRENT, Setting, capability

Undo = Callable[[], object]


@contextmanager
def machine(setting: Setting) -> Iterator[Setting]:
    """Launches inside run with this setting, Triton's too, and torch answers as if the setting's GPU were there."""
    token = CURRENT.set(setting)
    undo: list[Undo] = []
    try:
        for name in ("torch", "triton"):
            undo.append(after_import(name, lambda name=name: undo.extend(_put_in_place(name, setting))))  # type: ignore[misc]
        yield setting
    finally:
        while undo:
            undo.pop()()
        CURRENT.reset(token)


def _put_in_place(name: str, setting: Setting) -> Iterator[Undo]:
    if name == "torch":
        from undertorch.simt.frontends import torch_compile, torch_cuda

        yield torch_cuda.put_in_place(setting.gpu, capability(setting.gpu))
        yield torch_compile.put_in_place(capability(setting.gpu))
    else:
        from undertorch.simt.frontends.triton import driver

        yield driver.put_in_place(setting)
