"""undertorch check: whether kernels race, and the other classic holes, with no GPU."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from undertorch.cli.check_outputs import Outputs
from undertorch.cli.check_targets import DEFAULT_GPU, Asked, checked_target, split_target
from undertorch.cli.exits import BadInput, Status, say
from undertorch.cli.named_gpus import only_gpu
from undertorch.records.findings import Severity


class CheckCommand(TyperCommand):
    """Behind a program (train.py, tests/test_kernels.py) arguments are its own; behind a kernel they are ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Lets a program have what follows it."""
        ctx.allow_interspersed_args = not any(text.endswith(".py") for text in args)
        return super().parse_args(ctx, args)


def check(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="SCRIPT.py|TEST.py|FILE.py::NAME|KERNEL.cu|KERNEL.ptx",
            help="A program whose kernels are checked as it launches them, a function or kernel of a file, or a kernel "
            "in CUDA C++ or PTX.",
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="The program's own arguments, passed on untouched.")
    ] = None,
    kernel: Annotated[str | None, typer.Option(metavar="NAME", help="Which kernel, where there are several.")] = None,
    grid: Annotated[str | None, typer.Option(metavar="X[,Y,Z]", help="Blocks; of KERNEL.cu 1 unless said.")] = None,
    block: Annotated[str | None, typer.Option(metavar="X[,Y,Z]", help="Threads of a block; 128 unless said.")] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="An argument, in order: f32[1024] (random), f32[8,8]=zeros|ones|arange|empty|x.npy, 1024, 0.5, none; "
            "of FILE.py::NAME by name, too: BLOCK=128.",
        ),
    ] = None,
    shared: Annotated[int, typer.Option(metavar="BYTES", min=0, help="Dynamic shared memory.")] = 0,
    gpu: Annotated[str, typer.Option(metavar="NAME", help="The GPU whose limits hold.")] = DEFAULT_GPU,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="How many orders of warps to try.")] = 1,
    every: Annotated[
        bool, typer.Option("--every-launch", help="Look at each launch of a program, not at some of many equal ones.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End a training script after N steps of its optimizer.")
    ] = None,
    allow_no_kernels: Annotated[
        bool, typer.Option("--allow-no-kernels", help="A program that launches no kernel is fine: exit status 0.")
    ] = False,
    option: Annotated[
        list[str] | None, typer.Option(metavar="OPTION", help="For the compiler, such as -DTILE=32. Repeatable.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the findings as JSON; - for standard output.")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write them as SARIF 2.1.0, for code scanning.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page, with pictures of banks, lanes and sectors.")
    ] = None,
    github: Annotated[bool, typer.Option("--github", help="Print annotations for GitHub Actions, too.")] = False,
    fail_on: Annotated[
        str, typer.Option(metavar="error|warning|note", help="From which severity on the exit status is 1.")
    ] = "error",
) -> Status:
    """Runs kernels on a GPU in software and reports races, bad barriers and bad accesses, each at its line."""
    from undertorch.checks.relative import relative
    from undertorch.checks.suppressions import BadSuppression, suppressed, suppressions

    if arguments and arguments[0] == "--":  # it parts the program's arguments from ours
        arguments = arguments[1:]
    threshold = severity(fail_on)
    file, name = split_target(target)
    outputs = Outputs(json=json, sarif=sarif, page=page, github=github)
    outputs.check([file])
    asked = Asked(
        file=file, name=name, arguments=tuple(arguments or ()), kernel=kernel, grid=grid, block=block,
        specs=tuple(arg or ()), shared=shared, gpu=only_gpu(gpu), seeds=seeds, every=every,
        options=tuple(option or ()), steps=steps,
    )  # fmt: skip
    try:
        listed = suppressions(file)
    except BadSuppression as error:
        raise BadInput(str(error)) from error
    here = Path.cwd()
    try:
        with outputs.of_programs():
            done = checked_target(asked)
    finally:
        os.chdir(here)  # a program may have gone elsewhere, and what is written is named from here
    checked = tuple(relative(one, here) for one in done.checked)
    checked, stale = suppressed(checked, listed)
    outputs.write(checked, stale)
    if done.ended is not None:
        say(done.ended)
    if done.trouble is not None:
        say(done.trouble)
        return Status.FINE if done.nothing and allow_no_kernels else Status.BAD_INPUT
    return Status.FOUND if any(one.at_least(threshold) for one in checked) else Status.FINE


def severity(text: str) -> Severity:
    """Raises BadInput."""
    try:
        return Severity(text)
    except ValueError:
        raise BadInput(f"--fail-on {text}: it is one of {', '.join(Severity)}.") from None
