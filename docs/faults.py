"""Puts what `undertorch check` prints of tests/faults/ into docs/faults/: `make outputs`.

In a page, what stands between `<!-- fault NAME -->` and `<!-- end -->` is replaced: the kernel NAME.cu as it is, the
command, its output, what mends it as a diff, and the output then. Each fault has its page; the index is made from them.
"""

import contextlib
import difflib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FAULTS, PAGES = ROOT / "tests" / "faults", Path(__file__).parent / "faults"
BLOCK = re.compile(r"(<!-- fault (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
WIDTH = "100"
"""Columns of the output."""


def faults() -> dict[str, Path]:
    """Files that hold a fault, by name."""
    return {path.stem: path for path in sorted(FAULTS.glob("*.cu")) if "// fault: none" not in path.read_text()}


def version(source: str, mended: bool) -> str:
    """The kernel as one of its two versions: without the lines that choose between them, and without tests' marks."""
    kept: list[str] = []
    shown = [True]
    for row in source.splitlines():
        if row in {"#ifdef MENDED", "#ifndef MENDED"}:
            shown.append(mended is (row == "#ifdef MENDED"))
        elif row == "#else" and len(shown) > 1:
            shown[-1] = not shown[-1]
        elif row == "#endif" and len(shown) > 1:
            shown.pop()
        elif all(shown) and not re.match(r"// (fault|launch): ", row):
            kept.append(re.sub(r"  // <-.*", "", row))
    return "\n".join(kept) + "\n"


def options(source: str) -> list[str]:
    """How it is launched."""
    return shlex.split(re.search(r"// launch: (.*)", source)[1])


def printed(name: str, text: str, given: list[str]) -> str:
    """What the command prints of a kernel."""
    from undertorch.cli.main import run

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path(f"{name}.cu").write_text(text)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                run(["check", f"{name}.cu", *given])
        finally:
            os.chdir(before)
    return out.getvalue().rstrip()


def block(name: str) -> str:
    """All that a page shows of a fault."""
    source = faults()[name].read_text()
    broken, mended = version(source, mended=False), version(source, mended=True)
    given = options(source)
    command = f"$ undertorch check {name}.cu {shlex.join(given)}"
    difference = list(difflib.unified_diff(broken.splitlines(), mended.splitlines(), n=2, lineterm=""))[2:]
    rows = [row for row in difference if not row.startswith("@@")]
    return "\n".join([
        f"```cuda\n{broken.rstrip()}\n```", "", f"```console\n{command}\n{printed(name, broken, given)}\n```", "",
        "Mended:", "", "```diff", *rows, "```", "", f"```console\n{command}\n{printed(name, mended, given)}\n```", "",
    ])  # fmt: skip


def filled(text: str) -> str:
    """A page with its blocks made anew."""
    return BLOCK.sub(lambda found: f"{found[1]}{block(found[2])}{found[3]}", text)


def index() -> str:
    """A row a page: its title and what it shows."""
    return "\n".join(f"- [{title}]({path.name})" for title, path in titled())


def titled() -> Iterator[tuple[str, Path]]:
    """Pages with their titles."""
    for path in sorted(PAGES.glob("*.md")):
        if path.name != "README.md":
            yield path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# "), path


def main() -> None:
    """Makes all pages anew."""
    os.environ["COLUMNS"] = WIDTH
    for _, path in titled():
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    page = PAGES / "README.md"
    text = page.read_text(encoding="utf-8")
    begin, end = text.index("<!-- pages -->") + len("<!-- pages -->\n"), text.index("<!-- end -->")
    page.write_text(text[:begin] + index() + "\n" + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
