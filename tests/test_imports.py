"""Who may import whom. Read off the source, so that an import inside a function counts as well."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import undertorch

ROOT = Path(undertorch.__file__).parent

BASE = {"records", "gpus", "costs", "compilers"}
KNOWS = {
    "records": set(),
    "gpus": {"records", "compilers"},
    "costs": {"records"},
    "compilers": {"records"},
    "steps": BASE,
    "simt": BASE,
    "checks": BASE | {"simt"},
    "ops": BASE,
    "reports": {"records", "gpus"},
    "train": BASE | {"ops", "steps", "simt", "reports"},
    "cli": BASE | {"ops", "steps", "simt", "checks", "reports", "train"},
}
"""Of each part, the others that it may import. A new folder gets its line here before its first file."""

HEAVY = {"torch", "triton", "llvmlite"}
LIGHT = {"records", "gpus", "costs", "reports", "cli"}
"""Parts that import nothing heavy anywhere, not even inside a function."""
ASKS_A_GPU = ROOT / "gpus/calibrating/on_cuda.py"
"""The one file of a light part that asks a real GPU, by torch, inside its functions."""


def modules() -> Iterator[tuple[str, Path]]:
    """Each file of a part, with the part's name."""
    for path in sorted(ROOT.rglob("*.py")):
        inside = path.relative_to(ROOT)
        if len(inside.parts) > 1:
            yield inside.parts[0], path


def imported(path: Path) -> Iterator[str]:
    """Every module that a file names in an import, anywhere in it; `from a import b` counts as a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute, so that they can be read here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = [pytest.param(part, path, id=str(path.relative_to(ROOT))) for part, path in modules()]


def test_every_folder_has_its_rule():
    assert {part for part, _ in modules()} <= KNOWS.keys()


@pytest.mark.parametrize(("part", "path"), FILES)
def test_a_part_imports_only_what_it_may_know(part, path):
    own = [name.split(".")[1] for name in imported(path) if name.startswith("undertorch.")]
    parts = {name for name in own if (ROOT / name).is_dir()}
    assert parts <= KNOWS[part] | {part}


@pytest.mark.parametrize(
    ("part", "path"), [case for case in FILES if case.values[0] in LIGHT and case.values[1] != ASKS_A_GPU]
)
def test_a_light_part_imports_nothing_heavy(part, path):
    assert HEAVY.isdisjoint(name.split(".")[0] for name in imported(path))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import undertorch", id="import undertorch"),
        pytest.param("import undertorch; undertorch.see", id="undertorch.see named"),
        pytest.param("import undertorch.cli.main as m; assert m.run(['--help']) == 0", id="undertorch --help"),
        pytest.param("import undertorch.cli.main as m; assert m.run(['see', '--help']) == 0", id="see --help"),
        pytest.param("import undertorch.cli.main as m; assert m.run(['gpus']) == 0", id="gpus"),
        pytest.param("import undertorch.steps.see, undertorch.reports.terminal", id="see's own parts"),
    ],
)
def test_nothing_heavy_is_imported_before_a_script_runs(code):
    """In a fresh process, which then lists what it has imported."""
    listing = "; import sys; print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code + listing], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(done.stderr.split())


def test_help_does_not_import_rich():
    """It takes longer to import than all the rest of `--help`."""
    code = "import undertorch.cli.main as m; m.run(['--help']); import sys; assert 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
