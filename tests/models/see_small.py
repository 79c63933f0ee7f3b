"""A process that sees every model of benchmarks/models, made small, and writes its step: python see_small.py FOLDER."""

import runpy
import sys
from pathlib import Path

import undertorch
from undertorch.records.files import write_steps

MODELS = Path(__file__).parents[2] / "benchmarks" / "models"

SMALL = {
    "bert": "--batch 2 --sequence 64 --layers 2",
    "dlrm": "--batch 128 --rows 1000",
    "gpt2": "--batch 2 --sequence 64 --layers 2",
    "llama": "--batch 2 --sequence 64 --layers 2",
    "llama-8b": "--size 8b --batch 2 --sequence 64 --layers 2",
    "lstm": "--batch 4 --sequence 8",
    "moe": "--batch 2 --sequence 64 --layers 2",
    "resnet": "--batch 2",
    "unet": "--batch 1 --image 128 --width 64 --layers 1",
    "vit": "--batch 2 --image 64 --layers 2",
}
"""By the name that the step is written under: arguments. llama-8b is a size of llama."""


def main(folder: Path) -> None:
    for name, arguments in SMALL.items():
        script = MODELS / f"{name.split('-')[0]}.py"
        sys.argv = [str(script), *arguments.split()]
        with undertorch.seeing(gpu="H200") as seen:
            runpy.run_path(str(script), run_name="__main__")
        write_steps(folder / f"{name}.json", [seen.step])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
