"""The whole of `undertorch train`: text, model, the step in view, training, what came of it."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from undertorch import gpus
from undertorch.records import Math
from undertorch.steps.measure import has_cuda
from undertorch.steps.record import RecordError
from undertorch.steps.traces import BadTrace
from undertorch.train import checkpoint, judge, loop
from undertorch.train.checkpoint import Checkpoint
from undertorch.train.config import Settings, changed, preset
from undertorch.train.corpus import corpus
from undertorch.train.distributed import Group, broadcast, group
from undertorch.train.errors import BadCheckpoint, BadSetting, TrainError
from undertorch.train.export import export
from undertorch.train.loader import check_length
from undertorch.train.loop import CHECKPOINTS, Ended, Run
from undertorch.train.one_step import settings_of
from undertorch.train.report import PICTURE, Report, clock
from undertorch.train.seen import screen, see_step, write_page
from undertorch.train.tokens import Text, cache_folder, opened, tokenized

RUN = "run.json"
PAGE = "step.html"
SAMPLES, SAMPLE_TOKENS = 5, 120
REFERENCE = "H200"
"""The GPU that a step is predicted for where none is named and none is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says; None: nothing."""

    texts: Sequence[str]
    preset: str | None
    on: str | None
    out: Path | None
    resume: bool
    sample: Sequence[str]
    see: Path | None
    """Where the step's page goes; None: into the run's folder."""
    look: bool
    """Whether the step is seen at all."""
    gpu: str | None
    export: Path | None
    changes: Mapping[str, Any]
    """Of the preset's settings."""


def start(asked: Asked, progress: Callable[[str], None] | None) -> Ended:
    """Trains, or only samples or exports where nothing is left to train. Raises TrainError."""
    began = time.perf_counter()
    on = asked.on or ("cuda" if has_cuda() else "cpu")
    if on == "cuda" and not torch.cuda.is_available():
        raise BadSetting("--on cuda: torch finds no GPU here; leave it out, or pass --on cpu.")
    with group(on) as one:
        folder = asked.out or Path("runs") / (asked.preset or "nano")
        found = _found(folder, asked, one)
        settings, texts = _settings(folder, asked)
        text = _text(asked.texts if found else texts, texts, settings, found, one, progress)
        own = {"texts": list(texts), "settings": asdict(settings)}
        settings = replace(settings, shape=replace(settings.shape, vocabulary=text.tokenizer.get_vocab_size()))
        check_length(text, settings.shape.context, text.source)
        report = Report(folder=folder, settings=settings, world=one.world, peak=_peak(one), speaks=one.first)
        if one.first:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / RUN).write_text(json.dumps(own, indent=1), "utf-8")
        _tell_what(report, text, one)
        if asked.look and one.first and found is None:
            _look(settings, asked, one, folder, report, progress)
        run = loop.build(settings, text, one, report)
        if found is None:
            report.resumed(0)
        else:
            loop.resume(run, found)
            all_made = f"; all {settings.steps:,} are made, and --steps N asks for more"
            ended_before = run.done >= settings.steps
            report.say(f"going on from {found.folder}, after step {run.done:,}{all_made if ended_before else ''}")
        ended = loop.train(run)
        if ended is not Ended.DONE:
            report.say(f"stopped after step {run.done:,}; --resume goes on from there")
            return ended
        _tell_result(run, asked, began)
        return ended


def _found(folder: Path, asked: Asked, one: Group) -> Checkpoint | None:
    """What to go on from. Raises BadCheckpoint where there are checkpoints and it is not to be gone on."""
    checkpoints = folder / CHECKPOINTS
    if not asked.resume:
        if checkpoint.every(checkpoints):
            raise BadCheckpoint(
                f"{folder} holds a run already; pass --resume to go on with it, or --out for another folder."
            )
        return None
    found, damaged = checkpoint.latest(checkpoints)
    if one.first:
        for error in damaged:
            print(f"undertorch: {error} {'The one before it is used.' if found else ''}".rstrip(), file=sys.stderr)
    if found is None and damaged:
        raise BadCheckpoint(f"no checkpoint in {checkpoints} is whole; begin anew in another folder (--out).")
    if found is None and one.first:
        print(f"undertorch: {checkpoints} has no checkpoint yet, so the run begins at its first step.", file=sys.stderr)
    return found


def _settings(folder: Path, asked: Asked) -> tuple[Settings, Sequence[str]]:
    """Of the preset; of a run that is resumed its own. What the command line names counts before both."""
    if asked.resume and (folder / RUN).is_file():
        try:
            kept = json.loads((folder / RUN).read_text("utf-8"))
            settings, texts = settings_of(kept["settings"]), kept["texts"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadCheckpoint(f"{folder / RUN} cannot be read ({error}); begin anew in another folder.") from error
        if asked.preset not in (None, settings.preset):
            raise BadSetting(f"--preset {asked.preset}: {folder} is a run of {settings.preset}; --out names another.")
        return changed(settings, **asked.changes), asked.texts or texts
    return changed(preset(asked.preset or "nano"), **asked.changes), asked.texts


def _text(
    anew: Sequence[str],
    named: Sequence[str],
    settings: Settings,
    found: Checkpoint | None,
    one: Group,
    progress: Callable[[str], None] | None,
) -> Text:
    """The tokens: read and cut by the first process, and opened by the others. Raises TrainError.

    A run that goes on takes those that it had, unless a text is named (`anew`), which then has to be the same.
    """
    folder, failure = None, None
    if one.first:
        kept = None if found is None or anew else cache_folder() / "text" / found.progress.text
        try:
            folder = kept if kept is not None and kept.is_dir() else _tokens_folder(anew or named, settings, progress)
        except TrainError as error:
            failure = error
    folder, message = broadcast((folder, None if failure is None else str(failure)), one)
    if failure is not None:
        raise failure
    if folder is None:
        raise TrainError(message)
    return opened(folder)


def _tokens_folder(named: Sequence[str], settings: Settings, progress: Callable[[str], None] | None) -> Path:
    given = corpus(named)
    if given.skipped:
        more = f" and {len(given.skipped) - 5} more" if len(given.skipped) > 5 else ""
        print(f"undertorch: skipped, as no UTF-8 text: {', '.join(given.skipped[:5])}{more}.", file=sys.stderr)
    return tokenized(given, settings.shape.vocabulary, settings.tokenizer, progress).folder


def _peak(one: Group) -> float | None:
    """bfloat16 operations a second of this GPU's tensor cores; None on a CPU, and where no sheet is known."""
    if one.device.type != "cuda":
        return None
    try:
        return gpus.find(torch.cuda.get_device_name(one.device)).peaks.get(Math.TENSOR_BF16)
    except gpus.UnknownGpu:
        return None


def _tell_what(report: Report, text: Text, one: Group) -> None:
    shape = report.settings.shape
    report.say(
        f"{report.settings.preset}: {shape.parameters:,} parameters, {shape.layers_said}, "
        f"{shape.vocabulary:,} tokens padded to {shape.padded:,}; on {one.world} × {one.device.type}"
    )
    report.say(
        f"text: {text.source}: {text.training.text_bytes:,} bytes, {len(text.training):,} tokens; "
        f"held out: {text.validation.text_bytes:,} bytes, {len(text.validation):,} tokens"
    )


def _look(
    settings: Settings, asked: Asked, one: Group, folder: Path, report: Report, progress: Callable[[str], None] | None
) -> None:
    """Shows the step's kernels, and writes its page. Raises BadSetting where it was asked for and cannot be."""
    measured = one.device.type == "cuda" and asked.gpu is None
    if progress:
        progress("looking at one step")
    try:
        step, gpu = see_step(settings, None if measured else asked.gpu or REFERENCE)
        path = asked.see or folder / PAGE
        write_page(path, step, gpu)
    except (RecordError, BadTrace, gpus.UnknownGpu, gpus.BadSheet, OSError) as error:
        if asked.see is not None or asked.gpu is not None:
            raise BadSetting(f"the step cannot be shown: {error}") from error
        report.say(f"the step is not shown: {error}")
        return
    for line in screen(step):
        report.say(line)
    report.say(f"its page: {path}")


def _tell_result(run: Run, asked: Asked, began: float) -> None:
    report, one = run.report, run.one
    bits = loop.bits_a_byte(run)
    report.evaluated(run.done, bits)
    report.draw()
    order_2 = run.text.order_2_bits
    if order_2 is not None:
        report.say(
            f"held-out text: {bits:.4f} bits a byte; a table of what follows two bytes has {order_2:.4f}: "
            f"the model is {'better' if order_2 > bits else 'worse'} by {abs(order_2 - bits):.4f}"
        )
    prompts = list(asked.sample) or [""] * SAMPLES
    for number, sample in enumerate(
        judge.samples(run.model, run.text, prompts, SAMPLE_TOKENS, run.settings.seed, one.device), 1
    ):
        shown = "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in sample)
        report.say(f"--- sample {number} of {len(prompts)}, seed {run.settings.seed}\n{shown}")
    report.say("---")
    last = next(iter(checkpoint.every(report.folder / CHECKPOINTS)), None)
    report.say(f"checkpoint: {last}; loss: {report.folder / PICTURE}")
    if asked.export is not None and one.first:
        export(run.model, run.settings, run.text, asked.export)
        report.say(f"for transformers: {asked.export}")
    taken = time.perf_counter() - began
    report.say(f"took {clock(taken)} by the clock, {clock(sum(os.times()[:4]))} of the processor's time")
