"""Where code of a Triton function was inlined: Triton writes it as a comment, which a PTX parser does not read.

`.loc 2 293 36  // standard.py:293:36 @[ softmax.py:8:20 ]` is code of `tl.sum` for line 8 of a kernel.
"""

import re

LOC = re.compile(r"(?m)^([ \t]*\.loc[ \t]+\d+[ \t]+\d+[ \t]+\d+)[ \t]*//[^\n@]*@\[([^\n]*)\]")
FILE = re.compile(r'(?m)^\s*\.file\s+(\d+)\s+"(?:[^"\n]*/)?([^"/\n]+)"')
CALL = re.compile(r"([^\s@\[\]:]+):(\d+):(\d+)")


def with_calls(ptx: str) -> str:
    """The PTX with those comments as PTX says it: `.loc …, inlined_at …`, behind the `.loc` of each call itself."""
    numbers: dict[str, str] = {}
    for number, name in FILE.findall(ptx):
        numbers.setdefault(name, number)

    def said(found: "re.Match[str]") -> str:
        calls = [(numbers.get(name), line, column) for name, line, column in CALL.findall(found[2])]
        if not calls or any(number is None for number, _, _ in calls):
            return found[0]
        outer, rows = "", []
        for number, line, column in reversed(calls):
            at = f"{number} {line} {column}"
            rows.append(f"\t.loc\t{at}{outer}")
            outer = f", inlined_at {at}"
        return "\n".join([*rows, f"{found[1]}{outer}"])

    return LOC.sub(said, ptx)
