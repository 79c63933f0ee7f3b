"""Sheets on a terminal: all GPUs as a table, and one GPU with every figure, its unit and its source."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from undertorch.gpus.roofline import Distance, bandwidth, ridge
from undertorch.gpus.sheet import GROUPS
from undertorch.records import Gpu, Math
from undertorch.records.calibrations import Calibration
from undertorch.reports.terminal.calibration import beside_sheet
from undertorch.reports.terminal.numbers import rate, three
from undertorch.reports.terminal.text import Paragraph, Trimmed

UNKNOWN = "–"
BAR = 28
"""Cells of the longest bar: a row fits into 80 columns."""

SIZES = ("memory_bytes", "l2_bytes")
RATES = ("memory_bandwidth", "l2_bandwidth", "nvlink_bandwidth", "pcie_bandwidth", "achieved_bandwidth")
UNITS = {
    "boost_clock_mhz": "MHz",
    "base_clock_mhz": "MHz",
    "tensor_clock_mhz": "MHz",
    "memory_clock_mhz": "MHz",
    "memory_bus_bits": "bits",
    "sector_bytes": "bytes",
    "line_bytes": "bytes",
    "warp_size": "threads",
    "max_threads_per_block": "threads",
    "max_threads_per_sm": "threads",
    "max_blocks_per_sm": "blocks",
    "registers_per_sm": "registers of 32 bits",
    "registers_per_block": "registers of 32 bits",
    "max_registers_per_thread": "registers of 32 bits",
    "register_allocation_unit": "registers a warp",
    "warp_allocation_granularity": "warps",
    "barriers_per_sm": "barriers",
    "banks": "banks",
    "bank_bytes": "bytes",
    "shared_bytes_per_clock": "bytes an SM",
    "shared_per_sm": "bytes",
    "shared_per_block": "bytes",
    "shared_per_block_optin": "bytes",
    "shared_reserved_per_block": "bytes",
    "shared_allocation_unit": "bytes",
    "shared_carveouts": "bytes",
    "launch_gap_us": "µs",
    "host_speed": "times the measured server's",
}
"""Of what is shown as it stands; SIZES, RATES and peaks are shown scaled."""


def overview(gpus: Iterable[Gpu]) -> RenderableType:
    """One row a GPU: what it is made of, its three bandwidths, two of its peaks, and whether it was measured."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("GPU", style="bold", no_wrap=True)
    table.add_column("family", no_wrap=True)
    for head in ("SMs", "cores", "GiB", *Distance, "half", "fp32"):
        table.add_column(head, justify="right", no_wrap=True)
    for gpu in gpus:
        table.add_row(
            f"{gpu.name} ✓" if gpu.verified else gpu.name,
            gpu.architecture.split(" (")[0],
            f"{gpu.sms}",
            f"{gpu.cuda_cores:,}",
            three(gpu.memory_bytes / 2**30),
            *(_tera(bandwidth(gpu, distance)) for distance in Distance),
            _tera(gpu.peaks.get(Math.TENSOR_BF16, gpu.peaks.get(Math.TENSOR_FP16))),
            _tera(gpu.peaks.get(Math.FP32)),
        )
    notes = Text(
        "\ncores: CUDA cores. global, l2, shared: bandwidths in TB/s.\n"
        "half (tensor cores, dense; bfloat16, or else float16), fp32: peaks in TFLOP/s.\n"
        "– not known, or not there.\n"
        "✓ verified: predicted times were compared with times measured on that GPU.\n"
        "undertorch gpus NAME shows all figures of one, and where they come from.",
        style="dim",
    )
    return Group(Trimmed(table=table), notes)


def sheet(gpu: Gpu, measured: Calibration | None = None) -> RenderableType:
    """Every figure of one GPU, its three distances as bars, its ridge points, and what was measured on this machine."""
    sources = tuple(dict.fromkeys(gpu.sources.values()))
    return Group(
        _title(gpu),
        _head("How far away the data is", "bytes a second of the whole GPU"),
        _distances(gpu),
        _head("Ridge points", "operations a byte; below it the bytes are the limit"),
        _ridges(gpu),
        _head("Figures", "the number is that of the source, below"),
        _figures(gpu, sources),
        *([] if measured is None else [beside_sheet(measured, gpu)]),
        _head("Sources"),
        _sources(sources),
    )


def _title(gpu: Gpu) -> Paragraph:
    capability = ".".join(map(str, gpu.compute_capability or ())) or UNKNOWN
    verified = "verified against times measured on it" if gpu.verified else "unverified: no times were measured on it"
    full = [] if gpu.full_name == gpu.name else [gpu.full_name]  # a sheet of one's own may have only one name
    said = [*full, f"{gpu.vendor} {gpu.architecture}", f"compute capability {capability}", verified]
    return Paragraph(text=Text.assemble((gpu.name, "bold"), *(f" · {one}" for one in said)), indent=0)


def _head(name: str, explained: str = "") -> Text:
    return Text.assemble(("\n" + name, "bold underline"), (f"  {explained}" if explained else "", "dim"))


def _distances(gpu: Gpu) -> Trimmed:
    table = Table.grid(padding=(0, 2))
    rates = {distance: bandwidth(gpu, distance) for distance in Distance}
    longest = max(known for known in rates.values() if known is not None)
    holds = {
        Distance.GLOBAL: f"{_size(gpu.memory_bytes)} of memory",
        Distance.L2: f"{_size(gpu.l2_bytes)} of cache",
        Distance.SHARED: f"{gpu.shared_per_sm / 1024:g} KiB on each of {gpu.sms} SMs",
    }
    for distance, reached in rates.items():
        bar = "?" if reached is None else "█" * max(1, round(reached / longest * BAR))
        table.add_row(f"  {distance:<6}", Text(bar, style="cyan"), _rate(reached), Text(holds[distance], style="dim"))
    return Trimmed(table=table)


def _ridges(gpu: Gpu) -> Trimmed:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("  unit", no_wrap=True)
    for head in ("peak", *Distance):
        table.add_column(head, justify="right", no_wrap=True)
    for math, peak in gpu.peaks.items():
        points = (ridge(gpu, math, distance) for distance in Distance)
        table.add_row(f"  {math}", _operations(math, peak), *(UNKNOWN if at is None else three(at) for at in points))
    return Trimmed(table=table)


def _figures(gpu: Gpu, sources: Sequence[str]) -> Trimmed:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_column(no_wrap=True)
    for group, names in GROUPS.items():
        if all(_unknown(gpu, name) for name in names):
            continue
        table.add_row(Text(f"  {group}", style="bold"), "", "")
        for name in names:
            key = f"peaks.{name}" if group == "peaks" else name
            value = gpu.peaks.get(Math(name)) if group == "peaks" else getattr(gpu, name)
            source = Text(f"[{sources.index(gpu.sources[key]) + 1}]" if key in gpu.sources else "", style="dim")
            if value is not None and value != ():
                table.add_row(f"    {name}", _shown(key, value), source)
    missing = [name for names in GROUPS.values() for name in names if _unknown(gpu, name)]
    table.add_row(Text("  not known, or not there", style="bold"), ", ".join(missing) or UNKNOWN, "")
    return Trimmed(table=table)


def _unknown(gpu: Gpu, name: str) -> bool:
    if name in GROUPS["peaks"]:
        return Math(name) not in gpu.peaks
    return getattr(gpu, name) in (None, ())


def _sources(sources: Sequence[str]) -> Trimmed:
    table = Table.grid(padding=(0, 1))
    for number, source in enumerate(sources, start=1):
        table.add_row(Text(f"  [{number}]", style="dim"), Text(source))
    return Trimmed(table=table)


def _shown(key: str, value: float | tuple[int, ...]) -> str:
    if isinstance(value, tuple):
        return f"{', '.join(f'{number:,}' for number in value)} {UNITS[key]}"
    if key in SIZES:
        return f"{_size(value)} ({value:,} bytes)"
    if key in RATES:
        return _rate(value)
    if key.startswith("peaks."):
        return _operations(key.removeprefix("peaks."), value)
    return f"{value:,.10g} {UNITS.get(key, '')}".rstrip()


def _rate(value: float | None) -> str:
    return UNKNOWN if value is None else rate(value, "B/s")


def _operations(math: str, value: float) -> str:
    return rate(value, "OP/s" if math == Math.TENSOR_INT8 else "FLOP/s")


def _tera(value: float | None) -> str:
    return UNKNOWN if value is None else three(value / 1e12)


def _size(value: float) -> str:
    """Three digits, in powers of 1024, as memories are built."""
    step, letter = (2**30, "G") if value >= 2**30 else (2**20, "M")
    return f"{three(value / step)} {letter}iB"
