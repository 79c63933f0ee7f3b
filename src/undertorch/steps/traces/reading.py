"""From a file to the events of a trace: unpacked, decoded, mended where it can be, otherwise refused in a sentence."""

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from undertorch.steps.traces import damage
from undertorch.steps.traces.fields import CATEGORIES, ON_GPU, Args, Event, File, Is, number
from undertorch.steps.traces.mending import mended

GZIP = b"\x1f\x8b"
TRUNCATED = "truncated"
"""Is in msgspec's message about data that ends too early."""
SUFFIXES = (".json", ".json.gz", ".gz")


class BadTrace(Exception):
    """A file that is no trace, or one that no step can be read from, said in one sentence."""


@dataclass(slots=True, kw_only=True, eq=False)
class Seen:
    """An event that lasts, with what it was decoded to."""

    kind: Is
    name: str
    start: float
    end: float
    """Microseconds, from any moment."""
    lasts: float
    """Microseconds, as they were written: moments of today have no room for fractions in a float."""
    thread: tuple[object, object]
    """Process and thread; of something on the GPU, device and stream."""
    args: Args
    parent: "Seen | None" = None
    """The innermost call, range or Python function of its thread that it lies in."""

    @property
    def correlation(self) -> int | None:
        """The number that a launch shares with what it launched."""
        return number(self.args.correlation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a file holds, each list in order of time."""

    name: str
    on_gpu: tuple[Seen, ...]
    on_cpu: tuple[Seen, ...]
    allocations: tuple[tuple[float, int], ...]
    """When, and bytes alive on the GPU after it."""
    device: int
    """Number of the one GPU that did anything."""
    gpu_name: str | None
    """As the driver calls it."""
    versions: dict[str, str]
    repaired: int
    """Places in the text that were mended."""
    damaged: tuple[Event, ...]
    """Events that were left out, as their times cannot be."""


def is_trace(path: Path) -> bool:
    """Whether a file is a trace and no script: by its name, otherwise by how it begins."""
    if path.name.endswith(SUFFIXES):
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(GZIP)) == GZIP
    except OSError:
        return False


def read(path: Path) -> Trace:
    """Raises BadTrace."""
    name = str(path)
    file, repaired = _decoded(_unpacked(path), name)
    if file.events is None:
        if file.schema is not None:
            raise BadTrace(f"{name} is a step that undertorch wrote, and no trace; `undertorch compare` reads those.")
        raise BadTrace(f"{name} is JSON without traceEvents, so it is no trace of torch.profiler.")
    sound, damaged = damage.parted(file.events)
    why = damage.why_not_trusted(sound, damaged)
    if why is not None:
        raise BadTrace(f"{name} is damaged: {why}; record it anew.")
    seen = [one for event in sound if (one := _seen(event)) is not None]
    on_gpu = sorted((one for one in seen if one.kind in ON_GPU), key=lambda one: one.start)
    if not on_gpu:
        raise BadTrace(
            f"{name} holds nothing that ran on a GPU; record it with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA] where there is one."
        )
    device = _only_device(on_gpu, name)
    on_cpu = sorted((one for one in seen if one.kind not in ON_GPU), key=lambda one: (one.start, -one.end))
    _only_process(on_cpu, name)
    return Trace(
        name=name,
        on_gpu=tuple(on_gpu),
        on_cpu=tuple(on_cpu),
        allocations=tuple(_allocations(file.events)),
        device=device,
        gpu_name=next((each.name for each in file.devices if each.id == device and each.name), None),
        versions=_versions(file),
        repaired=repaired,
        damaged=tuple(damaged),
    )


def _seen(event: Event) -> Seen | None:
    kind = damage.kind(event)
    if kind is None or event.ts is None or event.dur is None:
        return None
    return Seen(
        kind=kind,
        name=event.name,
        start=event.ts,
        end=event.ts + event.dur,
        lasts=event.dur,
        thread=(event.pid, event.tid),
        args=event.args or Args(),
    )


def _unpacked(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}.") from error
    if not data.startswith(GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadTrace(f"{path} is damaged: its compressed data is cut off or wrong; copy it anew.") from error


def _decoded(data: bytes, name: str) -> tuple[File, int]:
    """The file, and how many places of its text were mended."""
    decoder = msgspec.json.Decoder(File | list[Event], strict=False)
    repaired = 0
    try:
        try:
            file = decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if isinstance(error, msgspec.ValidationError) or TRUNCATED in str(error):
                raise
            data, repaired = mended(data)
            file = decoder.decode(data)
    except msgspec.ValidationError as error:
        raise BadTrace(f"{name} is JSON, but no trace of torch.profiler: {error}.") from error
    except RecursionError as error:
        raise BadTrace(f"{name} is JSON that nests deeper than any trace of torch.profiler.") from error
    except msgspec.DecodeError as error:
        why = "it ends in the middle" if TRUNCATED in str(error) else str(error)
        raise BadTrace(f"{name} is no trace that can be read: {why}.") from error
    return (File(events=file), repaired) if isinstance(file, list) else (file, repaired)


def _only_device(on_gpu: Iterable[Seen], name: str) -> int:
    devices = Counter(number(one.args.device) for one in on_gpu)
    if len(devices) > 1:
        numbers = ", ".join(str(device) for device in sorted(devices, key=str))
        raise BadTrace(
            f"{name} holds what ran on {len(devices)} GPUs ({numbers}), and a step is shown for one; "
            "export a trace of each rank."
        )
    return next(iter(devices)) or 0


def _only_process(on_cpu: Iterable[Seen], name: str) -> None:
    processes = {one.thread[0] for one in on_cpu if one.kind is Is.LAUNCH}
    if len(processes) > 1:
        raise BadTrace(
            f"{name} holds {len(processes)} processes that launched kernels, and a step is shown for one; "
            "export a trace of each rank."
        )


def _allocations(events: Iterable[Event]) -> Iterable[tuple[float, int]]:
    for event in events:
        if CATEGORIES.get(event.cat or "") is Is.MEMORY and event.args is not None:
            alive, device_type = number(event.args.allocated), number(event.args.device_type)
            if event.ts is not None and alive is not None and device_type:
                yield event.ts, alive


def _versions(file: File) -> dict[str, str]:
    """CUDA writes 1000 · major + 10 · minor (CUDART_VERSION), HIP 10⁷ · major + 10⁵ · minor + patch (HIP_VERSION)."""
    versions = {}
    if file.cuda:
        versions["cuda"] = f"{file.cuda // 1000}.{file.cuda % 1000 // 10}"
    if file.hip:
        versions["hip"] = f"{file.hip // 10**7}.{file.hip // 10**5 % 100}"
    return versions
