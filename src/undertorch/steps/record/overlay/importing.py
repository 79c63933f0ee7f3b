"""Something to do once a module has been imported, by whomever."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


class AfterImport(importlib.abc.MetaPathFinder):
    """Finds nothing by itself: it lets the others find a module, and calls when the module has run."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._call = call

    def install(self) -> None:
        """From here on; at once where the module is there already."""
        if self._name in sys.modules:
            self._call(sys.modules[self._name])
        else:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the others find, with a loader that calls in the end."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, self._call)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, call: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._call = call

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._call(module)
