"""Putting something of ours in the place of something of torch's, in the process that runs the script alone."""

from typing import Any


def put(home: Any, name: str, value: Any) -> None:
    """Replaces an attribute of a module or a class. (A function of its own, since type checkers refuse the plain
    assignment.)
    """
    setattr(home, name, value)
