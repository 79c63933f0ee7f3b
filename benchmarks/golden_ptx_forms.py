"""Which opcodes of the machine's table are PTX: asked of NVIDIA's assembler, which needs no GPU.

python benchmarks/golden_ptx_forms.py tests/golden/ptx_forms.json.gz        (ptxas of CUDA 13.0 on the path; a minute)

The table's rows are patterns, and not every way to fill one in exists: `cvt.rn.u8.u8` does not. What ptxas takes for
sm_80 or sm_90 does. These are the forms that the machine is held to.
"""

import datetime
import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from simt.conformance.forms import PLAIN, spelt, width, written
from simt.conformance.memory import spelt_memory
from simt.conformance.tensor import spelt_tensor
from simt.conformance.warps import spelt_warps

PTX = {"sm_80": "8.8", "sm_90": "8.8"}
REGISTER = {1: "%q", 16: "%h", 32: "%r", 64: "%l", 128: "%w"}
ERROR = re.compile(r"line (\d+); (?:error|fatal)\s*: (.*)")


def lines() -> Iterable[tuple[str, str]]:
    for form in PLAIN:
        for opcode in spelt(form):
            trial = next(iter(written(opcode)))
            names = {
                letter: f"{REGISTER[width(kind)]}{place}"
                for letters, kinds, first in (("abce", trial.sources, 0), ("df", trial.results, 5))
                for place, (letter, kind) in enumerate(zip(letters, kinds, strict=False), first)
            }
            yield opcode, trial.text.format(**names).replace("\n", " ")
    yield from spelt_memory()
    yield from spelt_warps()
    yield from spelt_tensor()


def refused(text: str, target: str) -> dict[int, str]:
    """What ptxas says, by line."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "forms.ptx"
        file.write_text(text)
        command = ["ptxas", "-O0", f"-arch={target}", "-o", f"{folder}/forms.cubin", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {int(m.group(1)): m.group(2) for m in ERROR.finditer(done.stderr + done.stdout)}
    if "32-Bit" in done.stderr:  # said once for the file, and a warning for each line that asks for it
        found |= {int(line): "32-bit addresses" for line in re.findall(r"32-bit address on line '(\d+)'", done.stderr)}
    assert found or done.returncode == 0, done.stderr[-1000:]
    return found


def accepted(trials: list[tuple[str, str]], target: str) -> tuple[list[str], dict[str, str]]:
    """Asked again without what was refused, until nothing is: an error in reading hides those of meaning."""
    head = f""".version {PTX[target]}
.target {target}
.address_size 64
.shared .align 16 .b8 room[256];
.const .align 16 .b8 table[256];
.visible .entry forms(.param .align 16 .b8 given[64])
{{
.reg .pred %q<10>; .reg .b16 %h<10>; .reg .b32 %r<10>; .reg .b64 %l<10>; .reg .b128 %w<10>;
.local .align 16 .b8 stack[256]; .param .align 16 .b8 sent[64]; .reg .b64 %g, %c;
"""
    why: dict[str, str] = {}
    first = head.count("\n") + 1
    while True:
        wrong = refused(head + "\n".join(text for _, text in trials) + "\nfar: ret;\n}\n", target)
        if not wrong:
            return [opcode for opcode, _ in trials], why
        for line, reason in wrong.items():
            why.setdefault(trials[line - first][0], reason)
        trials = [trial for number, trial in enumerate(trials, first) if number not in wrong]


def main(path: Path) -> None:
    trials = list(dict(lines()).items())
    taken: dict[str, list[str]] = {}
    for target in PTX:
        taken[target], why = accepted(trials, target)
        print(f"{target}: {len(taken[target])} of {len(trials)}", flush=True)
    version = subprocess.run(["ptxas", "--version"], capture_output=True, text=True, check=True).stdout
    later = sorted(set(taken["sm_90"]) - set(taken["sm_80"]))
    content = {
        "what": "opcodes of the machine's table that ptxas takes for sm_80, and further ones for sm_90",
        "ptxas": version.strip().splitlines()[-2],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "tried": len(trials),
        "sm_80": sorted(taken["sm_80"]),
        "sm_90": later,
    }
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps(content, indent=0).encode())
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(why, indent=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
