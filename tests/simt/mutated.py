"""Mutated kernels, each launched in this process: what it prints is the seed of each, so that a crash names it.

`python tests/simt/mutated.py FIRST COUNT`. Anything but a SimtError, a crash or a hang is a fault of the machine.
"""

import random
import re
import sys
from pathlib import Path

import numpy as np

from undertorch.gpus import find
from undertorch.simt import SimtError, launch

KERNELS = Path(__file__).parent / "kernels"
GUARD = 0x5A
NUMBERS = ["0", "1", "-1", "31", "32", "255", "65536", "2147483647", "-2147483648"]
TYPES = ["u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64", "b32", "b64", "b8"]


def pieces(text: str) -> tuple[str, list[tuple[str, str]]]:
    """What stands before the kernels, and each kernel's name and text."""
    head = text[: text.index(".address_size 64") + len(".address_size 64\n")]
    found = re.findall(r"(?ms)^\.visible \.entry (\w+)\((.*?)^\}", text)
    return head, [(name, f".visible .entry {name}({body}}}\n") for name, body in found]


def mutate(text: str, rng: random.Random) -> str:
    """One to four lines changed: a number, a register, a suffix, the line dropped, doubled or swapped with another."""
    lines = text.split("\n")
    code = [n for n, line in enumerate(lines) if line.strip().endswith(";") and not line.strip().startswith(".")]
    for _ in range(rng.randint(1, 4)):
        at = rng.choice(code)
        match rng.randrange(6):
            case 0:
                lines[at] = re.sub(r"(?<![\w%$.])-?\d+\b", lambda _: rng.choice(NUMBERS), lines[at])
            case 1:
                lines[at] = re.sub(r"(%[a-z]+)\d+", lambda m: m.group(1) + str(rng.randint(0, 12)), lines[at], count=1)
            case 2:
                lines[at] = re.sub(r"\.[usfb](8|16|32|64)\b", lambda _: "." + rng.choice(TYPES), lines[at], count=1)
            case 3:
                lines[at] = ""
            case 4:
                lines.insert(at, lines[rng.choice(code)])
            case _:
                lines[at], other = lines[rng.choice(code)], lines[at]
                lines[rng.choice(code)] = other
    return "\n".join(lines)


def run(seed: int) -> str:
    """What became of one mutant."""
    rng = random.Random(seed)
    text = (KERNELS / rng.choice(["classics.ptx", "features.ptx"])).read_text()
    head, kernels = pieces(text)
    name, body = rng.choice([k for k in kernels if "register_tiled" not in k[0]])
    arrays: list[np.ndarray] = []
    arguments: list[object] = []
    for kind in re.findall(r"\.param \.(?:align \d+ \.)?(\w+)(?: \S+?\[(\d+)\])?", body[: body.index(")")]):
        if kind[1]:
            arguments.append(bytes(int(kind[1])))
        elif kind[0] == "u64":
            arrays.append(np.full(3 * 4096, GUARD, np.uint8))
            arrays[-1][4096:-4096] = 0
            arguments.append(arrays[-1][4096:-4096])
        else:
            arguments.append(64)
    mutant = head + mutate(body, rng)
    try:
        launch(mutant, name, rng.choice([1, 2, (2, 2)]), rng.choice([32, 40, 64, (8, 8)]), arguments, gpu=find("T4"),
               dynamic_shared=rng.choice([0, 256]), instrument=rng.choice(["none", "events"]), patience=0.2,
               time_limit=2.0)  # fmt: skip
        outcome = "ran"
    except SimtError as error:
        outcome = type(error).__name__
    for array in arrays:
        assert np.all(array[:4096] == GUARD), "memory before an argument was written"
        assert np.all(array[-4096:] == GUARD), "memory behind an argument was written"
    return outcome


if __name__ == "__main__":
    start, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(start, start + count):
        print(number, end=" ", flush=True)
        print(run(number), flush=True)
