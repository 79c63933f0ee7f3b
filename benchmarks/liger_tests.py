"""Liger's own tests on the machine: how many pass, and of each that does not, whose error it is.

python benchmarks/liger_tests.py FOLDER [--liger FOLDER] [--only NAME] [--shapes small|whole] [--tests EXPRESSION]

FOLDER: a clone of linkedin/Liger-Kernel; --liger: where liger-kernel was installed to, if not into Python's own
(`pip install --target FOLDER liger-kernel==0.8.5 --no-deps`). Its tests of RMSNorm, SwiGLU, cross-entropy and RoPE run
unmodified under `with undertorch.machine():`; with --shapes small (the default) lengths and vocabularies (T, V,
seq_len) of more than 200 are an eighth of what the tests ask for, odd where they were odd. What asks for several GPUs
is left out.

Those of RoPE need the transformers that they were written for (tried: 5.2.0); 5.24 has another LlamaRotaryEmbedding.

A test compares a kernel with torch, which here is torch on the CPU in the kernel's dtype: cross-entropy in bfloat16
keeps its log-softmax in bfloat16, which CUDA's does not. So each test that fails runs once more with torch's loss
computed in float64 and rounded once. If it passes then, the reference was wrong, and not the kernel.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

NAMES = ("rms_norm", "swiglu", "cross_entropy", "rope")
LEFT_OUT = "dtensor"
"""They start a process for each of eight GPUs."""
LENGTHS = ("T", "V", "seq_len")
LONG = 200
SHARE = 8

# -- pytest's side: this file is its plugin

entered: Any = None
outcomes: list[dict[str, Any]] = []


def pytest_load_initial_conftests() -> None:
    """The first that pytest does: Liger's conftest.py asks for the device as it is imported."""
    global entered  # noqa: PLW0603 - from here to the end pytest runs inside of one `with`
    import undertorch

    if os.environ.get("REFERENCE") == "float64":
        right_reference()
    entered = undertorch.machine()
    entered.__enter__()


def pytest_unconfigure(config: Any) -> None:
    entered.__exit__(None, None, None)
    Path(os.environ["OUTCOMES"]).write_text(json.dumps(outcomes))


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    if os.environ["SHAPES"] == "small":
        for item in items:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            for name, value in parameters.items():
                if name in LENGTHS and value > LONG:
                    parameters[name] = value // SHARE + (value // SHARE + value) % 2


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        said = str(report.longrepr)
        crash = getattr(report.longrepr, "reprcrash", None)
        if isinstance(report.longrepr, tuple):  # file, line, and why it was skipped
            said = report.longrepr[2]
        why = said if report.outcome == "skipped" else crash.message if crash else said
        outcomes.append(
            {
                "test": report.nodeid.split("::", 1)[1],
                "outcome": report.outcome,
                "seconds": round(report.duration, 2),
                "why": "" if report.outcome == "passed" else why.splitlines()[0][:200],
            }
        )


def right_reference() -> None:
    """torch's loss in float64, rounded once."""
    import torch
    import torch.nn.functional as F

    real, real_lse = F.cross_entropy, torch.logsumexp

    def cross_entropy(logits: Any, target: Any, weight: Any = None, **more: Any) -> Any:
        return real(logits.double(), target, None if weight is None else weight.double(), **more).to(logits.dtype)

    F.cross_entropy = cross_entropy
    torch.logsumexp = lambda x, dim, keepdim=False: real_lse(x.double(), dim, keepdim).to(x.dtype)


# -- this side


def run(name: str, given: argparse.Namespace, tests: list[str] | str | None, reference: str) -> list[dict[str, Any]]:
    """What each test of a file came to. `tests`: their ids, or an expression of pytest's -k."""
    file = f"test/transformers/test_{name}.py"
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(__file__).parent), *([str(given.liger.resolve())] if given.liger else [])]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
            "OUTCOMES": f"{folder}/outcomes.json",
            "SHAPES": given.shapes,
            "REFERENCE": reference,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        chosen = [f"{file}::{test}" for test in tests] if isinstance(tests, list) else [file]
        wanted = f"not {LEFT_OUT}" if tests is None or isinstance(tests, list) else f"not {LEFT_OUT} and ({tests})"
        command = [sys.executable, "-m", "pytest", "-p", "liger_tests", "-q", "--no-header", "--tb=line", "-k", wanted]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *chosen], cwd=given.folder, env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        path = Path(environment["OUTCOMES"])
        if not path.exists():
            raise SystemExit(f"{file} did not run:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return json.loads(path.read_text())  # type: ignore[no-any-return]


def row(name: str, given: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    found = run(name, given, given.tests, "torch's own")
    failed = [one for one in found if one["outcome"] == "failed"]
    again = run(name, given, [one["test"] for one in failed], "float64") if failed else []
    right = {one["test"]: one["outcome"] for one in again}
    counts = Counter(one["outcome"] for one in found)
    return {
        "file": f"test_{name}.py",
        "passed": counts["passed"],
        "failed": counts["failed"],
        "skipped": counts["skipped"],
        "pass_against_float64": sum(right.get(one["test"]) == "passed" for one in failed),
        "failing": [f"{one['test']}: {one['why']}; against float64: {right.get(one['test'])}" for one in failed],
        "skipping": sorted({one["why"] for one in found if one["outcome"] == "skipped"}),
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--liger", type=Path)
    parser.add_argument("--only", choices=NAMES, help="nothing is written")
    parser.add_argument("--tests", help="as pytest -k; nothing is written")
    parser.add_argument("--shapes", choices=("small", "whole"), default="small")
    given = parser.parse_args()
    rows = []
    for name in (given.only,) if given.only else NAMES:
        rows.append(row(name, given))
        print(json.dumps(rows[-1], indent=1), flush=True)
    if given.only or given.tests or given.shapes != "small":
        return 0
    import torch
    import triton

    from results_file import Aim, write

    total = sum(one["passed"] + one["failed"] for one in rows)
    passed = sum(one["passed"] for one in rows)
    explained = sum(one["pass_against_float64"] for one in rows)
    aims = [
        Aim(what="Liger's tests that pass, or do so against torch in float64", aim=f"all {total}",
            got=f"{passed} pass, {explained} more against float64", holds=passed + explained == total)
    ]  # fmt: skip
    versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}
    write("liger_tests", rows, aims, versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
