"""A run, from the first step or from a checkpoint to the last."""

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from undertorch.train import checkpoint, judge, kept
from undertorch.train.checkpoint import Checkpoint, Progress
from undertorch.train.config import Settings
from undertorch.train.distributed import Group, shared
from undertorch.train.errors import BadCheckpoint, BadNumbers
from undertorch.train.loader import Loader, Rows
from undertorch.train.model import GPT, made
from undertorch.train.rehearsal import chosen_together
from undertorch.train.report import Report
from undertorch.train.step import Step, own_stream
from undertorch.train.tokens import Text
from undertorch.train.trouble import described, wrong
from undertorch.train.update import Update

CHECKPOINTS = "checkpoints"
EVALUATED = 2**15
"""Tokens of held-out text that are looked at between steps; at the end it is all of it."""


class Ended(StrEnum):
    """How a run did."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    """By Ctrl-C."""
    TERMINATED = "terminated"
    """By SIGTERM or SIGHUP."""


@dataclass(slots=True, kw_only=True)
class Run:
    """What changes as it trains."""

    settings: Settings
    text: Text
    one: Group
    report: Report
    model: GPT
    called: Any
    """The model as it is called: itself, wrapped for several processes, or compiled."""
    update: Update
    step: Step
    loader: Loader
    named: Sequence[str] | None = None
    """Files and folders of the text, as the command line named them."""
    done: int = 0
    """Updates that were made."""
    place: int = 0
    unsaved: str | None = None
    """Why the last checkpoint could not be written; None: it was."""


def build(settings: Settings, text: Text, one: Group, report: Report) -> Run:
    """All that a run needs, its weights as they are at the beginning: the same for a seed on any number of GPUs."""
    if settings.deterministic:
        # Without it torch refuses cuBLAS, whose streams then share no workspace (its notes, "Reproducibility").
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(settings.deterministic)
    chosen_together(settings, one)
    on_gpu, fsdp = one.device.type == "cuda", one.grouped and settings.parallel == "fsdp"
    # bfloat16 with float32 masters; FSDP's shares are float32 themselves, and it rounds what it gathers.
    model = made(settings, one.device, torch.bfloat16 if on_gpu and not fsdp else torch.float32)
    stream = own_stream(settings, one)
    called: Any = shared(model, settings, one, stream)
    update = Update(model, settings)
    if settings.compiled:
        called = torch.compile(called)
    loader = Loader(
        tokens=text.training, context=settings.shape.context, batch=settings.batch, seed=settings.seed,
        rank=one.rank, world=one.world,
    )  # fmt: skip
    step = Step(called, update, settings, one, stream)
    return Run(
        settings=settings, text=text, one=one, report=report, model=model, called=called, update=update, step=step,
        loader=loader,
    )  # fmt: skip


def train(run: Run) -> Ended:
    """Trains until the last step, or until it is asked to stop. Raises BadNumbers, OSError."""
    settings, one, report = run.settings, run.one, run.report
    following = rows(run, run.place)
    with stopping() as asked, run.step:
        while run.done < settings.steps:
            began = time.perf_counter()
            microbatches = following
            run.step.compute(microbatches, asked() is not None)
            run.place += settings.batch * settings.accumulate * one.world
            following = rows(run, run.place)  # while a GPU computes
            run.step.load(following[0])
            loss, norm, some = run.step.numbers()
            # Processes stop together, all that know of the same step: one that was asked to takes the others along.
            stop = some > 0 if one.grouped else asked() is not None
            what = wrong(loss, norm, settings.shape.vocabulary)
            if what is not None:
                raise BadNumbers(described(run.done, what, run.model, microbatches, run.text.training))
            rate = learning_rate(run.done, settings)
            run.step.update(rate)
            run.done += 1
            report.step(run.done, loss, norm, rate, time.perf_counter() - began)

            last, bits = run.done == settings.steps, None
            if run.done % settings.evaluate_every == 0 and not last:
                bits = bits_a_byte(run, EVALUATED)
                report.evaluated(run.done, bits)
            if run.done % settings.checkpoint_every == 0 or last or stop:
                save(run, bits)
            if stop and not last:
                return asked() or Ended.TERMINATED
    return Ended.DONE


def rows(run: Run, place: int) -> list[Rows]:
    """Of the step that begins at that place of the text, a microbatch after the other."""
    apart = run.settings.batch * run.one.world
    return [run.loader.rows(place + number * apart) for number in range(run.settings.accumulate)]


def learning_rate(step: int, settings: Settings) -> float:
    """A straight rise over the warm-up, then half a cosine down to `last_rate` of it. `step` counts from 0."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    way = (step - settings.warmup) / max(settings.steps - settings.warmup, 1)
    least = settings.last_rate
    return settings.rate * (least + (1 - least) * (1 + math.cos(math.pi * way)) / 2)


def bits_a_byte(run: Run, most_tokens: int | None = None) -> float:
    """Of the held-out text."""
    context = run.settings.shape.context
    most = None if most_tokens is None else max(most_tokens // context, 1)
    return judge.bits_a_byte(run.called, run.text, context, run.settings.batch, run.one, most)


def save(run: Run, validation: float | None = None) -> None:
    """Writes a checkpoint and removes what is not kept. A disk that is full is told, and the earlier ones stand."""
    folder, one = run.report.folder / CHECKPOINTS, run.one
    progress = Progress(
        step=run.done, place=run.place, validation=validation, settings=asdict(run.settings),
        random=kept.random_states(), chosen=kept.choices(one.device), versions=kept.versions(one),
        text=run.text.folder.name, named=None if run.named is None else list(run.named),
    )  # fmt: skip
    try:
        if kept.in_shares(run.update):
            _save_together(folder, progress, run)
        elif one.first:
            checkpoint.save(folder, lambda aside: kept.write(aside, run.update), progress)
    except OSError as error:
        run.unsaved = f"the checkpoint of step {run.done:,} could not be written ({error.strerror or error})"
        run.report.say(f"{run.unsaved}: those before it are as they were; make room in {folder}.")
    else:
        run.unsaved = None
        if one.first:
            checkpoint.prune(folder, run.settings.keep)
    one.wait()


def _save_together(folder: Path, progress: Progress, run: Run) -> None:
    """Each process writes its share; the first seals the checkpoint when all have."""
    aside = folder / f"{checkpoint.WRITING}{checkpoint.name(progress.step)}"
    if run.one.first:
        aside.mkdir(parents=True, exist_ok=True)
    run.one.wait()
    kept.write(aside, run.update)
    run.one.wait()
    if run.one.first:
        checkpoint.seal(aside, folder / checkpoint.name(progress.step), progress)
    run.one.wait()


def resume(run: Run, found: Checkpoint) -> None:
    """Goes on from a checkpoint. Raises BadCheckpoint where it is of another model, or of another text."""
    progress = found.progress
    if progress.text != run.text.folder.name:
        raise BadCheckpoint(
            f"the checkpoint {found.folder} was trained on another text, or on other tokens of it; name the same text, "
            "or begin anew in another folder (--out)."
        )
    kept.read(found, run.update)
    kept.set_random_states(progress.random)
    kept.set_choices(progress.chosen)
    run.done, run.place = progress.step, progress.place
    run.report.resumed(progress.step)
    now = kept.versions(run.one)
    other = [
        f"{name} {progress.versions.get(name)}, now {now[name]}"
        for name in now
        if progress.versions.get(name) != now[name]
    ]
    if other:
        run.report.say(f"it was saved with {'; '.join(other)}: losses may differ in their last digits from here on.")
    had = _tokens(progress.settings) * int(progress.versions.get("processes", "1"))
    one_forward = run.settings.batch * run.settings.shape.context * run.one.world
    if had != one_forward * run.settings.accumulate:
        keeps = "" if had % one_forward else f" (--accumulate {had // one_forward} keeps that)"
        run.report.say(
            f"a step has {one_forward * run.settings.accumulate:,} tokens from here on; it had {had:,}{keeps}. The "
            "learning rate stays."
        )


def _tokens(settings: Mapping[str, Any]) -> int:
    """Of a step of one process, by a checkpoint's settings."""
    return int(settings["batch"]) * int(settings["accumulate"]) * int(settings["shape"]["context"])


@contextmanager
def stopping() -> Iterator[Callable[[], Ended | None]]:
    """Ctrl-C, SIGTERM and SIGHUP (a terminal that is closed) let the step end first; a second Ctrl-C does not wait.

    Answers what was asked so far. What is ignored, as `nohup` has it, stays so.
    """
    asked: list[Ended] = []

    def ask(number: int, frame: object) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(Ended.INTERRUPTED if number == signal.SIGINT else Ended.TERMINATED)

    stops = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    heard = [number for number in stops if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield lambda: asked[0] if asked else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
