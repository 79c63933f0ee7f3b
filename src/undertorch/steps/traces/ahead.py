"""The first look over a large file in a process of its own, while this one imports torch: some seconds each, on two
cores. `python -m undertorch.steps.traces.ahead TRACE` writes what it finds to its standard output.
"""

import pickle
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from undertorch.steps.traces.errors import BadTrace
from undertorch.steps.traces.overview import Overview, look_over

LARGE = 64 << 20
"""Bytes of JSON from which on a process more is worth its start, about half a second."""

PACKED = 15
"""Times that JSON is longer than its gzip: of the recorded traces in tests/golden 10 to 20."""


def look_over_ahead(path: Path) -> Overview:
    """As `look_over`. Raises BadTrace."""
    if not _is_large(path):
        return look_over(path)
    command = [sys.executable, "-P", "-m", "undertorch.steps.traces.ahead", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            with suppress(ImportError):  # a trace is read without it, too
                import_module("torch")
            told = child.stdout.read() if child.stdout is not None else b""
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        return look_over(path)  # which says what is wrong
    overview = pickle.loads(told)  # of this very program, in the process that it started
    if not isinstance(overview, Overview):
        raise TypeError(f"{type(overview).__name__} came back from a look over {path}")
    return overview


def _is_large(path: Path) -> bool:
    try:
        size = path.stat().st_size if path.is_file() else 0
    except OSError:
        return False
    return size * (PACKED if path.suffix == ".gz" else 1) >= LARGE


def main(path: Path) -> int:
    """Exit status 1 where it is no trace."""
    try:
        overview = look_over(path)
    except BadTrace:
        return 1
    sys.stdout.buffer.write(pickle.dumps(overview, pickle.HIGHEST_PROTOCOL))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
