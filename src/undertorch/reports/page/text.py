"""Text of other people on its way into a page: made visible where it is not, and quoted for a script."""

import re

import msgspec
from markupsafe import Markup

_UNSEEN = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"}
"""Control characters, as the pictures that Unicode has for them: HTML does not allow them."""
_TURNING = {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that turn the direction of text: they make a source line look like another one (Boucher and Anderson
2021, Trojan Source)."""
_VISIBLE = {**_UNSEEN, **_TURNING, 0x7F: "\u2421"}

_BREAKS = re.compile(r"(?<=[_,:<])(?=\w)")
"""Where a kernel's name may go on in the next row."""

LONGEST = 160
"""Characters of a name that are shown where there is little room."""


def shown(text: str) -> str:
    """The text with what cannot be seen or encoded replaced by something that can."""
    return text.translate(_VISIBLE).encode("utf-8", "replace").decode("utf-8")


def short(name: str, longest: int = LONGEST) -> str:
    """The name, its middle left out where it is longer: names of kernels differ at both ends."""
    if len(name) <= longest:
        return name
    head = longest // 2
    return f"{name[:head]}…{name[-(longest - head - 1) :]}"


def breakable(name: str) -> Markup:
    """The name, with places at which it may be broken: after an underscore or a template's punctuation."""
    return Markup("<wbr>").join(_BREAKS.split(shown(name)))


def in_script(data: object) -> Markup:
    """Data as JSON that can stand in a script element: no `<` is left that could end it."""
    return Markup(msgspec.json.encode(data).decode("utf-8").replace("<", "\\u003c"))
