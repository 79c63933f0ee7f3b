"""Seeing changes nothing: what a script writes goes to a throw-away copy that it reads back, what it would send is
refused.

The parent process makes a run's folder, watches and removes it (`scratch.py`). The process that runs the script begins
the watch (`begin.py`) and tells what came of it (`changes.py`). In between stands a small library in C (`shim/`), which
is loaded before libc, so that what native code writes and what other programs write goes to the copy as well.
"""
