"""undertorch ops: the fused training ops, who serves them and why, and how fast each way is here."""

import re
from enum import StrEnum
from typing import Annotated, Any

import typer

from undertorch.cli.exits import BadInput


class Question(StrEnum):
    """What can be asked."""

    LIST = "list"
    EXPLAIN = "explain"
    BENCH = "bench"


def ops(
    question: Annotated[
        Question,
        typer.Argument(help="list: the ops; explain: which kernels serve one, and why; bench: every way, timed."),
    ] = Question.LIST,
    op: Annotated[
        str | None, typer.Argument(metavar="OP", help="One op, such as rms_norm; explain without one: all.")
    ] = None,
    shape: Annotated[str | None, typer.Argument(metavar="ROWSxWIDTH", help="bench: the shape to measure at.")] = None,
    dtype: Annotated[str, typer.Option(metavar="float32|bfloat16|float16", help="bench: of the rows.")] = "bfloat16",
) -> None:
    """The fused training ops: who serves which and why, and how fast each way is on this GPU."""
    catalogue, bad_call = _catalogue()
    try:
        if question is Question.LIST:
            _list(catalogue)
        elif question is Question.EXPLAIN:
            _explain(catalogue, op)
        else:
            _bench(catalogue, op, shape, dtype)
    except bad_call as error:
        raise BadInput(str(error)) from error


def _catalogue() -> tuple[Any, Any]:
    try:
        from undertorch.ops import BadCall, catalogue
    except ImportError as error:
        raise BadInput(f"the ops need torch and Triton ({error}); pip install 'undertorch[torch]'.") from error
    return catalogue, BadCall


def _list(catalogue: Any) -> None:
    width = max(map(len, catalogue.NAMES))
    for name in catalogue.NAMES:
        print(f"{name:{width}}  {catalogue.summary(name)}")


MODES = (
    "UNDERTORCH_OPS, a variable of the environment, says who is asked: auto (measured once on each GPU, the default), "
    "own (ours), library (torch's)."
)


def _explain(catalogue: Any, op: str | None) -> None:
    from undertorch.ops import choose

    print(MODES)
    for name in (op,) if op is not None else catalogue.NAMES:
        served = catalogue.candidates(name)
        print(name)
        for candidate in served:
            print(f"  {candidate.passes}: {candidate.kernel}, {candidate.who}")
            print(f"    serves {candidate.serves}")
            print(f"    {candidate.why}")
            if candidate.figures is not None:
                print(f"    measured: {candidate.figures}")
        for where, choices in choose.everything_stored().items():
            for choice in choices.values():
                if choice.key.startswith(f"{name}_"):
                    print(f"  chosen on {where}: {choice.key}: {choice.way} ({choice.why})")
                    for way, time in sorted(choice.microseconds.items(), key=lambda pair: pair[1]):
                        print(f"    {time:>10.1f} µs  {way}")


def _bench(catalogue: Any, op: str | None, shape: str | None, dtype: str) -> None:
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", shape or "")
    if op is None or match is None:
        raise BadInput("bench measures one op at one shape: undertorch ops bench rms_norm 16384x4096.")
    for each, times in catalogue.timed(op, int(match[1]), int(match[2]), dtype):
        print(f"{op} {each.name}, {match[1]} x {match[2]} {dtype}, {each.least_bytes / 1e6:,.1f} MB at least")
        for way, time in sorted(times.items(), key=lambda pair: pair[1]):
            print(f"  {time:>10.1f} µs  {each.least_bytes / time / 1e6:>6.2f} TB/s  {way}")
