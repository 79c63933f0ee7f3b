"""A sheet: one GPU as TOML, every figure beside its source.

    name = "H200"                                    # who it is
    source = "…"                                     # where the figures above or below it come from
    [processor]                                      # figures in groups; their names and units are those of records.Gpu
    source = "…"                                     # of every figure of the group
    sms = 132
    boost_clock_mhz = { value = 1980, source = "…" } # a figure with a source of its own
    [peaks]                                          # operations a second, dense, by records.Math
    tensor-bf16 = 989.4e12

A sheet of one's own may start from one of undertorch's, `like = "H200"`, and say only what differs (see `_like`).
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any, get_args, get_type_hints

import msgspec

from undertorch.records import Gpu, Math

IDENTITY = ("name", "full_name", "vendor", "architecture", "compute_capability", "verified")
GROUPS: dict[str, tuple[str, ...]] = {
    "processor": ("sms", "cuda_cores_per_sm", "boost_clock_mhz", "base_clock_mhz", "tensor_clock_mhz"),
    "memory": (
        "memory_bytes",
        "memory_bandwidth",
        "memory_bus_bits",
        "memory_clock_mhz",
        "l2_bytes",
        "l2_bandwidth",
        "sector_bytes",
        "line_bytes",
    ),
    "links": ("nvlink_bandwidth", "pcie_bandwidth"),
    "peaks": tuple(math.value for math in Math),
    "limits": (
        "warp_size",
        "max_threads_per_block",
        "max_threads_per_sm",
        "max_blocks_per_sm",
        "registers_per_sm",
        "registers_per_block",
        "max_registers_per_thread",
        "register_allocation_unit",
        "warp_allocation_granularity",
        "barriers_per_sm",
    ),
    "shared": (
        "banks",
        "bank_bytes",
        "shared_bytes_per_clock",
        "shared_per_sm",
        "shared_per_block",
        "shared_per_block_optin",
        "shared_reserved_per_block",
        "shared_allocation_unit",
        "shared_carveouts",
    ),
    "measured": ("achieved_bandwidth", "launch_gap_us", "host_speed"),
}
"""Which figure stands in which table of a sheet. `peaks` holds rates by unit; the other names are fields of Gpu."""

MAY_BE_ZERO = ("compute_capability", "shared_reserved_per_block", "shared_carveouts")
LEAST, MOST = 1e-9, 1e24
"""No other figure is smaller or larger: it is a slip of the finger, or infinity."""
MOST_WHOLE = 10**15
"""No whole number is larger: bytes of a thousand of the largest GPUs, and everything else is counted in fewer."""

AT_MOST = (
    ("base_clock_mhz", "boost_clock_mhz"),
    ("tensor_clock_mhz", "boost_clock_mhz"),
    ("warp_size", "max_threads_per_block"),
    ("max_threads_per_block", "max_threads_per_sm"),
    ("registers_per_block", "registers_per_sm"),
    ("shared_per_block", "shared_per_block_optin"),
    ("shared_per_block_optin", "shared_per_sm"),
    ("achieved_bandwidth", "memory_bandwidth"),
)
"""Pairs of fields whose first cannot be larger than its second."""

HINTS = get_type_hints(Gpu)
DEFAULTS = {field.name: field.default for field in fields(Gpu) if field.default not in (MISSING, None)}
EXPECTED = {
    int: "a whole number above 0",
    float: "a number above 0",
    str: "a text",
    bool: "true or false",
    tuple[int, int]: "two whole numbers, such as [9, 0]",
    tuple[int, ...]: "a list of whole numbers, the smallest first",
}


class BadSheet(Exception):
    """A file that is no sheet, said in one sentence: which file, which figure, what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One entry of a sheet, its value unchecked."""

    where: str
    """As a reader finds it: `processor.sms`."""
    value: Any
    source: str | None


def parse(text: str, file: str, named: Callable[[str], Gpu]) -> Gpu:
    """The GPU that a sheet's text describes; `named` gives the GPU that its `like` names.

    Raises BadSheet, naming `file`, for what is no TOML, a missing figure, an unknown key, a wrong type or an impossible
    value; and what `named` raises.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSheet(f"{file} is not TOML: {error}.") from error
    except (ValueError, RecursionError) as error:  # a number of more digits than Python reads; lists in lists in lists
        raise BadSheet(f"{file} is TOML that no sheet is: {error}.") from error
    like = document.pop("like", None)
    if like is not None and not isinstance(like, str):
        raise BadSheet(f'{file}: like is {like!r}; expected the name of a GPU, such as like = "H200".')
    given = {name: _checked(figure, name, file) for name, figure in _figures(document, file)}
    unsaid = f"{PurePath(file).name} (no source given)"
    sources = {name: figure.source or unsaid for name, figure in given.items()}
    values = {name: figure.value for name, figure in given.items()}
    gpu = _whole(values, sources, file) if like is None else _like(named(like), values, sources, file)
    _check_order(gpu, file)
    return gpu


def _figures(document: Mapping[str, Any], file: str) -> Iterator[tuple[str, Figure]]:
    """Every entry by its name in `Gpu.sources`: a field, or `peaks.` and the unit."""
    for key, entry in document.items():
        if key in GROUPS:
            if not isinstance(entry, dict):
                raise BadSheet(f"{file}: {key} is {entry!r}; expected a table, [{key}].")
            yield from _group(key, entry, file)
        elif key != "source" and key not in IDENTITY:
            raise BadSheet(f"{file}: {key} is unknown; {_guess(key, (*IDENTITY, *GROUPS, 'source', 'like'))}")
    yield from _entries("", {key: document[key] for key in (*IDENTITY, "source") if key in document}, file)


def _group(group: str, entry: Mapping[str, Any], file: str) -> Iterator[tuple[str, Figure]]:
    for key in entry:
        if key != "source" and key not in GROUPS[group]:
            raise BadSheet(f"{file}: {group}.{key} is unknown; {_guess(key, GROUPS[group])}")
    for key, figure in _entries(f"{group}.", entry, file):
        yield (f"peaks.{key}" if group == "peaks" else key), figure


def _entries(prefix: str, table: Mapping[str, Any], file: str) -> Iterator[tuple[str, Figure]]:
    common = table.get("source")
    for key, entry in table.items():
        where = prefix + key
        own = entry if isinstance(entry, dict) else {"value": entry}
        if not {"value"} <= own.keys() <= {"value", "source"}:
            raise BadSheet(f'{file}: {where} is {entry!r}; expected a figure, or {{ value = …, source = "…" }}.')
        source = own.get("source", common)
        if not isinstance(source, str | None):
            raise BadSheet(f"{file}: the source of {where} is {source!r}; expected a text.")
        if key != "source":
            yield key, Figure(where=where, value=own["value"], source=source)


def _checked(figure: Figure, name: str, file: str) -> Figure:
    """The figure with its value in the type of its field. Raises BadSheet for a wrong type or an impossible value."""
    hint = float if name.startswith("peaks.") else _plain(HINTS[name])
    least = 0 if name in MAY_BE_ZERO else LEAST
    expected = EXPECTED[hint].replace("above 0", "above 0" if least else "of 0 or more")
    if hint is int and isinstance(figure.value, float):
        expected += ", written as 80_000_000_000 and not as 80e9"
    most = MOST if hint is float else MOST_WHOLE
    if hint in (int, float) and _is_number(figure.value) and figure.value > most:
        expected += " and at most " + f"{most:.0e}".replace("+", "")
    refusal = BadSheet(f"{file}: {figure.where} is {figure.value!r}; expected {expected}.")
    try:
        value = msgspec.convert(figure.value, hint)
    except msgspec.ValidationError as error:
        raise refusal from error
    numbers = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(n, str | bool) or least <= n <= most for n in numbers) or value == "":
        raise refusal
    if isinstance(value, str) and not (value.isprintable() and value.strip()):
        raise BadSheet(f"{file}: {figure.where} is {value!r}; expected a text of one line, with no control characters.")
    return replace(figure, value=value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plain(hint: Any) -> Any:
    """The type without its None."""
    options = [option for option in get_args(hint) if option is not type(None)]
    return options[0] if type(None) in get_args(hint) else hint


def _whole(values: Mapping[str, Any], sources: Mapping[str, str], file: str) -> Gpu:
    """A GPU out of the figures of one sheet. Raises BadSheet where one that has no default is missing."""
    needed = [field.name for field in fields(Gpu) if field.name not in ("peaks", "sources") and _needed(field.name)]
    for name in needed:
        if name not in values:
            raise BadSheet(f"{file}: {_place(name)} is missing; expected {EXPECTED[_plain(HINTS[name])]}.")
    if "peaks.fp32" not in values:
        raise BadSheet(f"{file}: peaks.fp32 is missing; expected {EXPECTED[float]}, in operations a second.")
    defaults = {name: "not given; taken as usual" for name in DEFAULTS if name not in values}
    return _gpu(values, {**defaults, **sources})


def _needed(name: str) -> bool:
    return name not in DEFAULTS and type(None) not in get_args(HINTS[name])


def _like(base: Gpu, values: Mapping[str, Any], sources: Mapping[str, str], file: str) -> Gpu:
    """The base with figures replaced. What is made of them follows, unless it is given too:

    peaks with SMs × clock, the tensor clock and the L2 with the clock, the achieved bandwidth with the bandwidth. It is
    another GPU, so it needs a name of its own and counts as unverified.
    """
    if "name" not in values:
        raise BadSheet(f"{file}: name is missing; expected a text: what is like the {base.name} is another GPU.")
    old = _flat(base)
    kept = {**old, "full_name": values["name"], "verified": False}
    known = {name: f"like the {base.name}: {source}" for name, source in base.sources.items()}
    clock = values.get("boost_clock_mhz", base.boost_clock_mhz) / base.boost_clock_mhz
    lanes = clock * values.get("sms", base.sms) / base.sms
    memory = values.get("memory_bandwidth", base.memory_bandwidth) / base.memory_bandwidth
    follows = {"tensor_clock_mhz": clock, "l2_bandwidth": clock, "achieved_bandwidth": memory}
    follows |= {f"peaks.{math}": lanes for math in base.peaks}
    for name, ratio in follows.items():
        if old.get(name) is not None and ratio != 1:
            kept[name] = old[name] * ratio
            known[name] = f"the {base.name}'s × {ratio:.6g}, as SMs, clock or bandwidth differ"
    return _gpu({**kept, **values}, {**known, **sources})


def _flat(gpu: Gpu) -> dict[str, Any]:
    values = {field.name: getattr(gpu, field.name) for field in fields(Gpu) if field.name not in ("peaks", "sources")}
    return {**values, **{f"peaks.{math}": rate for math, rate in gpu.peaks.items()}}


def _gpu(values: Mapping[str, Any], sources: Mapping[str, str]) -> Gpu:
    peaks = {math: values[f"peaks.{math}"] for math in Math if f"peaks.{math}" in values}
    unknown = {field.name: None for field in fields(Gpu) if field.name not in DEFAULTS}
    known = {name: value for name, value in values.items() if not name.startswith("peaks.")}
    return Gpu(**{**unknown, **known, "peaks": peaks, "sources": dict(sources)})


def _check_order(gpu: Gpu, file: str) -> None:
    """Raises BadSheet where two figures contradict each other."""
    for small, large in AT_MOST:
        low, high = getattr(gpu, small), getattr(gpu, large)
        if low is not None and low > high:
            raise BadSheet(f"{file}: {_place(small)} is {low}; expected at most {large}, which is {high}.")
    if gpu.max_threads_per_sm % gpu.warp_size:
        raise BadSheet(f"{file}: limits.max_threads_per_sm is {gpu.max_threads_per_sm}; expected whole warps.")
    if gpu.shared_carveouts and (
        list(gpu.shared_carveouts) != sorted(set(gpu.shared_carveouts)) or gpu.shared_carveouts[-1] != gpu.shared_per_sm
    ):
        raise BadSheet(f"{file}: shared.shared_carveouts should grow and end with shared_per_sm ({gpu.shared_per_sm}).")


def _place(name: str) -> str:
    return next((f"{group}.{name}" for group, members in GROUPS.items() if name in members), name)


def _guess(key: str, known: tuple[str, ...]) -> str:
    home = next((group for group, members in GROUPS.items() if key in members), None)
    if home is not None:
        return f"it belongs under [{home}]."
    near = get_close_matches(key, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}."
