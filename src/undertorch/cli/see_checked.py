"""`see --check`: the kernels of a seen step checked, on the script's own data."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from undertorch.cli.exits import Status, say

if TYPE_CHECKING:
    from undertorch.records import Gpu


def see_checked(script: Path, arguments: Sequence[str], gpu: "Gpu", step: int, *, aside: bool) -> Status:
    """`undertorch check` of the script up to that step, in a process of its own: the one that was seen has ended.

    `aside`: the report goes to standard error. Answers FOUND where there are errors; a step without kernels of its own
    was seen as well as any other, and has nothing to check.
    """
    from undertorch.steps.record.spawn import module_file

    file = module_file(str(script)) or script
    say(f"--check runs {file} for real now, on this computer's CPU, up to step {step}.")
    sys.stdout.flush()
    options = ["--gpu", gpu.name, "--steps", str(step), "--allow-no-kernels"]
    command = [sys.executable, "-m", "undertorch", "check", *options, str(file), "--", *arguments]
    done = subprocess.run(command, stdout=sys.stderr if aside else None, check=False)
    return Status(done.returncode) if done.returncode in {*Status} else Status.INTERNAL
