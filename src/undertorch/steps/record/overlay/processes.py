"""Processes that a script left behind."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

ROUNDS = 20
"""Of looking for more: one that is being killed may just have started another."""
PAUSE_S = 0.005
"""Between two looks: a program that is just beginning has no environment yet."""


def end(setting: str) -> None:
    """Kills every process that was started with a setting (`NAME=value`) in its environment, but not this one."""
    quiet = 0
    for _ in range(ROUNDS):
        found = list(started_with(setting))
        quiet = 0 if found else quiet + 1
        if quiet == 2:
            return
        time.sleep(PAUSE_S)
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue


def started_with(setting: str) -> Iterator[int]:
    """Numbers of this user's processes with that setting. None where the system keeps no /proc."""
    wanted = setting.encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # another user's, or ended meanwhile
        if wanted in environment.split(b"\0") and int(folder.name) != os.getpid():
            yield int(folder.name)
