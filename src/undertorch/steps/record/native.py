"""Native libraries that are compiled on the user's machine, once, and kept in the user's cache."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from undertorch.steps.record.errors import NoCompiler


def kept(name: str, depends: Iterable[bytes], make: Callable[[Path], None]) -> Path:
    """The library `name` as it is for what it depends on; `make` writes it where it is missing."""
    key = hashlib.sha256(b"\0".join(depends)).hexdigest()[:20]
    path = cache() / f"{name}-{key}.so"
    if path.exists():
        return path
    # Made aside and renamed: a second process that makes it at the same time writes the same bytes, and none sees half
    # of them.
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    os.close(descriptor)
    try:
        make(Path(aside))
        Path(aside).replace(path)
    finally:
        Path(aside).unlink(missing_ok=True)
    return path


def compiler(variable: str, names: Sequence[str], without: str) -> list[str]:
    """The command that an environment variable names, or the first compiler that is there. Raises NoCompiler, saying
    `without`.
    """
    found = os.environ.get(variable) or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise NoCompiler(without)
    return found.split()


def compiled(command: Sequence[str], variable: str, fails: str) -> None:
    """Runs a compiler. Raises NoCompiler: it cannot be run (`variable` named it), or `fails` and its first error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoCompiler(f"The compiler {command[0]} (named in {variable}) cannot be run: {error.strerror}.") from error
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise NoCompiler(f"{fails}: {first}")


def cache() -> Path:
    """The user's cache; a new folder where that cannot be written, since one others can write to cannot be trusted."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undertorch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="undertorch-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="undertorch-"))
