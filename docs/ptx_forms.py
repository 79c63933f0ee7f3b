"""Writes docs/ptx-forms.md, the list of what the machine runs, from the table that parser and codegen read.

python docs/ptx_forms.py
"""

from pathlib import Path

from undertorch.simt.ptx import opcodes
from undertorch.simt.ptx.opcodes import SETS, Form
from undertorch.simt.ptx.special import SPECIAL

PAGE = Path(__file__).parent / "ptx-forms.md"
TITLES = {
    "Integer arithmetic": opcodes.INTEGER,
    "Logic and shifts": opcodes.LOGIC,
    "Floating point": opcodes.FLOAT,
    "Half precision": opcodes.HALF,
    "Comparisons and selections": opcodes.COMPARE,
    "Moves, conversions, addresses": opcodes.MOVE,
    "Memory": opcodes.MEMORY,
    "Control": opcodes.CONTROL,
    "Barriers, shuffles, votes": opcodes.WARP,
    "Tensor cores": opcodes.TENSOR,
    "8-bit floats": opcodes.NARROW,
}
HEAD = """# What PTX the machine runs

Made by `docs/ptx_forms.py` from the table of instruction forms; [the machine](machine.md) says how it is used. `<set>`
is any member of that set (below), or of those written out; `<name:set>` likewise; `?` behind what may be left out.
Operands: `d` are results, `d|p` a pair of them, `[a]` an address, `?` behind optional ones. Where PTX and target are
empty, every file that names sm_70 or later may use the form. What is not here is refused before anything runs, with
its line.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, forms in TITLES.items():
        rows = "\n".join(map(_row, forms))
        parts.append(f"\n## {title}\n\n| form | operands | from PTX | from target |\n|---|---|---|---|\n{rows}\n")
    sets = "\n".join(f"| `{name}` | {', '.join(map(_code, of.split('|')))} |" for name, of in SETS.items())
    parts.append(f"\n## Sets\n\n| set | members |\n|---|---|\n{sets}\n")
    parts.append(f"\n## Special registers\n\n{', '.join(f'`%{name}`' for name in sorted(SPECIAL))}\n")
    return "".join(parts)


def _row(form: Form) -> str:
    version = f"{form.since[0]}.{form.since[1]}" if form.since > (7, 0) else ""
    target = f"sm_{form.target}" if form.target > 70 else ""
    operands = _code(form.operands.replace("|", "\\|")) if form.operands else ""
    return f"| {_code(form.pattern.replace('|', chr(92) + '|'))} | {operands} | {version} | {target} |"


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
