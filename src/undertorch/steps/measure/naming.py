"""What our ranges are called in a trace."""

import re

MARK = re.compile(r"undertorch#(?P<number>\d+)")


def range_name(number: int) -> str:
    """Of the mark of that number."""
    return f"undertorch#{number}"


def mark_number(name: str) -> int | None:
    """Which mark a range is of; None for what is none of ours."""
    match = MARK.fullmatch(name)
    return None if match is None else int(match["number"])
