"""What compilers made, kept on disk from process to process: each file with its hash, written in one step."""

import hashlib
import os
import threading
from pathlib import Path


def folder(kind: str) -> Path:
    """`$UNDERTORCH_CACHE`, or `undertorch` in the user's folder for caches; in it one for each kind of things."""
    given = os.environ.get("UNDERTORCH_CACHE")
    if given:
        return Path(given) / kind
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undertorch" / kind


def kept(path: Path) -> bytes | None:
    """A file's content; None where there is no file, or a damaged one."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    return stored[32:] if len(stored) > 32 and hashlib.sha256(stored[32:]).digest() == stored[:32] else None


def keep(path: Path, data: bytes) -> None:
    """Writes a file; a folder that cannot be written to is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        temporary.write_bytes(hashlib.sha256(data).digest() + data)
        temporary.replace(path)
    except OSError:
        return
