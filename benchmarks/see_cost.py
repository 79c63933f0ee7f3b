"""What seeing GPT-2 costs on this machine: seconds with the guard built, seconds of the first run, peak memory.

python benchmarks/see_cost.py
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from results_file import Aim, write

ROOT = Path(__file__).parent.parent
RUNS = 5


def run(cache: Path) -> tuple[float, float]:
    """Seconds of one `undertorch see --json`, imports and all, and GiB of the largest of its processes."""
    command = [sys.executable, "-m", "undertorch", "see", "--gpu", "H200", "--json", str(cache / "step.json")]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "examples/train_gpt.py"],
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)  # of it and of those that it waited for: wait4(2)
    taken = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return taken, used.ru_maxrss / 2**20


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, with_compiler = run(Path(folder))
        runs = [run(Path(folder)) for _ in range(RUNS)]
    later = [seconds for seconds, _ in runs]
    gibibytes = max(size for _, size in runs)
    median = statistics.median(later)
    write(
        "see_cost",
        [
            {"what": "first run, the guard compiled", "seconds": round(first, 1)},
            {"what": f"later runs, median of {RUNS}", "seconds": round(median, 1), "all": [round(s, 1) for s in later]},
            {"what": "largest process", "GiB": round(gibibytes, 2)},
            {"what": "largest process of the first run, the C++ compiler", "GiB": round(with_compiler, 2)},
        ],
        [
            Aim(what="seconds with the guard built", aim="15", got=f"{median:.1f}", holds=median < 15),
            Aim(what="peak memory", aim="1 GiB", got=f"{gibibytes:.2f} GiB", holds=gibibytes < 1),
        ],
        {name: version(name) for name in ("undertorch", "torch")} | {"python": sys.version.split()[0]},
        f"{os.cpu_count()} cores, no GPU",
    )


if __name__ == "__main__":
    main()
