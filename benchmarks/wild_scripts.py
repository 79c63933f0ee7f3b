"""Sees public training scripts that nobody here wrote, each as it is, on small data made beside it.

    python benchmarks/wild_scripts.py FOLDER [NAME…]

FOLDER holds checkouts named `owner+name` (docs/in-the-wild.md lists them with their commits); nothing of them is kept
here. The Python that runs this one has to have what the scripts import. Written to results/wild_scripts.json: for each
script whether it ran unchanged, how long that took, what it recorded, and the last line of what it said.
"""

import gzip
import json
import pickle
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import undertorch
from results_file import Aim, write

RANDOM = np.random.default_rng(0)
LIMIT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One script and how it is called."""

    repository: str
    folder: str
    """Where it is called, in the checkout."""
    command: str
    """The script and its arguments."""
    data: Callable[[Path], None] = lambda folder: None
    """Makes the small data that it reads, below the folder where it is called."""
    options: str = ""
    """Of `undertorch see`."""
    paths: tuple[str, ...] = ()
    """Of the checkout, to import from (what `pip install -e` would do)."""


def tokens(*names: str, top: int = 60, count: int = 200_000) -> Callable[[Path], None]:
    """Files of 16-bit tokens."""

    def make(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            RANDOM.integers(0, top, count).astype(np.uint16).tofile(folder / name)

    return make


def shakespeare(folder: Path) -> None:
    tokens("data/shakespeare_char/train.bin", "data/shakespeare_char/val.bin")(folder)
    with (folder / "data/shakespeare_char/meta.pkl").open("wb") as file:
        pickle.dump({"vocab_size": 65, "itos": {}, "stoi": {}}, file)


def mnist(*homes: str, whole: bool = False) -> Callable[[Path], None]:
    """256 images in the format of MNIST's files; or as many as it has, for scripts that count on it."""

    def make(folder: Path) -> None:
        for home in homes:
            made(folder / home / "MNIST" / "raw")

    def made(raw: Path) -> None:
        raw.mkdir(parents=True, exist_ok=True)
        for part, count in (("train", 60_000 if whole else 256), ("t10k", 10_000 if whole else 256)):
            images = RANDOM.integers(0, 255, (count, 28, 28)).astype(np.uint8)
            labels = RANDOM.integers(0, 10, count).astype(np.uint8)
            (raw / f"{part}-images-idx3-ubyte").write_bytes(
                struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes()
            )
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())

    return make


def pictures(at: str, classes: int = 2, size: int = 256, suffix: str = ".jpg") -> Callable[[Path], None]:
    """A folder a class of pictures; with no classes, all in one."""

    def make(folder: Path) -> None:
        from PIL import Image

        for number in range(24):
            home = folder / at / (f"class{number % classes}" if classes else "")
            home.mkdir(parents=True, exist_ok=True)
            Image.fromarray(RANDOM.integers(0, 255, (size, size, 3)).astype(np.uint8)).save(home / f"{number}{suffix}")

    return make


def masks(folder: Path) -> None:
    from PIL import Image

    pictures("data/imgs", classes=0)(folder)
    home = folder / "data/masks"
    home.mkdir(parents=True, exist_ok=True)
    for number in range(24):
        Image.fromarray((RANDOM.integers(0, 2, (256, 256)) * 255).astype(np.uint8)).save(home / f"{number}_mask.gif")


def image_net(folder: Path) -> None:
    for part in ("train", "val", "validation"):
        pictures(f"pictures/{part}")(folder)


def unet_config(folder: Path) -> None:
    pictures("pictures", classes=0)(folder)
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "config.json").write_text(
        json.dumps(
            {
                "_class_name": "UNet2DModel",
                "sample_size": 64,
                "in_channels": 3,
                "out_channels": 3,
                "layers_per_block": 2,
                "block_out_channels": [64, 128, 256],
                "down_block_types": ["DownBlock2D", "AttnDownBlock2D", "DownBlock2D"],
                "up_block_types": ["UpBlock2D", "AttnUpBlock2D", "UpBlock2D"],
            }
        )
    )


def enwik8(folder: Path) -> None:
    (folder / "data").mkdir(exist_ok=True)
    with gzip.open(folder / "data/enwik8.gz", "wb", compresslevel=1) as file:
        file.write(RANDOM.integers(32, 120, int(95e6)).astype(np.uint8).tobytes())


def text(folder: Path) -> None:
    """Every letter and mark, since scripts begin a sample with a line of their own."""
    (folder / "input.txt").write_text("".join(chr(number) for number in RANDOM.integers(32, 127, 50_000)))


def words(folder: Path) -> None:
    made = " ".join(f"word{number}" for number in RANDOM.integers(0, 2000, 40_000))
    for part in ("train", "valid", "test"):
        path = folder / "data/wikitext-2" / f"{part}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(made)


EXAMPLES = "pytorch/examples"
SCRIPTS = {
    "nanoGPT, Shakespeare": Script(
        repository="karpathy/nanoGPT",
        folder=".",
        command="train.py config/train_shakespeare_char.py --eval_iters=2",
        data=shakespeare,
    ),
    "nanoGPT, GPT-2 124M": Script(
        repository="karpathy/nanoGPT",
        folder=".",
        command="train.py --dataset=shakespeare_char --eval_iters=2 --gradient_accumulation_steps=4",
        data=shakespeare,
    ),
    "minGPT, chargpt": Script(
        repository="karpathy/minGPT",
        folder="projects/chargpt",
        command="chargpt.py",
        options="--step 3",
        data=text,
        paths=(".",),
    ),
    "minGPT, adder": Script(repository="karpathy/minGPT", folder="projects/adder", command="adder.py", paths=(".",)),
    "llama2.c": Script(
        repository="karpathy/llama2.c",
        folder=".",
        command="train.py --eval_iters=2 --batch_size=8",
        data=tokens(*(f"data/TinyStories_all_data/data0{n}.bin" for n in range(3)), top=32_000),
    ),
    "mnist": Script(repository=EXAMPLES, folder="mnist", command="main.py", data=mnist("../data")),
    "vae": Script(repository=EXAMPLES, folder="vae", command="main.py", data=mnist("../data")),
    "mnist_rnn": Script(repository=EXAMPLES, folder="mnist_rnn", command="main.py --accel", data=mnist("../data")),
    "siamese_network": Script(repository=EXAMPLES, folder="siamese_network", command="main.py", data=mnist("../data")),
    "mnist_forward_forward": Script(
        repository=EXAMPLES,
        folder="mnist_forward_forward",
        command="main.py --train_size 200 --test_size 50",
        data=mnist("data"),
    ),
    "imagenet": Script(repository=EXAMPLES, folder="imagenet", command="main.py --dummy --batch-size 32 -j 2"),
    "imagenet, pictures": Script(
        repository=EXAMPLES,
        folder="imagenet",
        command="main.py --arch mobilenet_v2 --batch-size 8 -j 2 pictures",
        data=image_net,
    ),
    "word_language_model, LSTM": Script(
        repository=EXAMPLES, folder="word_language_model", command="main.py --accel", data=words
    ),
    "word_language_model, Transformer": Script(
        repository=EXAMPLES, folder="word_language_model", command="main.py --accel --model Transformer", data=words
    ),
    "dcgan": Script(repository=EXAMPLES, folder="dcgan", command="main.py --dataset fake --accel"),
    "regression": Script(repository=EXAMPLES, folder="regression", command="main.py"),
    "timm": Script(
        repository="huggingface/pytorch-image-models",
        folder=".",
        command="train.py --data-dir pictures --model resnet50 --amp --batch-size 8 --num-classes 2 --model-ema"
        " --mixup 0.2 --workers 2",
        data=image_net,
    ),
    "timm, vision transformer": Script(
        repository="huggingface/pytorch-image-models",
        folder=".",
        command="train.py --data-dir pictures --model vit_small_patch16_224 --amp --amp-dtype bfloat16 --batch-size 8"
        " --num-classes 2 --opt adamw --aa rand-m9-mstd0.5 --workers 2 --torchcompile",
        data=image_net,
    ),
    "diffusers, unconditional": Script(
        repository="huggingface/diffusers",
        folder="examples/unconditional_image_generation",
        command="train_unconditional.py --train_data_dir pictures --model_config_name_or_path config --resolution 64"
        " --train_batch_size 4 --mixed_precision bf16 --use_ema",
        data=unet_config,
        paths=("src",),
    ),
    "accelerate, nlp": Script(
        repository="huggingface/accelerate", folder="examples", command="nlp_example.py --mixed_precision bf16"
    ),
    "Pytorch-UNet": Script(
        repository="milesial/Pytorch-UNet", folder=".", command="train.py --amp --batch-size 2", data=masks
    ),
    "x-transformers, enwik8": Script(
        repository="lucidrains/x-transformers",
        folder=".",
        command="train_enwik8.py",
        data=enwik8,
        options="--step 1",
        paths=(".",),
    ),
    "x-transformers, copy": Script(
        repository="lucidrains/x-transformers", folder=".", command="train_copy.py", paths=(".",)
    ),
    "Lightning, autoencoder": Script(
        repository="Lightning-AI/pytorch-lightning",
        folder="examples/pytorch/basics",
        command="autoencoder.py --trainer.max_epochs=1",
        data=mnist("../../Datasets", "data", whole=True),
    ),
    "Lightning Fabric, image classifier": Script(
        repository="Lightning-AI/pytorch-lightning",
        folder="examples/fabric/image_classifier",
        command="train_fabric.py",
        data=mnist("../../../Datasets"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a script."""

    name: str
    repository: str
    commit: str | None
    command: str
    ran: bool
    seconds: float
    step: int | None = None
    ops: int | None = None
    launches: int | None = None
    ops_without_cost: tuple[str, ...] = ()
    assumptions: int | None = None
    time_with_line: float | None = None
    said: str | None = None
    """The last line it printed, where it did not run."""


def ask(name: str, script: Script, folder: Path) -> Answer:
    """Makes the data, sees the script, reads what came of it."""
    checkout = folder / script.repository.replace("/", "+")
    home = checkout / script.folder
    script.data(home)

    def common(seconds: float) -> dict[str, object]:
        return {
            "name": name,
            "repository": script.repository,
            "commit": _commit(checkout),
            "command": f"{script.folder}: see {script.options} {script.command}".replace("  ", " "),
            "seconds": round(seconds, 1),
        }

    with tempfile.TemporaryDirectory() as aside:
        found = Path(aside) / "step.json"
        command = [sys.executable, "-m", "undertorch", "see", "--gpu", "H200", "--json", str(found)]
        command += script.options.split()
        began = time.monotonic()
        try:
            done = subprocess.run(
                [*command, *script.command.split()],
                cwd=home,
                env=_environment(checkout, script),
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return Answer(**common(LIMIT_S), ran=False, said=f"took longer than {LIMIT_S} s")
        seconds = time.monotonic() - began
        step = json.loads(found.read_text()) if found.exists() else None
    if step is None:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return Answer(**common(seconds), ran=False, said=lines[-1][:500].replace(str(folder), "…") if lines else None)
    step = step[0] if isinstance(step, list) else step
    accounting = step["accounting"]
    return Answer(
        **common(seconds),
        ran=True,
        step=step["environment"]["step"],
        ops=len(step["ops"]),
        launches=len(step["launches"]),
        ops_without_cost=tuple(accounting["ops_without_cost"]),
        assumptions=len(accounting["assumed"]),
        time_with_line=accounting["time_with_line"],
    )


def _environment(checkout: Path, script: Script) -> dict[str, str]:
    import os

    paths = [str(checkout / path) for path in script.paths]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "WANDB_MODE": "offline",
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "500",
    }


def _commit(checkout: Path) -> str | None:
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def main(folder: Path, names: list[str]) -> None:
    answers = []
    for name in names or SCRIPTS:
        answer = ask(name, SCRIPTS[name], folder)
        print(f"{name}: {'ran' if answer.ran else 'did not run'} ({answer.seconds} s) {answer.said or ''}"
              f"{' '.join(answer.ops_without_cost)}", flush=True)  # fmt: skip
        answers.append(asdict(answer))
    ran = sum(answer["ran"] for answer in answers)
    print(f"{ran} of {len(answers)} ran")
    if not names:
        versions = {"undertorch": undertorch.__version__, "torch": str(torch.__version__)}
        aim = Aim(what="public scripts seen unchanged", aim="10", got=f"{ran} of {len(answers)}", holds=ran >= 10)
        write("wild_scripts", answers, [aim], versions)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
