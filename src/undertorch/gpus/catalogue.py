"""Which GPUs there are: the sheets that come with undertorch, by name, and a sheet of one's own, by its path."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path

from undertorch.gpus.sheet import BadSheet, parse
from undertorch.records import Gpu

BRANDS = re.compile(r"\b(nvidia|amd|tesla|geforce|instinct)\b")
"""Words that a driver puts before a GPU's name and that nobody types; drivers of different years use different ones."""

MEANT = {"h100": "H100-SXM"}
"""Names that fit several boards and that people give to one of them: NVIDIA's whitepaper of the H100, MLPerf and the
clouds mean the board of the SXM socket where they say no more."""


class UnknownGpu(Exception):
    """A name or a path that no sheet belongs to, said in one sentence with the nearest names."""


def find(name_or_path: str | Path) -> Gpu:
    """The GPU of that name, or of the sheet at that path (a Path, or a text that ends in `.toml`).

    Case and punctuation do not matter, and the name that the driver gives is a name too: `h200`, `A100 80GB`, `NVIDIA
    H100 PCIe`; so is what people say (MEANT). Raises UnknownGpu where there is none, BadSheet where the file is no
    sheet.
    """
    if isinstance(name_or_path, Path) or name_or_path.lower().endswith(".toml"):
        return _read(Path(name_or_path))
    return _named(name_or_path)


@cache
def names() -> tuple[str, ...]:
    """Names of the GPUs that come with undertorch, in the order of the alphabet."""
    folder = resources.files(__package__) / "sheets"
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


@cache
def all_gpus() -> tuple[Gpu, ...]:
    """The GPUs that come with undertorch, in the order of `names()`."""
    return tuple(_shipped(name) for name in names())


def _shipped(name: str) -> Gpu:
    sheet = resources.files(__package__) / "sheets" / f"{name}.toml"
    return parse(sheet.read_text(encoding="utf-8"), sheet.name, _named)


def _named(name: str) -> Gpu:
    key = _key(MEANT.get(_key(name), name))
    found = [gpu for gpu in all_gpus() if key in (_key(gpu.name), _key(gpu.full_name))]
    if not found:
        raise UnknownGpu(_unknown(name, names()))
    return found[0]


def _read(path: Path) -> Gpu:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnknownGpu(f"{path} cannot be read: {error.strerror}; give the path of a GPU's sheet.") from error
    except UnicodeDecodeError as error:
        raise BadSheet(f"{path} is no sheet: it is not UTF-8 text.") from error
    try:
        return parse(text, str(path), _named)
    except UnknownGpu as error:
        raise BadSheet(f"{path}, in like: {error}") from error


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", BRANDS.sub("", name.lower()))


def _unknown(name: str, known: Iterable[str]) -> str:
    keys = {_key(candidate): candidate for candidate in known}
    typed = _key(name)
    near = [keys[key] for key in keys if typed and key.startswith(typed)]
    near = near or [keys[key] for key in get_close_matches(typed, keys, n=3, cutoff=0.5)]
    nearest = f"the nearest {'is' if len(near) == 1 else 'are'} {_and(near)}, " if near else ""
    return (
        f"There is no GPU named {name!r}; {nearest}`undertorch gpus` lists all, "
        "and the path of a sheet of your own (my_gpu.toml) does instead of a name."
    )


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
