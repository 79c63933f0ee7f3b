"""Which instruction forms other people's CUDA needs, and which of them the machine has.

make ptx-forms FOLDER=~/src/llm.c/dev/cuda        or
python benchmarks/ptx_forms.py FOLDER… [--include FOLDER]… [--keep FOLDER] [--name NAME]

Every .cu file is compiled to PTX for sm_80, by nvcc where there is one, else by NVRTC (which refuses host code, so that
such files are listed as not compiled); .ptx files are taken as they are. A form is an opcode as written, such as
`ld.global.v4.f32`. A kernel is counted as one that runs when the machine accepts every instruction on its way. With
--keep, PTX is kept there, outside the folder, and taken from there the next time. Nothing of what is read is kept else.
"""

import argparse
import platform
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from results_file import Aim, write
from undertorch.compilers.nvrtc import CudaError, compile_cuda
from undertorch.simt.codegen.flow import flow
from undertorch.simt.errors import SimtError
from undertorch.simt.ptx import parse
from undertorch.simt.ptx.lexer import Token, tokens
from undertorch.simt.ptx.opcodes import match

LATER = (
    ("tensor cores", r"(wmma|mma|ldmatrix|stmatrix|movmatrix|wgmma|tcgen05)\b"),
    (
        "TMA and mbarrier",
        r"(mbarrier|cp\.async\.bulk|cp\.async\.mbarrier|cp\.reduce|tensormap|fence\.proxy|multimem)\b",
    ),
    ("clusters", r"(mapa|getctarank|barrier\.cluster|clusterlaunchcontrol)\b"),
    ("textures and surfaces", r"(tex|tld4|txq|suld|sust|sured|suq|istypep)\b"),
    ("video instructions", r"v(add|sub|absdiff|min|max|shl|shr|mad|set|avrg)[24]?\b"),
)
"""Families that the machine does not have, each as one."""


@dataclass
class Found:
    """What a folder's PTX holds."""

    forms: Counter[str] = field(default_factory=Counter)
    files: dict[str, set[str]] = field(default_factory=dict)
    """Files that have a form."""
    kernels: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Kernels that do not run, by the first reason."""
    compiled: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def opcodes(text: str) -> Iterator[str]:
    """The opcode of every instruction: the first word of a statement, behind its guard, if no colon follows."""
    items = list(tokens(text))
    begins, depth, at = True, 0, 0
    while at < len(items):
        token = items[at]
        if token.text == "{" and depth and not begins:  # several operands
            while items[at].text != "}":
                at += 1
            at += 1
        elif token.text in {"{", "}", ";"}:
            depth += {"{": 1, "}": -1}.get(token.text, 0)
            begins, at = True, at + 1
        elif begins and token.text == "@":
            at += 3 if items[at + 1].text == "!" else 2
        elif begins and at + 1 < len(items) and items[at + 1].text == ":":
            at += 2
        elif begins and token.text == ".loc":  # takes numbers, and has no semicolon
            at = _behind_location(items, at)
        elif begins:
            if depth and token.kind == "word" and not token.text.startswith("%"):
                yield token.text
            begins, at = False, at + 1
        else:
            at += 1


def _behind_location(items: list[Token], at: int) -> int:
    line = items[at].line
    while at < len(items) and items[at].line == line:
        at += 1
    return at


def ptx_of(file: Path, includes: list[Path], keep: Path | None) -> str:
    """PTX for sm_80. Raises CudaError."""
    if file.suffix == ".ptx":
        return file.read_text(errors="replace")
    kept = keep / ("_".join(file.parts[1:]) + ".ptx") if keep else None
    if kept is not None and kept.exists():
        return kept.read_text()
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        text = compile_cuda(file.read_text(errors="replace"), [f"-I{folder}" for folder in includes], name=file.name)
    else:
        folders = [f"-I{folder}" for folder in (file.parent, *includes)]
        command = [nvcc, "-ptx", "-arch=sm_80", "-std=c++17", *folders, str(file), "-o", "/dev/stdout"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise CudaError(next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200]))
        text = done.stdout
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(text)
    return text


def look(folder: Path, includes: list[Path], keep: Path | None) -> Found:
    found = Found()
    for file in sorted(p for p in folder.rglob("*") if p.suffix in {".cu", ".ptx"} and p.is_file()):
        try:
            text = ptx_of(file, includes, keep)
        except CudaError as error:
            found.failed[str(file.relative_to(folder))] = re.sub(r"\S*/", "", str(error).splitlines()[0])[:160]
            continue
        found.compiled += 1
        for opcode in opcodes(text):
            found.forms[opcode] += 1
            found.files.setdefault(opcode, set()).add(file.name)
        _count_kernels(text, file.name, found)
    return found


def _count_kernels(text: str, file: str, found: Found) -> None:
    try:
        module = parse(text)
    except SimtError as error:
        found.refused[f"{file}: {error}"] += 1
        found.kernels += text.count(".entry")
        return
    for kernel in module.kernels:
        found.kernels += 1
        try:
            flow(module, kernel)
        except SimtError as error:
            found.refused[re.sub(r"PTX line \d+( \([^)]*\))?: ", "", str(error))] += 1


def family(opcode: str) -> str:
    """What a form that the machine does not have belongs to."""
    return next((name for name, pattern in LATER if re.match(pattern, opcode)), "missing")


def report(name: str, found: Found) -> tuple[list[dict[str, object]], list[Aim]]:
    missing = [opcode for opcode in found.forms if match(opcode) is None]
    by_family: dict[str, list[str]] = {}
    for opcode in sorted(missing):
        by_family.setdefault(family(opcode), []).append(opcode)
    have, total = len(found.forms) - len(missing), len(found.forms)
    own = total - sum(len(v) for k, v in by_family.items() if k != "missing")
    runs = found.kernels - sum(found.refused.values())
    left = by_family.get("missing", [])
    refused_for: Counter[str] = Counter()
    for reason, kernels in found.refused.items():
        named = re.match(r"the instruction (\S+) is not", reason)
        refused_for[family(named.group(1)) if named else reason] += kernels
    later = {name for name, _ in LATER}
    elsewhere = sum(n for reason, n in refused_for.items() if reason in later)
    reasons = ", ".join(f"{n}: {reason}" for reason, n in refused_for.most_common() if reason not in later)
    lack = f"; missing: {', '.join(left)}" if left else ""
    others = ", ".join(f"{k} {len(v)}" for k, v in by_family.items() if k != "missing")
    others = f" (and of these {others})" if others else ""
    rows: list[dict[str, object]] = [
        {"source": name, "files_compiled": found.compiled, "files_not_compiled": found.failed, "forms": total,
         "forms_had": have, "missing": by_family, "kernels": found.kernels, "kernels_that_run": runs,
         "kernels_refused": dict(refused_for.most_common())}
    ]  # fmt: skip
    aims = [
        Aim(what=f"{name}: forms outside of {', '.join(n for n, _ in LATER)}", aim="all",
            got=f"{have} of {own}{lack}{others}", holds=not left),
        Aim(what=f"{name}: kernels that run, of those that need none of these families", aim="all",
            got=f"{runs} of {found.kernels - elsewhere} ({found.kernels} in all)" + (f"; {reasons}" if reasons else ""),
            holds=runs == found.kernels - elsewhere),
    ]  # fmt: skip
    return rows, aims


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--include", action="append", default=[], type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--name", action="append", default=[], help="how each folder is called in the result")
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    aims: list[Aim] = []
    for number, folder in enumerate(given.folders):
        name = given.name[number] if number < len(given.name) else folder.name
        more_rows, more_aims = report(name, look(folder, given.include, given.keep))
        rows += more_rows
        aims += more_aims
    nvcc = shutil.which("nvcc")
    compiler = "NVRTC"
    if nvcc:
        compiler = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[
            -2
        ]
    write("ptx_forms", rows, aims, {"python": platform.python_version(), "compiler": compiler})


if __name__ == "__main__":
    main()
