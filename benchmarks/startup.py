"""How long a person waits before undertorch does anything: the median of ten fresh processes each.

python benchmarks/startup.py [--heavy]         --heavy: only name the modules that take the most of `--help`
"""

import argparse
import platform
import statistics
import subprocess
import sys
import time

from results_file import Aim, write
from undertorch import __version__

CASES = {
    "python, doing nothing": ["-c", "pass"],
    "import undertorch": ["-c", "import undertorch"],
    "undertorch --version": ["-m", "undertorch", "--version"],
    "undertorch --help": ["-m", "undertorch", "--help"],
    "undertorch see --help": ["-m", "undertorch", "see", "--help"],
}
AIM_MS = 250


def milliseconds(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def heaviest(arguments: list[str], many: int = 12) -> list[tuple[float, str]]:
    """Milliseconds of a module and of what it imports, the most first."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")][1:]
    return sorted(((int(row[1]) / 1000, row[2].strip()) for row in rows), reverse=True)[:many]


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the start of undertorch.")
    parser.add_argument("--heavy", action="store_true", help="only name the modules that take the most of --help")
    if parser.parse_args().heavy:
        for spent, module in heaviest(CASES["undertorch --help"]):
            print(f"{spent:7.1f} ms  {module}")
        return
    times = {name: statistics.median(milliseconds(case) for _ in range(10)) for name, case in CASES.items()}
    for name, spent in times.items():
        print(f"{spent:6.0f} ms  {name}")
    rows: list[dict[str, object]] = [{"what": name, "ms": round(spent, 1)} for name, spent in times.items()]
    helped = times["undertorch --help"]
    aim = Aim(what="undertorch --help", aim=f"< {AIM_MS} ms", got=f"{helped:.0f} ms", holds=helped < AIM_MS)
    write("startup", rows, [aim], {"undertorch": __version__, "python": platform.python_version()})


if __name__ == "__main__":
    main()
