"""undertorch train: a language model, from text to checkpoint."""

import errno
import os
import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertorch.cli.exits import BadInput, Status
from undertorch.cli.progress import progress

if TYPE_CHECKING:
    from undertorch.train.loop import Ended

SPINS = "5000"
"""Rounds in which a thread of OpenMP without work looks for some before it sleeps. libgomp's own 300,000 (its manual,
GOMP_SPINCOUNT) hold cores that other programs, or the thread it waits for, would use: 1,800 tokens a second of `nano`
on two cores that three others wanted as well, and 3,900 with so many.
"""
TERMINATED = 143
"""128 + SIGTERM, as shells count."""


class On(StrEnum):
    """Where the step runs."""

    CPU = "cpu"
    CUDA = "cuda"
    MACHINE = "machine"


def train(
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT…]", help="Files, folders, globs, .gz, -; nothing: Python's standard library."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model: nano, nano-llama, gpt2-124m, gpt2-350m, gpt2-774m, gpt2-1.5b, llama-150m, llama-1b.",
            show_default="nano",
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="Updates of the weights: of nano 200, of the large ones 20,000.")
    ] = None,
    on: Annotated[
        On | None,
        typer.Option(
            help="machine: a few steps of a small model of the family, its kernels run by a GPU in software, beside "
            "the same steps by torch.",
            show_default="cuda where there is a GPU",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The run's.", show_default="runs/PRESET")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    resume_or_begin: Annotated[
        bool, typer.Option("--resume-or-begin", help="The same, or begin where there is no run yet: for job scripts.")
    ] = False,
    sample: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROMPT",
            help="Text that the trained model writes on from. Repeatable; without it five samples of its own.",
        ),
    ] = None,
    see: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the HTML page of one step goes.", show_default="OUT/step.html"),
    ] = None,
    no_see: Annotated[
        bool, typer.Option("--no-see", help="Train at once, without showing one step's kernels first.")
    ] = False,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Predict the shown step for it.", show_default="this GPU, measured; else H200"
        ),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the trained model as transformers loads it.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Rows (sequences) of one forward on one device.")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Forwards and backwards before an update.")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens of a row.")] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Different tokens of the tokenizer that is trained on the text.")
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Transformer blocks.")] = None,
    width: Annotated[int | None, typer.Option(help="Of the embedding (d_model).")] = None,
    heads: Annotated[int | None, typer.Option(help="Heads of attention; they divide the width.")] = None,
    rate: Annotated[float | None, typer.Option(help="The highest learning rate, after the warm-up.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights, shuffles and samples.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="FILE", help="A tokenizer.json to use, in place of one trained on the text.")
    ] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(metavar="N", help="Steps between looks at the held-out text.")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(metavar="N", help="Steps between checkpoints.")] = None,
    keep: Annotated[
        int | None, typer.Option(metavar="N", help="Last checkpoints kept, beside the best.", show_default="2")
    ] = None,
    recompute: Annotated[
        bool | None, typer.Option("--recompute", help="Activation checkpointing: less memory, more time.")
    ] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile", help="Let torch.compile make the model's kernels.")
    ] = None,
    whole_logits: Annotated[
        bool, typer.Option("--whole-logits", help="Make all logits at once: less kernel time, more memory.")
    ] = False,
    parallel: Annotated[
        str | None, typer.Option(metavar="ddp|fsdp", help="Under torchrun.", show_default="ddp")
    ] = None,
    sparing: Annotated[
        bool | None,
        typer.Option(
            "--sparing/--no-sparing",
            help="Under fsdp: gather weights anew for the backward, and sum gradients at every microbatch.",
            show_default="where memory is short",
        ),
    ] = None,
    graphs: Annotated[
        bool | None,
        typer.Option(
            "--graphs/--no-graphs", help="Replay a GPU's step as CUDA graphs, where it can be.", show_default="graphs"
        ),
    ] = None,
    deterministic: Annotated[
        bool | None, typer.Option("--deterministic", help="Only kernels with the same result every time.")
    ] = None,
) -> int:
    """Train a language model, from text to checkpoint, with every kernel in view.

    What is not said is the preset's. The run's folder gets metrics.jsonl, loss.svg, step.html, checkpoints/, run.json.
    """
    changes: dict[str, Any] = {
        "steps": steps, "batch": batch, "accumulate": accumulate, "context": context, "vocabulary": vocabulary,
        "layers": layers, "width": width, "heads": heads, "rate": rate, "seed": seed, "tokenizer": tokenizer,
        "evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every, "keep": keep, "recompute": recompute,
        "compiled": compiled, "fused_loss": False if whole_logits else None, "parallel": parallel,
        "sparing": sparing, "graphs": graphs, "deterministic": deterministic,
    }  # fmt: skip
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read when torch is imported, as it is from here on
    from undertorch.train.errors import TrainError

    resume = resume or resume_or_begin
    try:
        if on is On.MACHINE:
            of_a_run = {
                "TEXT": text, "--out": out, "--resume": resume, "--sample": sample, "--see": see, "--gpu": gpu,
                "--export": export,
            }  # fmt: skip
            if given := [name for name, value in of_a_run.items() if value]:
                raise BadInput(f"--on machine runs steps on made-up tokens, and no more; leave out {', '.join(given)}.")
            return _on_machine(preset, changes)
        from undertorch.train.start import Asked, start

        asked = Asked(
            texts=text or [], preset=preset, on=None if on is None else str(on), out=out, resume=resume,
            or_begin=resume_or_begin, sample=sample or [], see=see, look=not no_see, gpu=gpu, export=export,
            changes=changes,
        )  # fmt: skip
        status = _status(start(asked, progress()))
        if status == Status.INTERRUPTED:
            _end_at_once()
        return status
    except KeyboardInterrupt:
        _end_at_once()
        raise
    except TrainError as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        where = "a file of the run" if error.filename is None else error.filename
        do = (
            "make room, or pass --out"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else "pass --out for another place"
        )
        raise BadInput(f"{where} cannot be written or read: {error.strerror or error}; {do}.") from error
    except ModuleNotFoundError as error:
        if error.name in ("torch", "tokenizers", "safetensors", "triton"):
            raise BadInput(
                f"train needs {error.name}, which is not installed: pip install 'undertorch[train]'."
            ) from error
        raise


def _end_at_once() -> None:
    """All is saved, or is not going to be: Ctrl-C once more ends the process in the middle of whatever its end does."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _status(ended: "Ended") -> int:
    return {"interrupted": int(Status.INTERRUPTED), "terminated": TERMINATED}.get(str(ended), int(Status.FINE))


def _on_machine(preset: str | None, changes: dict[str, Any]) -> int:
    from undertorch.train.on_machine import compare

    return int(Status.FINE if compare(preset, changes, print) else Status.FOUND)
