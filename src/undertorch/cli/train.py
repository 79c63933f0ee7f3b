"""undertorch train: a language model, from text to checkpoint."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertorch.cli.exits import BadInput, Status
from undertorch.cli.progress import progress

if TYPE_CHECKING:
    from undertorch.train.loop import Ended

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
    preset: Annotated[str | None, typer.Option(help="The model: nano (the usual), gpt2-124m, llama-1b, …")] = None,
    steps: Annotated[int | None, typer.Option(help="Updates.")] = None,
    on: Annotated[On | None, typer.Option(help="cpu, cuda, or machine: a GPU in software, some steps only.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/PRESET if none is named.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    sample: Annotated[list[str] | None, typer.Option(metavar="PROMPT", help="Write on from this at the end.")] = None,
    see: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the step's page goes.")] = None,
    no_see: Annotated[bool, typer.Option("--no-see", help="Do not look at the step before training.")] = False,
    gpu: Annotated[str | None, typer.Option(help="The GPU that the step is predicted for.")] = None,
    export: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write the model for transformers.")] = None,
    batch: Annotated[int | None, typer.Option(help="Rows of one forward.")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Forwards before an update.")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens of a row.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Tokens that the text is cut into.")] = None,
    layers: Annotated[int | None, typer.Option(help="Blocks of the model.")] = None,
    width: Annotated[int | None, typer.Option(help="Elements of the model's rows.")] = None,
    heads: Annotated[int | None, typer.Option(help="Of attention.")] = None,
    rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights, shuffles and samples.")] = None,
    tokenizer: Annotated[str | None, typer.Option(metavar="FILE", help="A tokenizer.json to use.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Steps.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Steps.")] = None,
    keep: Annotated[int | None, typer.Option(help="Last checkpoints kept, beside the best.")] = None,
    recompute: Annotated[
        bool | None, typer.Option("--recompute", help="Less memory: activation checkpointing.")
    ] = None,
    compiled: Annotated[bool | None, typer.Option("--compile", help="Through torch.compile.")] = None,
    parallel: Annotated[str | None, typer.Option(help="Under torchrun: ddp or fsdp.")] = None,
    deterministic: Annotated[
        bool | None, typer.Option("--deterministic", help="Only kernels with the same result every time.")
    ] = None,
) -> int:
    """Train a language model, from text to checkpoint, with every kernel in view."""
    changes: dict[str, Any] = {
        "steps": steps, "batch": batch, "accumulate": accumulate, "context": context, "vocabulary": vocabulary,
        "layers": layers, "width": width, "heads": heads, "rate": rate, "seed": seed, "tokenizer": tokenizer,
        "evaluate_every": evaluate_every, "checkpoint_every": checkpoint_every, "keep": keep, "recompute": recompute,
        "compiled": compiled, "parallel": parallel, "deterministic": deterministic,
    }  # fmt: skip
    from undertorch.train.errors import TrainError

    try:
        if on is On.MACHINE:
            return _on_machine(preset, changes)
        from undertorch.train.start import Asked, start

        asked = Asked(
            texts=text or [], preset=preset, on=None if on is None else str(on), out=out, resume=resume,
            sample=sample or [], see=see, look=not no_see, gpu=gpu, export=export, changes=changes,
        )  # fmt: skip
        return _status(start(asked, progress()))
    except TrainError as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        where = "a file of the run" if error.filename is None else error.filename
        raise BadInput(
            f"{where} cannot be written or read: {error.strerror or error}; make room, or pass --out."
        ) from error
    except ModuleNotFoundError as error:
        if error.name in ("torch", "tokenizers", "safetensors", "triton"):
            raise BadInput(
                f"train needs {error.name}, which is not installed: pip install 'undertorch[train]'."
            ) from error
        raise


def _status(ended: "Ended") -> int:
    return {"interrupted": int(Status.INTERRUPTED), "terminated": TERMINATED}.get(str(ended), int(Status.FINE))


def _on_machine(preset: str | None, changes: dict[str, Any]) -> int:
    from undertorch.train.on_machine import compare

    return int(Status.FINE if compare(preset, changes, print) else Status.FOUND)
