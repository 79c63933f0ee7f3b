"""Libraries that a script compiles are in the copy, and the linker, which opens files by itself, looks on the disk."""

import copy
import ctypes
import os
from typing import Any

from undertorch.steps.record.overlay.events import Library
from undertorch.steps.record.patching import put


def follow(library: Library) -> None:
    """Makes `import` of an extension module and `ctypes.CDLL` find a library in the copy."""
    import _imp

    create: Any = vars(_imp)["create_dynamic"]
    load: Any = vars(ctypes)["_dlopen"]

    def created(spec: Any, *rest: Any) -> Any:
        real = library.real_path(os.fsencode(spec.origin))
        if real is not None:
            spec = copy.copy(spec)
            spec.origin = os.fsdecode(real)
        return create(spec, *rest)

    def loaded(name: Any, *rest: Any) -> Any:
        real = library.real_path(os.fsencode(name)) if name and "/" in os.fsdecode(name) else None
        return load(name if real is None else os.fsdecode(real), *rest)

    put(_imp, "create_dynamic", created)
    put(ctypes, "_dlopen", loaded)
