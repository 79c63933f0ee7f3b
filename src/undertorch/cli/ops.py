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
    shape: Annotated[
        str | None,
        typer.Argument(metavar="SHAPE", help="bench: the sizes to measure at, of most ops ROWSxWIDTH."),
    ] = None,
    dtype: Annotated[str, typer.Option(metavar="float32|bfloat16|float16", help="bench: of the rows.")] = "bfloat16",
) -> None:
    """The fused training ops: who serves which and why, and how fast each way is on this GPU."""
    catalogue, bad_call = _catalogue()
    op = op and op.lower()  # AdamW, as the class is called
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
    print(MODES)
    if not catalogue.has_gpu():
        print("There is no GPU here: nothing was measured or chosen on this machine.")
    for name in (op,) if op is not None else catalogue.NAMES:
        served = catalogue.candidates(name)
        print(name)
        for candidate in served:
            print(f"  {candidate.passes}: {candidate.kernel}, {candidate.who}")
            print(f"    serves {candidate.serves}")
            print(f"    {candidate.why}")
        where, rows = catalogue.measured(name)
        if rows:
            print(f"  published, in µs ({where}; docs/ops.md):")
        for row in rows:
            print(f"    {row.case}: {', '.join(f'{who} {time:,.0f}' for who, time in row.microseconds.items())}")
        chosen = list(catalogue.choices(name))
        if not chosen and catalogue.has_gpu():
            print(
                "  nothing is chosen here so far: the first call of a dtype, a width and a number of rows, between two "
                "powers of two, measures its ways"
            )
        for where, choice in chosen:
            print(f"  chosen for {_class(choice.key)}: {choice.way} ({choice.why}), on {where}")
            for way, time in sorted(choice.microseconds.items(), key=lambda pair: pair[1]):
                print(f"    {time:>10.1f} µs  {way}")


ROWS = {"attention": "heads of all samples", "rope": "tokens"}
"""By how the name of what is chosen for begins, what its rows are, where they are called something else."""
KEY = re.compile(r"(?P<name>\S+) (?P<dtype>\S+) (?P<rows>\d+)x(?P<width>\d+)(?: (?P<detail>.+))?")


def _class(key: str) -> str:
    """The calls that a choice holds for: rows are counted up to a power of two (ops/choose.py)."""
    found = KEY.fullmatch(key)
    if found is None:
        return key
    name, rows = found["name"], int(found["rows"])
    least = rows // 2 + 1
    many = f"{least:,} to {rows:,}" if least < rows else f"{rows:,}"
    what = next((word for op, word in ROWS.items() if name.startswith(op)), "row" if rows == 1 else "rows")
    detail = "" if found["detail"] is None else f" ({found['detail']})"
    return f"{name} of {found['dtype']}, {many} {what} of {int(found['width']):,}{detail}"


def _bench(catalogue: Any, op: str | None, shape: str | None, dtype: str) -> None:
    if op is None or shape is None or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", shape):
        raise BadInput("bench measures one op at one shape: undertorch ops bench rms_norm 16384x4096.")
    sizes = tuple(map(int, shape.split("x")))
    for each, times in catalogue.timed(op, sizes, dtype):
        least = f"{each.flops / 1e12:,.2f} TFLOP" if each.flops else f"{each.least_bytes / 1e6:,.1f} MB at least"
        print(f"{op} {each.name}, {shape.replace('x', ' x ')} {dtype}, {least}")
        for way, time in sorted(times.items(), key=lambda pair: pair[1]):
            done = each.flops or each.least_bytes
            print(f"  {time:>10.1f} µs  {done / time / 1e6:>7.2f} T{'FLOP' if each.flops else 'B'}/s  {way}")
