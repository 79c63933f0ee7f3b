"""What a run does, and says, when its disk fills and when files of a checkpoint are damaged.

    PYTHONPATH=src python3 benchmarks/train_damage.py [--folder DIR]

The disk is a tmpfs of the size of two checkpoints and a half, mounted in a folder of its own and unmounted again (which
needs root). Files of a last checkpoint are cut short, have one bit turned, or are gone. Writes
benchmarks/results/train_damage.json: the sentences, the exit status, and which checkpoints were there after it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results_file import Aim, write

SMALL = ("--preset", "nano", "--layers", "1", "--width", "96", "--heads", "4", "--context", "16", "--vocabulary", "400",
         "--batch", "4", "--checkpoint-every", "3", "--evaluate-every", "100", "--keep", "9", "--sample", "def ",
         "--no-see", "--on", "cpu")  # fmt: skip


def train(folder: Path, text: Path, *options: str) -> tuple[int, list[str]]:
    """Exit status, and the lines that tell of what went wrong or where it goes on."""
    done = subprocess.run(
        [sys.executable, "-m", "undertorch", "train", str(text), *SMALL, "--out", str(folder), *options],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    words = ("could not", "cannot", "damaged", "going on", "checkpoint:", "Traceback")
    told = [line for line in (done.stdout + done.stderr).splitlines() if any(word in line for word in words)]
    return done.returncode, [line.replace(str(folder.parent), "…") for line in told]


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size * 2 // 3)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))


DAMAGE: dict[str, Callable[[Path], None]] = {"cut short": cut, "one bit turned": flip, "gone": Path.unlink}
FILES = ("weights.safetensors", "optimizer.safetensors", "checkpoint.json")


def damaged(work: Path, text: Path) -> Iterator[dict[str, Any]]:
    """Each file of the last checkpoint, damaged in each way."""
    whole = work / "whole"
    assert train(whole, text, "--steps", "6")[0] == 0
    for file in FILES:
        for name, damage in DAMAGE.items():
            folder = work / "damaged"
            shutil.copytree(whole, folder)
            damage(folder / "checkpoints" / "step-00000006" / file)
            status, told = train(folder, text, "--steps", "6", "--resume")
            same = metrics(folder) == metrics(whole)
            yield {"damage": f"{file}: {name}", "status": status, "told": told, "same_losses_after": same}
            shutil.rmtree(folder)


def metrics(folder: Path) -> list[tuple[Any, ...]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row.get("loss"), row.get("norm")) for row in rows]


def full(work: Path, text: Path) -> Iterator[dict[str, Any]]:
    """A disk with room for two checkpoints and a half; then with room again."""
    whole = work / "whole"
    size = sum(path.stat().st_size for path in (whole / "checkpoints" / "step-00000006").iterdir())
    with small_disk(work / "disk", size * 5 // 2) as disk:
        status, told = train(disk / "run", text, "--steps", "12")
        kept = there(disk / "run")
        yield {"damage": "a disk that fills after two checkpoints", "status": status, "told": told, "kept": kept}
        shutil.rmtree(disk / "run" / "checkpoints" / "step-00000003")
        status, told = train(disk / "run", text, "--steps", "9", "--resume")
        yield {
            "damage": "the same, after one checkpoint was removed, asked for step 9", "status": status, "told": told,
            "kept": there(disk / "run"),
        }  # fmt: skip
        filler = disk / "filler"
        try:
            with filler.open("wb") as file:
                while True:
                    file.write(bytes(4096))
        except OSError:
            pass
        status, told = train(disk / "run", text, "--steps", "12", "--resume")
        yield {"damage": "a disk without room for a line", "status": status, "told": told, "kept": there(disk / "run")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        work = Path(made)
        os.environ["UNDERTORCH_CACHE"] = str(work / "cache")
        text = work / "text.txt"
        text.write_text("".join(Path(module.__file__).read_text() for module in (argparse, json, shutil)))
        rows = []
        for row in (*damaged(work, text), *full(work, text)):
            rows.append(row)
            print(json.dumps(row, indent=1), flush=True)
    import torch

    from undertorch import __version__

    damages, disks = rows[: len(FILES) * len(DAMAGE)], rows[len(FILES) * len(DAMAGE) :]
    named = sum(
        any("damaged" in line and row["damage"].split(":")[0] in line for line in row["told"]) for row in damages
    )
    exact = sum(row["same_losses_after"] and row["status"] == 0 for row in damages)
    earlier = disks[0]["status"] == 2 and disks[0]["kept"] == ["step-00000003", "step-00000006"]
    write(
        "train_damage",
        rows,
        [
            Aim(what="damaged files that are named, and the run that goes on from the checkpoint before",
                aim=f"{len(damages)} of {len(damages)}", got=f"{named} named, {exact} exact",
                holds=named == exact == len(damages)),
            Aim(what="a disk that fills: the checkpoints before it", aim="both whole, exit status 2",
                got=f"{', '.join(disks[0]['kept'])}; exit status {disks[0]['status']}", holds=earlier),
        ],
        {"undertorch": __version__, "torch": torch.__version__},
    )  # fmt: skip


if __name__ == "__main__":
    main()
