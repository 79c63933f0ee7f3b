"""Steps as JSON, both ways. The file's layout is the contract of `--json`; its schema is generated from these records.

A launch stands in the file with its kernel's fields beside its own and with the place of its first Op, so that a reader
needs no join. What is derived (phases, lines, busy_us) is written for readers and ignored when a file is read back.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from undertorch.records.kernels import Dim3, Kernel
from undertorch.records.kinds import Bound, Kind, Limiter, Math, Phase
from undertorch.records.launches import Launch
from undertorch.records.ops import Op
from undertorch.records.origins import Origin
from undertorch.records.ranks import RanksReport
from undertorch.records.steps import Accounting, Advice, Environment, Idle, Memory, Step
from undertorch.records.totals import Line, busy_us, lines, phases_us

SCHEMA = 1
"""Version of the layout. It grows when a field changes its meaning or goes; new fields do not change it."""

STREAMS = (Path("/dev/stdout"), Path("/dev/stderr"))
"""Lead to what the caller's output goes to, a file perhaps, that others write to as well."""


class BadFile(Exception):
    """A file that is no Step, said in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEntry:
    """A Launch as it stands in a file."""

    kernel: str
    kind: Kind
    library: str
    ops: tuple[int, ...]
    file: str | None
    line: int | None
    function: str | None
    module: str | None
    phase: Phase
    grid: Dim3 | None
    block: Dim3 | None
    registers: int | None
    shared_bytes: int | None
    resources_origin: Origin | None
    occupancy: float | None
    limiter: Limiter | None
    occupancy_origin: Origin | None
    geometry_origin: Origin | None
    min_bytes_read: int | None
    min_bytes_written: int | None
    traffic_bytes: int | None
    flops: int | None
    math: Math | None
    bytes_origin: Origin | None
    note: str | None
    done_flops: int | None = None
    sector_bytes: int | None = None
    random_numbers: int | None = None
    start_us: float
    time_us: float
    bound: Bound | None
    device: int
    stream: int
    time_origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFile:
    """A Step as it stands in a file."""

    schema: int
    gpu: str
    step_us: float | None
    busy_us: float
    samples: int | None
    time_origin: Origin
    phases: dict[Phase, float]
    launches: tuple[LaunchEntry, ...]
    ops: tuple[Op, ...]
    lines: tuple[Line, ...]
    idle: tuple[Idle, ...]
    memory: Memory
    advice: tuple[Advice, ...]
    accounting: Accounting
    environment: Environment
    ranks: RanksReport | None = None
    """Of the first of several ranks' steps: what they say of one another. Written for readers, like what is derived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    """Of a file of any schema: its number."""

    schema: int


KERNEL_FIELDS = tuple(field.name for field in fields(Kernel) if field.name != "name")
LAUNCH_FIELDS = tuple(field.name for field in fields(Launch) if field.name != "kernel")


def to_json(steps: Sequence[Step], as_list: bool = False, ranks: RanksReport | None = None) -> bytes:
    """One Step as an object, several (one a GPU) as a list; `as_list`: also one that stands for several. `ranks` is
    what several ranks' steps say of one another."""
    entries = [_to_file(step) for step in steps]
    entries[0] = replace(entries[0], ranks=ranks)
    return msgspec.json.encode(entries[0] if len(entries) == 1 and not as_list else entries)


def from_json(data: bytes, name: str) -> tuple[Step, ...]:
    """The Steps of a file's bytes. Raises BadFile, which names `name`, where it is not such a file."""
    _check_schema(data, name)  # first: another layout may lack any field of this one, and its number says why
    try:
        found = msgspec.json.decode(data, type=StepFile | tuple[StepFile, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(f"{name} is not a step that `undertorch see --json` wrote: {error}.") from error
    return tuple(_from_file(entry) for entry in (found if isinstance(found, tuple) else (found,)))


def write_steps(path: Path, steps: Sequence[Step], as_list: bool = False, ranks: RanksReport | None = None) -> None:
    """Writes the file whole or not at all. Raises OSError where it cannot be written."""
    write_whole(path, to_json(steps, as_list, ranks))


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all: aside, then renamed. Raises OSError where it cannot be written.

    What stands at `path` and is no regular file (a device such as /dev/null, a pipe, /dev/stdout) is written into:
    renaming onto it would take it away from everybody. A link stays a link; what it leads to is written. A file that
    was there keeps its permissions.
    """
    if path.is_relative_to("/dev/fd") or path in STREAMS or (path.exists() and not path.is_file()):
        with path.open("ab") as opened:
            opened.write(data)
        return
    path = path.resolve()
    aside = path.with_name(path.name + ".part")
    try:
        aside.write_bytes(data)
        if path.exists():
            shutil.copymode(path, aside)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def read_steps(path: Path | str) -> tuple[Step, ...]:
    """Raises BadFile where the file is not a step; OSError where it cannot be read."""
    return from_json(Path(path).read_bytes(), str(path))


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `see --json`: one step, or a list with one a GPU."""
    return msgspec.json.schema(StepFile | tuple[StepFile, ...])


def _check_schema(data: bytes, name: str) -> None:
    """Raises BadFile where the file has a schema number, and another than this one."""
    try:
        numbered = msgspec.json.decode(data, type=_Numbered | tuple[_Numbered, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for entry in numbered if isinstance(numbered, tuple) else (numbered,):
        if entry.schema != SCHEMA:
            raise BadFile(
                f"{name} has schema {entry.schema}; this undertorch reads schema {SCHEMA}: "
                "write it again with this version."
            )


def _to_file(step: Step) -> StepFile:
    by_id = {op.id: op for op in step.ops}
    return StepFile(
        schema=SCHEMA,
        gpu=step.gpu,
        step_us=step.step_us,
        busy_us=busy_us(step.launches),
        samples=step.samples,
        time_origin=step.time_origin,
        phases=phases_us(step.launches),
        launches=tuple(_entry(launch, by_id[launch.ops[0]] if launch.ops else None) for launch in step.launches),
        ops=step.ops,
        lines=lines(step),
        idle=step.idle,
        memory=step.memory,
        advice=step.advice,
        accounting=step.accounting,
        environment=step.environment,
    )


def _entry(launch: Launch, op: Op | None) -> LaunchEntry:
    where = None if op is None else op.where
    return LaunchEntry(
        kernel=launch.kernel.name,
        file=None if where is None else where.file,
        line=None if where is None else where.line,
        function=None if where is None else where.function,
        module=None if op is None else op.module,
        **{name: getattr(launch.kernel, name) for name in KERNEL_FIELDS},
        **{name: getattr(launch, name) for name in LAUNCH_FIELDS},
    )


def _from_file(entry: StepFile) -> Step:
    return Step(
        gpu=entry.gpu,
        step_us=entry.step_us,
        time_origin=entry.time_origin,
        samples=entry.samples,
        ops=entry.ops,
        launches=tuple(_launch(launch) for launch in entry.launches),
        idle=entry.idle,
        memory=entry.memory,
        advice=entry.advice,
        accounting=entry.accounting,
        environment=entry.environment,
    )


def _launch(entry: LaunchEntry) -> Launch:
    kernel = Kernel(name=entry.kernel, **{name: getattr(entry, name) for name in KERNEL_FIELDS})
    return Launch(kernel=kernel, **{name: getattr(entry, name) for name in LAUNCH_FIELDS})
