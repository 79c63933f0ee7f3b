"""Finds the lines of one Step again in another whose source was edited in between: by their text.

Identical text in the same function comes first, then identical text anywhere, then text that changed a little. Lines
that have the same text are told apart by their function and their order, and where some of them came or went by how the
whole texts align (difflib).
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from undertorch.records.comparisons import Match, SourceLine
from undertorch.records.totals import source_rows

Pair = tuple[Match, SourceLine | None, SourceLine | None]
"""How a line was found again, as it was before and as it is after; None: there is none."""

Sources = Mapping[str, str]
"""The text of each file, by name."""

RENAMED = 0.5
"""Share of a file's lines that have to be in another for it to be the same file, renamed: as git diff -M has it."""
EDITED = 0.6
"""Likeness from which on a line of the same function is the same line, edited: difflib's own for a near match."""
EDITED_TARGET = 0.4
"""Likewise where it assigns to the same names: `q, k, v = …` of one function is that line, whatever is on its right."""
EDITED_ELSEWHERE = 0.8
"""Likewise where its function is another: short lines of code resemble each other."""


def match_lines(
    before: Sequence[SourceLine], after: Sequence[SourceLine], old: Sources, new: Sources
) -> tuple[Pair, ...]:
    """Each line of either side once: with its partner, or alone as gone or new."""
    pairs: list[Pair] = []
    names = _files(before, after, old, new)
    for was, now in names.items():
        aligned = _aligned(old.get(was, ""), new.get(now, ""))
        gone, fresh = [one for one in before if one.file == was], [one for one in after if one.file == now]
        pairs.extend(_within(gone, fresh, aligned, old.get(was, ""), new.get(now, "")))
    gone, fresh = _left(before, after, pairs)
    pairs.extend(_moved(gone, fresh))  # to another file
    gone, fresh = _left(before, after, pairs)
    pairs.extend((Match.GONE, one, None) for one in gone)
    pairs.extend((Match.NEW, None, one) for one in fresh)
    return tuple(pairs)


def _files(before: Iterable[SourceLine], after: Iterable[SourceLine], old: Sources, new: Sources) -> dict[str, str]:
    """Which file after is which file before: that of the same name, otherwise the one that is most like it."""
    was, now = dict.fromkeys(one.file for one in before), dict.fromkeys(one.file for one in after)
    found = {name: name for name in was if name in now}
    likeness = {
        (one, other): SequenceMatcher(None, _rows(old[one]), _rows(new[other]), autojunk=False).ratio()
        for one in was.keys() - found.keys() & old.keys()
        for other in now.keys() - found.keys() & new.keys()
    }
    for (one, other), like in sorted(likeness.items(), key=lambda item: (-item[1], item[0])):
        if like >= RENAMED and one not in found and other not in found.values():
            found[one] = other
    return found


def _rows(text: str) -> list[str]:
    """The lines that say something, stripped: indentation changes when a line moves into a `with`."""
    return [row.strip() for row in source_rows(text) if row.strip()]


def _aligned(old: str, new: str) -> dict[int, int]:
    """Numbers of the lines before, each with that of the identical line it is aligned with after."""
    was = [(number, row.strip()) for number, row in enumerate(source_rows(old), 1) if row.strip()]
    now = [(number, row.strip()) for number, row in enumerate(source_rows(new), 1) if row.strip()]
    blocks = SequenceMatcher(None, [row for _, row in was], [row for _, row in now], autojunk=False)
    return {
        was[block.a + i][0]: now[block.b + i][0] for block in blocks.get_matching_blocks() for i in range(block.size)
    }


def _within(
    gone: list[SourceLine], fresh: list[SourceLine], aligned: Mapping[int, int], old: str, new: str
) -> Iterator[Pair]:
    """The lines of one file."""
    found: list[Pair] = []
    for match, key in ((Match.SAME, _text_and_function), (Match.MOVED, _text)):
        left, right = _left(gone, fresh, found)
        found.extend((match, *pair) for pair in _identical(left, right, key, aligned))
    left, right = _left(gone, fresh, found)
    found.extend((Match.EDITED, *pair) for pair in _edited(left, right, _statements(old), _statements(new)))
    yield from found


def _left(
    before: Iterable[SourceLine], after: Iterable[SourceLine], pairs: Iterable[Pair]
) -> tuple[list[SourceLine], list[SourceLine]]:
    """The lines that have no partner yet."""
    was = {(one.file, one.line) for _, one, _ in pairs if one is not None}
    now = {(one.file, one.line) for _, _, one in pairs if one is not None}
    return (
        [one for one in before if (one.file, one.line) not in was],
        [one for one in after if (one.file, one.line) not in now],
    )


def _text(line: SourceLine) -> Hashable:
    """Where the text is not known, the number stands for it."""
    return line.line if line.source is None else line.source


def _text_and_function(line: SourceLine) -> Hashable:
    return _text(line), line.function


def _identical(
    gone: Iterable[SourceLine],
    fresh: Iterable[SourceLine],
    key: Callable[[SourceLine], Hashable],
    aligned: Mapping[int, int],
) -> Iterator[tuple[SourceLine, SourceLine]]:
    """Pairs of the same key: as many on both sides in their order; otherwise as the texts align, the rest in order."""
    was, now = _groups(gone, key), _groups(fresh, key)
    for name, some in was.items():
        others = now.get(name, [])
        at = {} if len(some) == len(others) else {other.line: other for other in others}
        sure = {one.line: at[aligned[one.line]] for one in some if aligned.get(one.line) in at}
        yield from ((one, sure[one.line]) for one in some if one.line in sure)
        left = [one for one in some if one.line not in sure]
        yield from zip(left, [other for other in others if other not in sure.values()], strict=False)


def _groups(lines: Iterable[SourceLine], key: Callable[[SourceLine], Hashable]) -> dict[Hashable, list[SourceLine]]:
    groups: dict[Hashable, list[SourceLine]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.line):
        groups[key(line)].append(line)
    return groups


def _moved(gone: Iterable[SourceLine], fresh: Iterable[SourceLine]) -> Iterator[Pair]:
    """Identical text of the same function in another file, as when a class moves out of the script."""
    known = [one for one in gone if one.source is not None], [one for one in fresh if one.source is not None]
    yield from ((Match.MOVED, *pair) for pair in _identical(*known, _text_and_function, {}))


def _edited(
    gone: Sequence[SourceLine], fresh: Sequence[SourceLine], old: Mapping[int, str], new: Mapping[int, str]
) -> Iterator[tuple[SourceLine, SourceLine]]:
    """The likest pairs first, each line once. Whole statements are compared too: a formatter breaks what grew long."""
    candidates = []
    for one in gone:
        for other in fresh:
            if one.source is None or other.source is None:
                continue
            line = _likeness(one.source, other.source)
            like = max(line, _likeness(old.get(one.line, one.source), new.get(other.line, other.source)))
            if like >= _cutoff(one, other):
                candidates.append((like, line, -abs(one.line - other.line), one, other))
    taken: set[tuple[str, int, bool]] = set()
    for *_, one, other in sorted(candidates, key=lambda candidate: candidate[:3], reverse=True):
        ends = {(one.file, one.line, True), (other.file, other.line, False)}
        if not ends & taken:
            taken |= ends
            yield one, other


def _cutoff(one: SourceLine, other: SourceLine) -> float:
    if one.function != other.function:
        return EDITED_ELSEWHERE
    targets = [str(line.source).partition(" = ") for line in (one, other)]
    same = targets[0][0] == targets[1][0] and all(equals for _, equals, _ in targets)
    return EDITED_TARGET if same else EDITED


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _statements(text: str) -> dict[int, str]:
    """Each line's simple statement on one row, as Python would write it. Empty where the text is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            row = ast.unparse(node)
            found.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), row))
    return found
