"""Threads that the script starts: their ops count as those of its main thread do.

A dispatch mode, and with it everything that stands in for a GPU, holds for the thread that entered it.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils import _python_dispatch

from undertorch.steps.record.patching import put
from undertorch.steps.record.places import Place, Places
from undertorch.steps.record.recorder import Recorder


def follow(recorder: Recorder, places: Places, begins: Sequence[Callable[[], None]]) -> None:
    """Every thread begins under the recorder. `begins` are called on each. Call once."""
    start: Any = threading.Thread.start
    bootstrap: Any = vars(threading.Thread)["_bootstrap_inner"]
    started: WeakKeyDictionary[threading.Thread, Place] = WeakKeyDictionary()

    def starting(thread: threading.Thread) -> None:
        started[thread] = places.look(sys._getframe(1))
        start(thread)

    def followed(thread: threading.Thread) -> None:
        for told in begins:
            told()
        if thread in started:
            places.started_at(started[thread])
        # Past the mode's own `with`, which counts how deep it is nested, for all threads together. It ends with the
        # thread.
        _python_dispatch._push_mode(recorder)
        bootstrap(thread)

    put(threading.Thread, "start", starting)
    put(threading.Thread, "_bootstrap_inner", followed)


def wait() -> None:
    """Waits for the script's threads as Python does at its end, daemons left out."""
    end: Any = vars(threading)["_shutdown"]
    end()
