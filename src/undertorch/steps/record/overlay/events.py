"""What the library tells, as shim/shared.h lays it out."""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

TEXT_BYTES = 488


class Told(IntEnum):
    """The numbers of `enum told` of shim/shared.h."""

    WROTE = 1
    MADE_FOLDER = 2
    REMOVED = 3
    RENAMED = 4
    LINKED = 5
    CHANGED = 6
    TOO_LARGE = 7
    RAN = 8
    RAN_CONFINED = 9
    NOT_RUN = 10
    NOT_REPLACED = 11
    NOT_CONNECTED = 12
    NOT_LOOKED_UP = 13
    NOT_SIGNALLED = 14
    NOT_OPENED = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that was told."""

    told: Told
    process: int
    parent: int
    """Of that process."""
    thread: int
    """As `threading.get_ident()` counts, in that process."""
    text: str
    """A path, a command or an address; of a long one the end."""


class _Event(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("process", ctypes.c_int32),
        ("parent", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
        ("thread", ctypes.c_uint64),
        ("text", ctypes.c_char * TEXT_BYTES),
    )


_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class Library:
    """The library, which the linker has loaded before this process began."""

    def __init__(self) -> None:
        """Raises LookupError where it was not loaded."""
        self._library = ctypes.PyDLL(None)
        if not hasattr(self._library, "undertorch_overlay_begin"):
            raise LookupError("the overlay's library is not loaded")
        self._next = self._library.undertorch_overlay_next
        self._next.argtypes = (ctypes.POINTER(_Event),)
        self._library.undertorch_overlay_lost.restype = ctypes.c_uint64
        self._listener: Any = None

    def begin(self, room: int, listener: Callable[[], None]) -> None:
        """From here on the disk is left alone: at most `room` bytes are copied off it. `listener` is called on the main
        thread, at the line that brought an event about, as long as the library is kept. Raises LookupError where the
        process has no run's folder.
        """

        def called(_: Any) -> int:
            listener()
            return 0

        self._listener = _CALL(called)
        pending = ctypes.cast(ctypes.pythonapi.Py_AddPendingCall, ctypes.c_void_p)
        begin = self._library.undertorch_overlay_begin
        begin.argtypes = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        if begin(room, pending, ctypes.cast(self._listener, ctypes.c_void_p)) < 0:
            raise LookupError("the overlay's library found no folder of a run")

    def events(self) -> Iterator[Event]:
        """Those that nobody took yet, the oldest first."""
        found = _Event()  # its own, since events are taken on several threads
        while self._next(ctypes.byref(found)):
            yield Event(
                told=Told(found.kind),
                process=found.process,
                parent=found.parent,
                thread=found.thread,
                text=found.text.decode(errors="replace"),
            )

    def lost(self) -> int:
        """How many there was no room for."""
        return int(self._library.undertorch_overlay_lost())

    def real_path(self, path: bytes) -> bytes | None:
        """Where the copy has a file; None where the path is the real one."""
        real = ctypes.create_string_buffer(4096)  # PATH_MAX
        return real.value if self._library.undertorch_overlay_path(path, real) else None
