"""Imports: torch after the guard's hooks, without the remark that a CUDA build makes about them; and what is to be told
of a package that the script imports, or imports later.
"""

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from undertorch.steps.record.patching import put, undone_by

REMARK = b"Higher priority item already registered, skipping registration of CUDAHooks"
"""c10::Registry prints this when torch's own hooks give way to the guard's."""


def import_torch() -> None:
    """Whatever else is written to standard error meanwhile comes through, afterwards."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            import torch  # noqa: F401
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            aside.seek(0)
            for line in aside:
                if REMARK not in line:
                    os.write(2, line)


def after_import(name: str, call: Callable[[ModuleType], None]) -> None:
    """Calls with a package the moment that it was imported; at once where it already is."""
    if name in sys.modules:
        call(sys.modules[name])
        return
    watcher = _Watcher(name, call)
    sys.meta_path.insert(0, watcher)
    undone_by(watcher.leave)


class _Watcher(MetaPathFinder):
    """Lets Python find a package as ever, and hears when it was loaded."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._call = call

    def leave(self) -> None:
        """Watches no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, with a loader that tells."""
        if fullname != self._name:
            return None
        self.leave()
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load, call = spec.loader.exec_module, self._call

            def loaded(module: ModuleType) -> None:
                load(module)
                call(module)

            put(spec.loader, "exec_module", loaded)
        return spec
