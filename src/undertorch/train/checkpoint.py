"""Checkpoints: whole or not at all, and refused where they are damaged.

A checkpoint is a folder, `step-00000100`. It is written under another name, its files are forced to the disk, and then
it is renamed; a crash at any moment leaves the ones before it as they were. `checkpoint.json`, written last, names each
file with its size and checksum. Weights and moments are float32 by the parameters' names, whatever the run computed in:
any number of GPUs goes on from them.
"""

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from undertorch.train.errors import BadCheckpoint

ABOUT = "checkpoint.json"
WRITING, REMOVING = ".writing-", ".removing-"
SCHEMA = 1
PIECE = 16 * 2**20
NAME = re.compile(r"step-\d{8,}")
"""As `name` makes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands: with weights and moments, all that the next step depends on."""

    step: int
    """Updates that were made."""
    place: int
    """Windows of the text that were taken (loader.py)."""
    validation: float | None
    """Bits a byte of the held-out text at this step; None where it was not evaluated here."""
    settings: dict[str, Any]
    random: dict[str, str]
    """States of torch's generators, as hexadecimal digits."""
    chosen: dict[str, Any]
    """Which kernels ops.choose had chosen, by environment."""
    versions: dict[str, str]
    text: str
    """The folder's name of the tokenised text."""
    named: list[str] | None = None
    """Files and folders of the text, as the command line named them; None: written before these were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One that was read and verified."""

    folder: Path
    progress: Progress


def name(step: int) -> str:
    """Of the folder of a step's checkpoint."""
    return f"step-{step:08}"


def save(folder: Path, files: Any, progress: Progress) -> Path:
    """Writes the checkpoint of a step below `folder`. `files(aside)` writes weights and moments into a folder.

    Raises OSError where it cannot be written (a full disk); then nothing of it is left, and earlier ones stand.
    """
    folder.mkdir(parents=True, exist_ok=True)
    aside, final = folder / f"{WRITING}{name(progress.step)}", folder / name(progress.step)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir()
        files(aside)
        return seal(aside, final, progress)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def seal(aside: Path, final: Path, progress: Progress) -> Path:
    """Adds `checkpoint.json` to what was written aside, forces all of it to the disk, and gives it its name."""
    listed = {}
    for path in _files(aside):
        _sync(path)
        listed[str(path.relative_to(aside))] = {"bytes": path.stat().st_size, "blake2b": checksum(path)}
    content = {"schema": SCHEMA, "progress": dataclasses.asdict(progress), "files": listed}
    with (aside / ABOUT).open("w", encoding="utf-8") as file:
        json.dump({**content, "blake2b": _digest(content)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    for path in (aside, *(path for path in aside.rglob("*") if path.is_dir())):
        _sync(path)
    if final.exists():
        remove(final)
    aside.rename(final)
    _sync(final.parent)
    return final


def read(folder: Path) -> Checkpoint:
    """Verifies every file. Raises BadCheckpoint with the file and what is wrong with it."""
    try:
        content = json.loads((folder / ABOUT).read_text("utf-8"))
        digest = content.pop("blake2b")
    except FileNotFoundError as error:
        raise BadCheckpoint(f"the checkpoint {folder} is damaged: {ABOUT} is missing.") from error
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadCheckpoint(f"the checkpoint {folder} is damaged: {ABOUT} cannot be read ({error}).") from error
    if digest != _digest(content):
        raise BadCheckpoint(f"the checkpoint {folder} is damaged: {ABOUT} is not what was written.")
    if content["schema"] != SCHEMA:
        raise BadCheckpoint(
            f"the checkpoint {folder} is of schema {content['schema']}; this undertorch reads {SCHEMA}."
        )
    for file, expected in content["files"].items():
        path = folder / file
        if not path.is_file():
            raise BadCheckpoint(f"the checkpoint {folder} is damaged: {file} is missing.")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise BadCheckpoint(
                f"the checkpoint {folder} is damaged: {file} has {size:,} bytes and not {expected['bytes']:,}."
            )
        if checksum(path) != expected["blake2b"]:
            raise BadCheckpoint(f"the checkpoint {folder} is damaged: the content of {file} is not what was written.")
    return Checkpoint(folder=folder, progress=Progress(**content["progress"]))


def every(folder: Path) -> list[Path]:
    """Folders of checkpoints, the last step first; not verified. What has another name, such as a copy that somebody
    keeps beside them, is none of ours.
    """
    return sorted((path for path in folder.glob("step-*") if NAME.fullmatch(path.name) and path.is_dir()), reverse=True)


def latest(folder: Path) -> tuple[Checkpoint | None, list[BadCheckpoint]]:
    """The last checkpoint that is whole, and what is wrong with those after it."""
    damaged: list[BadCheckpoint] = []
    for path in every(folder):
        try:
            return read(path), damaged
        except BadCheckpoint as error:
            damaged.append(error)
    return None, damaged


def prune(folder: Path, keep: int) -> None:
    """Removes all but the last `keep` and the best; and what a crash left unfinished."""
    for path in (*folder.glob(f"{WRITING}*"), *folder.glob(f"{REMOVING}*")):
        shutil.rmtree(path, ignore_errors=True)
    kept = every(folder)
    found = best(kept)
    for path in kept[keep:]:
        if path != found:
            remove(path)


def best(folders: Sequence[Path]) -> Path | None:
    """That with the fewest bits a byte of held-out text."""
    judged = []
    for path in folders:
        try:
            validation = json.loads((path / ABOUT).read_text("utf-8"))["progress"]["validation"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # damaged: `latest` says so
        if validation is not None:
            judged.append((validation, path))
    return min(judged)[1] if judged else None


def remove(path: Path) -> None:
    """Renamed first: half a checkpoint never has a checkpoint's name."""
    going = path.with_name(f"{REMOVING}{path.name}")
    shutil.rmtree(going, ignore_errors=True)
    path.rename(going)
    shutil.rmtree(going)


def checksum(path: Path) -> str:
    """BLAKE2b of a file's content, 128 bits."""
    total = blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            total.update(piece)
    return total.hexdigest()


def _digest(content: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
