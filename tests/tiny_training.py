"""Small texts and models for the tests of training."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from undertorch.train import loop
from undertorch.train.config import Settings, changed, preset
from undertorch.train.corpus import corpus
from undertorch.train.distributed import Group
from undertorch.train.loop import Run
from undertorch.train.report import Report
from undertorch.train.start import Asked
from undertorch.train.tokens import Text, tokenized

ALONE = Group(rank=0, world=1, device=torch.device("cpu"))

SMALL = (
    *("--preset", "nano", "--layers", "1", "--width", "32", "--heads", "4", "--context", "16", "--vocabulary", "300"),
    *("--evaluate-every", "100", "--no-see", "--on", "cpu"),
)
"""Of the command line."""


def words(seed: int = 0, count: int = 6000) -> str:
    """Lines of made-up words, some of which are far more frequent than others."""
    chance = random.Random(seed)
    known = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(2, 7))) for _ in range(60)]
    drawn = chance.choices(known, weights=[1 / (rank + 1) for rank in range(60)], k=count)
    return "\n".join(" ".join(drawn[at : at + 9]) for at in range(0, count, 9)) + "\n"


def tiny(**changes: object) -> Settings:
    """A model of some ten thousand parameters, of either family."""
    name = changes.pop("preset", "nano")
    small: dict[str, object] = {"layers": 2, "width": 32, "heads": 4, "context": 16, "vocabulary": 300, "batch": 4}
    small |= {"steps": 8, "checkpoint_every": 3, "evaluate_every": 4}
    found = changed(preset(str(name)), **{**small, **changes})
    return replace(found, shape=replace(found.shape, kv_heads=2)) if name == "nano-llama" else found


def some_text(folder: Path, settings: Settings, content: str | None = None) -> Text:
    """Tokens of a text, below a cache of the test's own (UNDERTORCH_CACHE is set by the fixture `cache`)."""
    path = folder / "text.txt"
    path.write_text(words() if content is None else content)
    return tokenized(corpus([str(path)]), settings.shape.vocabulary)


def a_run(folder: Path, settings: Settings, text: Text) -> Run:
    """A run in a folder, at its first step."""
    folder.mkdir(exist_ok=True)
    report = Report(folder=folder, settings=settings, world=1, peak=None, speaks=True)
    return loop.build(settings, text, ALONE, report)


def asked_for(folder: Path, text: Path, **changes: Any) -> Asked:
    """A small run on the CPU, as the command line asks for it; of `changes`, those that are no settings first."""
    given = {name: changes.pop(name) for name in ("resume",) if name in changes}
    small = {"layers": 1, "width": 32, "heads": 4, "context": 16, "vocabulary": 300, "batch": 4, "steps": 3}
    return Asked(
        texts=[str(text)], preset="nano", on="cpu", out=folder, sample=["a"], see=None, look=False, gpu=None,
        export=None, changes={**({} if given else small), **changes}, **({"resume": False} | given),
    )  # fmt: skip
