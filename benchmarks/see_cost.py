"""What seeing GPT-2 costs on this machine: seconds with the guard built, seconds of the first run, peak memory.

python benchmarks/see_cost.py
"""

import os
import resource
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


def seconds(cache: Path) -> float:
    """Of one `undertorch see --json`, imports and all."""
    command = [sys.executable, "-m", "undertorch", "see", "--gpu", "H200", "--json", str(cache / "step.json")]
    began = time.perf_counter()
    subprocess.run(
        [*command, "examples/train_gpt.py"],
        check=True,
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        first = seconds(Path(folder))
        later = [seconds(Path(folder)) for _ in range(RUNS)]
    gibibytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    median = statistics.median(later)
    write(
        "see_cost",
        [
            {"what": "first run, the guard compiled", "seconds": round(first, 1)},
            {"what": f"later runs, median of {RUNS}", "seconds": round(median, 1), "all": [round(s, 1) for s in later]},
            {"what": "largest process", "GiB": round(gibibytes, 2)},
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
