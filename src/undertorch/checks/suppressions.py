"""Findings that a project accepts: `[[tool.undertorch.check.suppress]]` in its pyproject.toml, each with a reason."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from undertorch.records import Checked, Finding, FindingKind, Suppressed

NAME = "pyproject.toml"
KEYS = ("kernel", "kind", "fingerprint", "reason")


class BadSuppression(Exception):
    """What is wrong with an entry, and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """One entry. What it does not name it does not ask for."""

    reason: str
    kernel: str | None = None
    kind: FindingKind | None = None
    fingerprint: str | None = None

    def meets(self, kernel: str, finding: Finding) -> bool:
        """Whether a kernel's finding is the one that is meant."""
        return (
            self.names(kernel) and self.kind in {None, finding.kind} and self.fingerprint in {None, finding.fingerprint}
        )

    def names(self, kernel: str) -> bool:
        """Whether it is for that kernel: all that are made from a template are meant by the template's name."""
        return self.kernel in {None, kernel, kernel.partition("<")[0]}

    def __str__(self) -> str:
        named = ((name, getattr(self, name)) for name in KEYS[:-1])
        return ", ".join(f'{name} = "{value}"' for name, value in named if value is not None)


def suppressions(target: Path) -> tuple[Suppression, ...]:
    """Those of the nearest pyproject.toml at or above a file, or a folder. Raises BadSuppression."""
    here = target.resolve()
    for folder in (here, *here.parents):
        file = folder / NAME
        if file.is_file():
            return _read(file)
    return ()


def _read(file: Path) -> tuple[Suppression, ...]:
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSuppression(f"{file} cannot be read: {error}.") from error
    own: dict[str, object] = said
    for name in ("tool", "undertorch", "check"):
        inner = own.get(name, {})
        if not isinstance(inner, dict):
            raise BadSuppression(f"{file}: {name} is no table; write [tool.undertorch.check].")
        own = inner
    other = sorted(own.keys() - {"suppress"})
    if other:
        raise BadSuppression(f"{file}: [tool.undertorch.check] has no {other[0]}; it has suppress.")
    listed = own.get("suppress", [])
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise BadSuppression(f"{file}: write each suppression as [[tool.undertorch.check.suppress]].")
    return tuple(_one(file, number, one) for number, one in enumerate(listed, 1))


def _one(file: Path, number: int, said: dict[str, object]) -> Suppression:
    where = f"{file}: suppression {number}"
    wrong = [key for key, value in said.items() if key not in KEYS or not isinstance(value, str)]
    if wrong:
        raise BadSuppression(f"{where}: {wrong[0]} is none of {', '.join(KEYS)}, each a text.")
    text = {key: str(value).strip() for key, value in said.items()}
    if not text.get("reason"):
        raise BadSuppression(f'{where} gives no reason; write why it is accepted: reason = "…".')
    if not text.keys() - {"reason"}:
        raise BadSuppression(f"{where} would accept everything; name a kernel, a kind or a fingerprint.")
    kinds = {kind.value for kind in FindingKind}
    if text.get("kind") not in {None, *kinds}:
        raise BadSuppression(f"{where}: there is no kind {text['kind']}; kinds are {', '.join(sorted(kinds))}.")
    kind = FindingKind(text["kind"]) if "kind" in text else None
    return Suppression(reason=text["reason"], kernel=text.get("kernel"), kind=kind, fingerprint=text.get("fingerprint"))


def suppressed(
    checked: Sequence[Checked], listed: Sequence[Suppression]
) -> tuple[tuple[Checked, ...], tuple[str, ...]]:
    """The same with accepted findings set apart, and a sentence for each entry that accepts nothing any more.

    An entry for a kernel that was not launched may still be needed elsewhere, and is not said to be stale.
    """
    used: set[Suppression] = set()
    kept = tuple(_set_apart(one, listed, used) for one in checked)
    stale = tuple(
        f"{NAME}: the suppression of {one} (“{one.reason}”) meets no finding; take it out."
        for one in listed
        if one not in used and one.kernel is not None and any(one.names(other.kernel) for other in checked)
    )
    return kept, stale


def _set_apart(checked: Checked, listed: Iterable[Suppression], used: set[Suppression]) -> Checked:
    found: list[Finding] = []
    accepted = list(checked.suppressed)
    for finding in checked.findings:
        entry = next((one for one in listed if one.meets(checked.kernel, finding)), None)
        if entry is None:
            found.append(finding)
        else:
            used.add(entry)
            accepted.append(Suppressed(finding=finding, reason=entry.reason))
    return replace(checked, findings=tuple(found), suppressed=tuple(accepted))
