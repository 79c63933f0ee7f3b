"""Names of files as a reader has them: below the folder that they work in."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from undertorch.records import Checked, Finding, Place


def relative(checked: Checked, root: Path, title: Callable[[str], str | None] = lambda file: None) -> Checked:
    """With files below `root` named from there, in places and in what is said of them.

    `title`: what a file that is none is called, such as a notebook's cell.
    """
    folder = f"{root}/"

    def short(file: str) -> str:
        return title(file) or file.removeprefix(folder)

    def place(one: Place) -> Place:
        return replace(one, file=short(one.file), inlined_at=tuple(map(place, one.inlined_at)))

    def finding(one: Finding) -> Finding:
        return replace(
            one,
            place=place(one.place),
            other=None if one.other is None else place(one.other),
            evidence=one.evidence.replace(folder, ""),
            remedy=one.remedy.replace(folder, ""),
        )

    return replace(
        checked,
        file=None if checked.file is None else short(checked.file),
        findings=tuple(map(finding, checked.findings)),
        origins={short(name): replace(one, file=short(one.file)) for name, one in checked.origins.items()},
        sources={short(file): text for file, text in checked.sources.items()},
    )
