"""The whole of `undertorch train`: text, model, the step in view, training, what came of it."""

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from undertorch import gpus
from undertorch.ops import choose
from undertorch.records import Math
from undertorch.steps.measure import has_cuda
from undertorch.steps.record import RecordError
from undertorch.steps.traces import BadTrace
from undertorch.train import checkpoint, judge, loop
from undertorch.train.checkpoint import Checkpoint
from undertorch.train.config import OF_SHAPE, Settings, changed, preset
from undertorch.train.corpus import corpus
from undertorch.train.distributed import Group, broadcast, group
from undertorch.train.errors import BadCheckpoint, BadSetting, NotSaved, TrainError
from undertorch.train.export import export
from undertorch.train.loader import check_length
from undertorch.train.loop import CHECKPOINTS, Ended, Run
from undertorch.train.one_step import settings_of
from undertorch.train.report import PICTURE, Report, clock, written
from undertorch.train.seen import screen, see_step, write_page
from undertorch.train.tokens import Text, cache_folder, opened, tokenized

RUN, LOCK = "run.json", ".lock"
EXPORTED = "undertorch.json"
"""In an export: the folder of its run, which may write it anew."""
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
    or_begin: bool = False
    """Whether a run is begun where there is none to resume."""
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
    _check(asked)
    try:
        choose.mode()
    except ValueError as error:
        raise BadSetting(str(error)) from error
    with group(on) as one:
        folder = asked.out or Path("runs") / _preset(asked)
        _check_export(folder, asked)
        settings, texts = _settings(folder, asked)
        with alone_in(folder, one):
            return _run(folder, settings, texts, asked, one, progress, began)


def _check(asked: Asked) -> None:
    """Raises BadSetting for what would be passed over without a word, or stop the run at its end."""
    given = [("--sample", prompt) for prompt in asked.sample]
    given += [("--export", str(asked.export)), ("--tokenizer", asked.changes.get("tokenizer") or "")]
    for name, value in given:
        try:
            value.encode()
        except UnicodeEncodeError as error:  # bytes that Python could not decode, and libraries of Rust do not take
            raise BadSetting(f"{name} {value!a} is no UTF-8; pass what is.") from error
    if not asked.look:
        _shows_no_step(asked, "with --no-see")
    parallel = asked.changes.get("parallel")
    if parallel is not None and not asked.resume and "RANK" not in os.environ:
        raise BadSetting(f"--parallel {parallel} is of several processes, and this is one; start them by torchrun.")


def _check_export(folder: Path, asked: Asked) -> None:
    """Raises BadSetting where the export would go to a place that holds something; a run that is resumed may write its
    own anew.
    """
    out = asked.export
    if out is None or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    raising = BadSetting(f"--export {out}: there is something there already; name a folder that is new.")
    if not asked.resume:
        raise raising
    try:
        its = json.loads((out / EXPORTED).read_text("utf-8"))["run"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise raising from error
    if its != str(folder.resolve()):
        raise BadSetting(f"--export {out}: the export of another run is there, {its}; name a folder that is new.")


def _shows_no_step(asked: Asked, why: str) -> None:
    """Raises BadSetting where an option is about the step that is shown."""
    for name, value in (("--see", asked.see), ("--gpu", asked.gpu)):
        if value is not None:
            raise BadSetting(f"{name} {value}: no step is shown {why}; leave one of them out.")


def _run(
    folder: Path,
    settings: Settings,
    texts: Sequence[str],
    asked: Asked,
    one: Group,
    progress: Callable[[str], None] | None,
    began: float,
) -> Ended:
    found = _found(folder, asked, one)
    if found is not None and not asked.or_begin:  # a script that is started again asks for what it did the first time
        _shows_no_step(asked, "of a run that goes on, by --resume")
    if found is not None and settings.steps < found.progress.step:
        raise BadSetting(
            f"--steps {settings.steps:,}: the run in {folder} has made {found.progress.step:,} already, and --steps "
            "counts from its first; pass more to go on, or as many to see what came of it."
        )
    text = _text(asked.texts if found else texts, texts, settings, found, one, progress)
    own, tokens = {"texts": list(texts), "settings": asdict(settings)}, settings.shape.vocabulary
    settings = replace(settings, shape=replace(settings.shape, vocabulary=text.tokenizer.get_vocab_size()))
    check_length(text, settings.shape.context, text.source)
    report = Report(folder=folder, settings=settings, world=one.world, peak=_peak(one), speaks=one.first)
    _tell_what(report, text, one, tokens)
    if asked.look and one.first and found is None:
        _look(settings, asked, one, folder, report)
    run = loop.build(settings, text, one, report)
    run.named = texts
    if found is None:
        report.resumed(0)
    else:
        loop.resume(run, found)
    # Not before: what a checkpoint does not go with is not to stand in its run's file.
    if one.first:
        written(folder / RUN, json.dumps(own, indent=1))
    if found is not None:
        all_made = f"; all {settings.steps:,} are made, and --steps N asks for more"
        ended_before = run.done >= settings.steps
        report.say(f"going on from {found.folder}, after step {run.done:,}{all_made if ended_before else ''}")
    ended = loop.train(run)
    if ended is Ended.DONE:
        _tell_result(run, asked, began)
    elif run.unsaved is None:
        report.say(f"stopped after step {run.done:,}; --resume goes on from there")
    if run.unsaved is not None:
        last = _last(run)
        then = "begin anew" if last is None else f"--resume goes on from {last.name}"
        raise NotSaved(f"{run.unsaved}; make room in {folder}, then {then}.")
    return ended


@contextmanager
def alone_in(folder: Path, one: Group) -> Iterator[None]:
    """Holds the run's folder, against another run that would write there too. Raises BadSetting in all processes."""
    held, refused, made = None, None, []
    if one.first:
        try:
            made = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            held = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            whose = (folder / LOCK).read_text("ascii", "replace")[:20] or "unknown"
            refused = (
                f"a run goes on in {folder} already (process {whose}); wait for it, stop it, or pass --out for another "
                "folder."
            )
        except OSError as error:
            refused = f"{folder} cannot be a run's folder ({error.strerror or error}); pass --out for another."
    try:
        refused = broadcast(refused, one)
        if refused is not None:
            raise BadSetting(refused)
        if held is not None:
            with suppress(OSError):  # of a full disk: the lock holds without it
                os.ftruncate(held, 0)
                os.write(held, str(os.getpid()).encode())
        yield
    finally:
        if held is not None:
            if refused is None and [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()  # nothing came of it
                with suppress(OSError):  # of those that somebody else has begun to use
                    for path in made:
                        path.rmdir()
            os.close(held)


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
    own = _own_settings(folder) if asked.resume else None
    if own is None and asked.resume and not asked.or_begin and not checkpoint.every(folder / CHECKPOINTS):
        raise BadSetting(
            f"--resume: there is no run in {folder} to go on with; name its folder (--out), or leave --resume out to "
            "begin one. A script that is started again and again passes --resume-or-begin."
        )
    if own is not None:
        settings, texts = own
        if asked.preset not in (None, settings.preset):
            raise BadSetting(f"--preset {asked.preset}: {folder} is a run of {settings.preset}; --out names another.")
        for name in (*OF_SHAPE, "seed", "tokenizer"):
            its = getattr(settings.shape if name in OF_SHAPE else settings, name)
            if asked.changes.get(name) not in (None, its):
                raise BadSetting(
                    f"--{name} {asked.changes[name]}: the run in {folder} has {its}, and goes on with that; leave it "
                    "out, or begin another with --out."
                )
        return changed(settings, **asked.changes), asked.texts or texts
    return changed(preset(_preset(asked)), **asked.changes), asked.texts


def _preset(asked: Asked) -> str:
    return "nano" if asked.preset is None else asked.preset


def _own_settings(folder: Path) -> tuple[Settings, Sequence[str]] | None:
    """Of the run in that folder: as run.json has them, and where that is lost, its last whole checkpoint; None: it has
    neither. Raises BadCheckpoint.
    """
    path = folder / RUN
    try:
        kept = json.loads(path.read_text("utf-8"))
        return settings_of(kept["settings"]), kept["texts"]
    except FileNotFoundError:
        why = None
    except (ValueError, KeyError, TypeError) as error:
        why = f"{path} cannot be read ({error})"
    found, _ = checkpoint.latest(folder / CHECKPOINTS)
    if found is not None:
        return settings_of(found.progress.settings), found.progress.named or []
    if why is not None:
        raise BadCheckpoint(f"{why}, and there is no whole checkpoint either; begin anew in another folder.")
    return None


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
        print(
            f"undertorch: skipped, as no UTF-8 text that can be read: {', '.join(given.skipped[:5])}{more}.",
            file=sys.stderr,
        )
    return tokenized(given, settings.shape.vocabulary, settings.tokenizer, progress).folder


def _peak(one: Group) -> float | None:
    """bfloat16 operations a second of this GPU's tensor cores; None on a CPU, and where no sheet is known."""
    if one.device.type != "cuda":
        return None
    try:
        return gpus.find(torch.cuda.get_device_name(one.device)).peaks.get(Math.TENSOR_BF16)
    except gpus.UnknownGpu:
        return None


def _tell_what(report: Report, text: Text, one: Group, asked_tokens: int) -> None:
    shape = report.settings.shape
    report.say(
        f"{report.settings.preset}: {shape.parameters:,} parameters, {shape.layers_said}, "
        f"{shape.vocabulary:,} tokens padded to {shape.padded:,}; on {one.world} × {one.device.type}"
    )
    report.say(
        f"text: {text.source}: {text.training.text_bytes:,} bytes, {len(text.training):,} tokens; "
        f"held out: {text.validation.text_bytes:,} bytes, {len(text.validation):,} tokens"
    )
    if shape.vocabulary < asked_tokens and report.settings.tokenizer is None:
        report.say(f"the text has no more than {shape.vocabulary:,} of the {asked_tokens:,} different tokens asked for")


def _look(settings: Settings, asked: Asked, one: Group, folder: Path, report: Report) -> None:
    """Shows the step's kernels, and writes its page. Raises BadSetting where it was asked for and cannot be."""
    measured = one.device.type == "cuda" and asked.gpu is None
    how = (
        "running and measuring"
        if measured
        else f"recording without a GPU, and predicting for {asked.gpu or REFERENCE},"
    )
    report.say(f"{how} the kernels of one step (--no-see trains at once)")
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


def _last(run: Run) -> Path | None:
    """The folder of the run's last checkpoint."""
    return next(iter(checkpoint.every(run.report.folder / CHECKPOINTS)), None)


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
    report.say(f"checkpoint: {_last(run) or 'none'}; loss: {report.folder / PICTURE}")
    if asked.export is not None:
        if one.first:
            asked.export.mkdir(parents=True, exist_ok=True)
            whose = {"run": str(report.folder.resolve()), "step": run.done}
            (asked.export / EXPORTED).write_text(json.dumps(whose), "utf-8")
        export(run.model, run.settings, run.text, asked.export, one.first)
        report.say(f"for transformers: {asked.export}")
    taken = time.perf_counter() - began
    report.say(f"took {clock(taken)} by the clock, {clock(sum(os.times()[:4]))} of the processor's time")
