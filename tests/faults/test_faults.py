"""Planted faults: each kernel here says in its comments what is wrong, where, and how it is launched.

`// fault: KIND [SEVERITY]` (or none) and `// launch: OPTIONS` stand first; `// <-` marks the lines; with -DMENDED
nothing is wrong.
"""

import re
from pathlib import Path

import pytest

from undertorch.checks.arguments import arguments
from undertorch.checks.check import check
from undertorch.compilers.nvrtc import compile_cuda, nvrtc_version
from undertorch.compilers.ptxas import resources
from undertorch.gpus import find
from undertorch.records import Checked, FindingKind, Severity
from undertorch.simt.frontends.kernels import KernelFile, Setting

FOLDER = Path(__file__).parent
KERNELS = sorted(FOLDER.glob("*.cu"))
pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")


def stated(path: Path) -> tuple[str, Severity, list[str], list[int]]:
    """The kind, its severity, the launch's options, and the marked lines."""
    lines = path.read_text(encoding="utf-8").split("\n")
    fault = re.fullmatch(r"// fault: (\S+)(?: (warning|note))?(?:   .*)?", lines[0])
    launch = re.fullmatch(r"// launch: (.*)", lines[1])
    assert fault, f"{path.name} does not say in its first line what is wrong: // fault: KIND"
    assert launch, f"{path.name} does not say in its second line how it is launched: // launch: --grid …"
    severity = Severity(fault[2] or "error")
    marked = [n for n, line in enumerate(lines, 1) if "// <-" in line]
    return fault[1], severity, launch[1].split(), marked


def checked(path: Path, *options: str, seeds: int = 1) -> Checked:
    """The kernel of a file, under all checks."""
    _, _, words, _ = stated(path)
    given: dict[str, list[str]] = {}
    for name, value in zip(words[::2], words[1::2], strict=True):
        given.setdefault(name, []).append(value)
    grid, block = (tuple(int(n) for n in given[name][0].split(",")) for name in ("--grid", "--block"))
    source = path.read_text(encoding="utf-8")
    gpu = find("A100-80GB")
    text = compile_cuda(source, options, name=path.name)
    file = KernelFile(text=text, default=Setting(gpu=gpu), source=source)
    args = arguments(given.get("--arg", []))
    return check(file[file.kernels[0]], grid, block, args.values, gpu=gpu, empty=args.empty, seeds=seeds,
                 source_name=path.name)  # fmt: skip


def a_ptxas_compiles(path: Path) -> bool:
    """Occupancy needs one: that of a toolkit, or Triton's."""
    file = KernelFile(text=compile_cuda(path.read_text(encoding="utf-8"), name=path.name),
                      default=Setting(gpu=find("A100-80GB")))  # fmt: skip
    return resources(file.text, file.kernels[0], (8, 0)) is not None


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_the_fault_is_found_at_its_lines(path: Path):
    kind, severity, _, marked = stated(path)
    if kind in {"occupancy", "spill", "tail-wave"} and not a_ptxas_compiles(path):
        pytest.skip("no ptxas here knows the PTX's version")
    found = checked(path)
    if kind == "none":
        assert found.findings == ()
        return
    wanted = [f for f in found.findings if f.kind == FindingKind(kind)]
    assert wanted, f"not found; found: {found.findings}"
    assert severity in {f.severity for f in wanted}
    assert {f.kind for f in found.findings} <= {FindingKind(kind)} | ALONGSIDE.get(path.stem, set())
    lines = {place.line for f in wanted for place in (f.place, f.other) if place is not None}
    assert set(marked) == lines


ALONGSIDE: dict[str, set[FindingKind]] = {}
"""Other kinds that a fault brings with it."""


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_the_mended_kernel_is_silent(path: Path):
    assert checked(path, "-DMENDED", seeds=2).findings == ()
