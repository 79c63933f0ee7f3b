"""Being told that a module was imported."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def after_import(name: str, call: Callable[[], object]) -> Callable[[], None]:
    """Calls as soon as a module is there: at once, or when it has been imported. Answers what ends the watch."""
    if name in sys.modules:
        call()
        return lambda: None
    watcher = _Watcher(name, call)
    sys.meta_path.insert(0, watcher)
    return watcher.leave


class _Watcher(MetaPathFinder):
    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self._name = name
        self._call = call
        self._asking = False

    def leave(self) -> None:
        """Watches no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find, with a loader that tells when it is done.

        It goes on watching until a loader has run: whoever asks for a spec need not import (torch built for CUDA only
        asks whether triton is there).
        """
        if fullname != self._name or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking = False
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        load, call = loader.exec_module, self._call

        def loaded(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # the loader's own again; of two watchers the first to run takes it
            self.leave()
            load(module)
            call()

        loader.exec_module = loaded
        return spec
