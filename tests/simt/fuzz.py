"""Mutated kernels (mutated.py) and random ones (lockstep.py), for some minutes, on two processes.

make fuzz [MINUTES=10] [FIRST=…]      or      python tests/simt/fuzz.py MINUTES [FIRST]

FIRST is the first seed, by default one that follows from the clock. Each batch is a process of its own, so that a crash
or a hang ends that alone; it is told with the seed, and `python tests/simt/mutated.py SEED 1` shows it again.
"""

import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

BATCH, PATIENCE = 20, 240
"""Kernels of a batch, and seconds that it may take: a mutant stops after 2, and is compiled before."""
SCRIPTS = ("mutated.py", "lockstep.py")


def batch(script, first):
    """(what became of each, the seed that went wrong or None, what was said)."""
    command = ["nice", sys.executable, str(Path(__file__).parent / script), str(first), str(BATCH)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        output, error, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output, error, code = (late.stdout or b"").decode(), "it hangs", 1
    outcomes = Counter(line.split()[1] for line in output.splitlines() if len(line.split()) == 2)
    if code == 0:
        return outcomes, None, ""
    last = output.split("\n")[-1].split()
    return outcomes, int(last[0]) if last else first, error.strip()[-600:] or f"exit status {code}"


def main(minutes, first):
    end, numbers = time.monotonic() + 60 * minutes, count(first, BATCH)
    outcomes, wrong = Counter(), []

    def work():
        while time.monotonic() < end:
            start = next(numbers)
            for script in SCRIPTS:
                found, seed, said = batch(script, start)
                outcomes.update(found)
                if seed is not None:
                    wrong.append((script, seed))
                    print(f"WRONG: python tests/simt/{script} {seed} 1\n{said}", flush=True)

    with ThreadPoolExecutor(2) as pool:
        for task in [pool.submit(work) for _ in range(2)]:
            task.result()
    print(
        f"{sum(outcomes.values())} kernels from seed {first}: {dict(outcomes.most_common())}; {len(wrong)} went wrong"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time()) % 1_000_000 * 100))
