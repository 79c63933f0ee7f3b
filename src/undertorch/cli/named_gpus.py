"""What `--gpu` names: a GPU, a sheet, or several with commas between."""

from typing import TYPE_CHECKING

from undertorch.cli.exits import BadInput

if TYPE_CHECKING:
    from undertorch.records import Gpu


def named_gpus(text: str) -> "tuple[Gpu, ...]":
    """The sheets of the GPUs that are named, each once, in order. Raises BadInput."""
    from undertorch import gpus

    names = [name.strip() for name in text.split(",")]
    if not all(names):
        missing = "no GPU is named" if not any(names) else "a comma stands without a name beside it"
        raise BadInput(f"--gpu {text!r}: {missing}; write --gpu H200, or --gpu H200,L4.")
    try:
        sheets = [gpus.find(name) for name in names]
    except (gpus.UnknownGpu, gpus.BadSheet) as error:
        raise BadInput(str(error)) from error
    return tuple({sheet.name: sheet for sheet in sheets}.values())


def only_gpu(text: str) -> "Gpu":
    """The sheet of the one GPU that traces are of. Raises BadInput."""
    sheet, *others = named_gpus(text)
    if others:
        names = ", ".join([sheet.name, *(other.name for other in others)])
        raise BadInput(f"--gpu {text}: a trace is of one GPU, and {names} are several; name the one that it is.")
    return sheet
