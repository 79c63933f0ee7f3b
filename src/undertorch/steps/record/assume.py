"""The user's own answers to what a script asks of its tensors: `LINE=VALUE` or `FILE:LINE=VALUE`."""

from collections.abc import Mapping
from dataclasses import dataclass

from undertorch.steps.record.errors import BadAssumption


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """One answer."""

    file: str | None
    """As the user named it; None: the script."""
    line: int
    value: bool | int | float


def assumed(answers: Mapping[str, str]) -> tuple[Assumed, ...]:
    """Raises BadAssumption for a line or a value that makes no sense."""
    return tuple(_assumed(str(place), str(value).lower()) for place, value in answers.items())


def _assumed(place: str, value: str) -> Assumed:
    file, _, line = place.rpartition(":")
    if not line.isdigit() or int(line) < 1:
        raise BadAssumption(f"--assume {place}={value}: {line!r} is no line; write LINE=VALUE or FILE:LINE=VALUE.")
    return Assumed(file=file or None, line=int(line), value=_number(place, value))


def _number(place: str, value: str) -> bool | int | float:
    if value.lower() in {"true", "false"}:
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    raise BadAssumption(f"--assume {place}={value}: {value!r} is neither true, false nor a number.")
