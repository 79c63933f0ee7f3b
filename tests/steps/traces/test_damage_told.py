"""What is said of each kind of damage: the table in docs/traces.md holds the sentences, and each is provoked here."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from steps.traces.by_hand import Script
from undertorch.records.totals import busy_us
from undertorch.steps.traces import BadTrace, see_trace

PAGE = Path(__file__).parents[3] / "docs" / "traces.md"


def sentences() -> dict[str, str]:
    """What the page says is told, by the kind of damage."""
    table = PAGE.read_text(encoding="utf-8").partition("## Damaged files")[2].partition("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ")]
    return {row[0]: row[1] for row in rows[2:]}


def script(kernels: int = 20) -> Script:
    """Calls that launch a kernel of 8 µs each, 100 µs apart."""
    made = Script()
    for place in range(kernels):
        made.call(f"aten::call{place}", 100 * place, 10)
        made.kernel(f"kernel{place}", 100 * place + 5, 100 * place + 20, 8)
    return made


def text(right: bytes = b"", wrong: bytes = b"", of: Script | None = None) -> bytes:
    """Of a trace, with its first piece of text replaced."""
    written = json.dumps((of or script()).content()).encode()
    assert right in written
    return written.replace(right, wrong, 1)


def with_event(name: str, **change: object) -> bytes:
    made = script()
    (event,) = [event for event in made.events if event["name"] == name]
    event |= change
    return text(of=made)


def without_start() -> bytes:
    """Eleven days after the clock's zero, one kernel starts at zero."""
    made = script()
    for event in made.events:
        event["ts"] += 1e12
        if event["name"] == "kernel3":
            event["ts"] = 0
    return text(of=made)


def lost() -> bytes:
    """The launch of the eleventh kernel is there, the kernel is not."""
    made = script()
    made.events = [event for event in made.events if event["name"] != "kernel10"]
    return text(of=made)


def twice() -> bytes:
    made = script()
    made.events += [event for event in made.events if event["name"] == "kernel3"]
    return text(of=made)


def negative() -> bytes:
    made = script()
    (event,) = [event for event in made.events if event["name"] == "kernel3"]
    event["args"] |= {"registers per thread": -1, "shared memory": "-16", "grid": [-132, 1, 1]}
    return text(of=made)


def old() -> bytes:
    made = script()
    names = {"kernel": "Kernel", "cpu_op": "Operator", "cuda_runtime": "Runtime"}
    for event in made.events:
        event["cat"] = names[event["cat"]]
    return text(of=made)


def two_processes() -> bytes:
    made = script()
    made.events[1]["pid"] = 200
    return text(of=made)


def metadata() -> bytes:
    return json.dumps({"traceEvents": [{"ph": "M", "name": "process_name", "args": {"name": "python"}}]}).encode()


NAME = b"aten::call3"
DAMAGES: dict[str, Callable[[], bytes]] = {
    "gzip that is cut off": lambda: gzip.compress(text())[:-40],
    "gzip within gzip": lambda: gzip.compress(gzip.compress(text())),
    "an empty file": lambda: b"",
    "JSON that is cut off": lambda: text()[:-400],
    "`null` for a name": lambda: text(b'"kernel3"', b"null"),
    "control bytes in a text": lambda: text(NAME, b"aten::\x01call3"),
    "raw newlines in a text": lambda: text(NAME, b"aten::\ncall3"),
    "quotes in a text": lambda: text(NAME, b'aten::"call"3'),
    "wrong escapes (`\\c`)": lambda: text(NAME, b"aten::\\call3"),
    "bytes that are no UTF-8": lambda: text(NAME, b"aten::\xffcall3"),
    "`nan`, `inf`": lambda: text(b'"ts": 0,', b'"ts": 0, "x": nan, "y": -inf,'),
    "whole numbers beyond 2⁶³": lambda: text(b'"External id": 0', b'"External id": 18446744073709551616000'),
    "no duration, or a negative one": lambda: with_event("kernel3", dur=-8),
    "a start of 0, or another that cannot be": without_start,
    "a duration of 0": lambda: with_event("kernel3", dur=0),
    "every duration 0": lambda: text(of=script()).replace(b'"dur": 8', b'"dur": 0'),
    "too much of that": lambda: text(of=script()).replace(b'"dur": 8', b'"dur": -8'),
    "a kernel that runs into the next": lambda: with_event("kernel3", dur=150),
    "a kernel far from its launch's neighbours": lambda: with_event("kernel3", ts=1e9),
    "an end past all others": lambda: with_event("kernel3", dur=1e9),
    "a kernel that is there twice": twice,
    "negative registers, grid, bytes": negative,
    "a lost kernel whose launch is there": lost,
    "metadata and no events": metadata,
    "no `traceEvents`": lambda: b'{"schemaVersion": 1}',
    "categories of before torch 1.13": old,
    "two processes in one file": two_processes,
}


def told(folder: Path, damaged: bytes) -> str:
    """The refusal; or what the report says beyond what it says of the undamaged trace; or that nothing is said."""
    file = folder / "trace.json"
    file.write_bytes(text())
    usual, _ = see_trace(file)
    file.write_bytes(damaged)
    try:
        step, _ = see_trace(file)
    except BadTrace as error:
        return str(error).replace(str(file), "trace.json")
    said = {one.what for one in step.accounting.assumed} - {one.what for one in usual.accounting.assumed}
    if step.accounting.repaired:
        said.add(f"{step.accounting.repaired} mended")
    if step.accounting.lost_launches:
        said.add(f"{step.accounting.lost_launches} lost")
    return " ".join(sorted(said)) or "nothing"


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_is_said_is_what_the_page_says(tmp_path, kind):
    """Counts are in the terminal's words: `1 damaged event mended in reading.`, `The profiler lost 1 launch.`"""
    said = told(tmp_path, DAMAGES[kind]())
    said = re.sub(r"^(\d+) mended$", lambda m: f"{m[1]} damaged event{'s' * (m[1] != '1')} mended in reading.", said)
    said = re.sub(r"^(\d+) lost$", lambda m: f"The profiler lost {m[1]} launch{'es' * (m[1] != '1')}.", said)
    assert sentences()[kind] == said


def test_the_page_has_no_other_kinds():
    assert sentences().keys() == {*DAMAGES, "1 GB and more"}


@pytest.mark.parametrize("kind", ["control bytes in a text", "quotes in a text", "`nan`, `inf`", "a duration of 0"])
def test_what_is_mended_loses_no_kernel(tmp_path, kind):
    file = tmp_path / "trace.json"
    file.write_bytes(DAMAGES[kind]())
    step, _ = see_trace(file)
    assert len(step.launches) == 20


def test_a_kernel_that_runs_into_the_next_is_not_counted_twice(tmp_path):
    """From 320 to 470, over the next at 420: twenty times 8, 142 more, and 8 that are covered."""
    file = tmp_path / "trace.json"
    file.write_bytes(DAMAGES["a kernel that runs into the next"]())
    step, _ = see_trace(file)
    assert busy_us(step.launches) == pytest.approx(20 * 8 + 142 - 8)


def test_a_microsecond_of_overlap_is_not_worth_a_word(tmp_path):
    assert told(tmp_path, with_event("kernel3", dur=101)) == "nothing"


@pytest.mark.parametrize("kind", ["an end past all others", "a kernel that is there twice"])
def test_what_a_damaged_kernel_adds_is_no_time(tmp_path, kind):
    """Twenty kernels of 8 µs, one each 100 µs; one that was cut fills the 100 µs to the next."""
    file = tmp_path / "trace.json"
    file.write_bytes(DAMAGES[kind]())
    step, _ = see_trace(file)
    assert len(step.launches) == 20
    assert step.step_us == 19 * 100 + 8
    assert busy_us(step.launches) == pytest.approx(20 * 8 + (92 if kind == "an end past all others" else 0))


@pytest.mark.parametrize("start", [-1e9, 1e9])
def test_a_kernel_far_from_its_launch_does_not_make_the_step_longer(tmp_path, start):
    file = tmp_path / "trace.json"
    file.write_bytes(with_event("kernel3", ts=start))
    step, _ = see_trace(file)
    assert (len(step.launches), step.step_us) == (19, 19 * 100 + 8)


def test_negative_sizes_are_unknown(tmp_path):
    file = tmp_path / "trace.json"
    file.write_bytes(negative())
    kernel = see_trace(file)[0].launches[3].kernel
    assert (kernel.grid, kernel.registers, kernel.shared_bytes) == (None, None, None)


def test_a_graphs_kernel_may_be_longer_than_what_runs_beside_it(tmp_path):
    made = Script()
    made.kernel("long", 0, 20, 1000)
    long = made.events[-1]
    made.events += [{**long, "name": "short", "ts": 40 + 20 * place, "dur": 10} for place in range(10)]
    step, _ = see_trace(made.write(tmp_path))
    assert step.step_us == 1000


ADDMM = {
    "Input Dims": [[512], [1024, 256], [256, 512], [], []],
    "Input type": ["float", "float", "float", "Scalar", "Scalar"],
    "Input Strides": [[1], [256, 1], [1, 256], [], []],
    "Concrete Inputs": ["", "", "", "1", "1"],
}


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        *(("Input type", wrong) for wrong in (None, 7, {"a": {"b": 1}}, "float", [None, 7, {}, [], "float"])),
        *(("Input Dims", wrong) for wrong in ("ab", 5, [5, 5, 5], [5, 5, 5, 5, 5], {"a": 1}, True)),
        *(
            ("Input Dims", [[512], [size, 256], [256, 512], [], []])
            for size in ("1024", -1, 1.5, 2**62, None, [1], True, {}, 10**30)
        ),
        *(("Input Strides", [[1], [stride, 1], [1, 256], [], []]) for stride in ("x", -1, 2**70, [[]], 1.5)),
        ("Input Strides", 3),
        ("Concrete Inputs", [[], {}, "", "1", "1"]),
        ("Concrete Inputs", None),
    ],
)
def test_a_call_whose_arguments_are_described_wrongly_has_none(tmp_path, column, wrong):
    made = Script()
    made.call("aten::addmm", 0, 10, **ADDMM)
    made.kernel("gemm", 2, 20, 5)
    assert see_trace(made.write(tmp_path))[0].ops[0].arguments
    made.events[0]["args"][column] = wrong
    (op,) = see_trace(made.write(tmp_path))[0].ops
    assert op.arguments == ()


def test_bytes_that_are_no_utf8_in_what_is_passed_over_are_counted(tmp_path):
    made = Script()
    made.call("aten::addmm", 0, 10, **ADDMM)
    made.kernel("gemm", 2, 20, 5)
    file = tmp_path / "trace.json"
    file.write_bytes(json.dumps(made.content()).encode().replace(b'"Scalar"', b'"Sca\xfflar"', 1))
    step, _ = see_trace(file)
    assert step.accounting.repaired == 1
    assert len(step.launches) == 1


@pytest.mark.parametrize("written", ["²", "5" * 5000, "٣" * 5000, "", "-", "1e5"])
def test_what_is_no_number_is_unknown(tmp_path, written):
    made = script()
    (event,) = [event for event in made.events if event["name"] == "kernel3"]
    event["args"] |= {"registers per thread": written, "correlation": written}
    file = tmp_path / "trace.json"
    file.write_bytes(text(of=made))
    assert see_trace(file)[0].launches[3].kernel.registers is None


def test_a_gpus_clock_that_is_behind_loses_no_kernel(tmp_path):
    """The first kernel, a pause, and all of them 50 µs before their launches by the clocks."""
    made = Script()
    for place, moment in enumerate((0, 10_000, 10_020, 10_040)):
        made.call("aten::add", moment, 10)
        made.kernel(f"kernel{place}", moment + 2, moment - 50, 8)
    step, _ = see_trace(made.write(tmp_path))
    assert len(step.launches) == 4
