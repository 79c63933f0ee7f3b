"""What a GPU reached, on a terminal, beside what its sheet promises."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from undertorch.gpus.roofline import Distance, bandwidth
from undertorch.records import Gpu, Math
from undertorch.records.calibrations import Calibration, Ceiling, Unit
from undertorch.reports.terminal.numbers import UNKNOWN, percent, rate, ratio
from undertorch.reports.terminal.text import Paragraph, Trimmed

SHOWN_FAILURES = 6


def calibration(found: Calibration, gpu: Gpu | None) -> RenderableType:
    """The whole report of `gpus --calibrate`, but for where it is kept."""
    title = Text.assemble((found.gpu_name, "bold"), f" · {_when(found)}")
    return Group(Paragraph(text=title, indent=0), ceilings(found, gpu), *_failures(found))


def beside_sheet(found: Calibration, gpu: Gpu) -> RenderableType:
    """The section that stands under a GPU's figures."""
    head = Text.assemble(("\nMeasured on this machine", "bold underline"), (f"  {_when(found)}", "dim"))
    return Group(head, ceilings(found, gpu), *_failures(found))


def ceilings(found: Calibration, gpu: Gpu | None) -> Trimmed:
    """One row a ceiling: the median, how far samples lie apart, what the sheet says, and the share of that."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column("  measured", no_wrap=True)
    for head in ("median", "±", "sheet", "share"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("how", no_wrap=True, overflow="ellipsis")
    for one in found.ceilings:
        promised = None if gpu is None else promise(gpu, one.name)
        table.add_row(
            f"  {one.name}",
            _value(one, one.value),
            percent(one.spread / 2),
            UNKNOWN if promised is None else _value(one, promised),
            percent(ratio(one.value, promised)),
            Text(one.variant, style="dim"),
        )
    return Trimmed(table=table)


def promise(gpu: Gpu, ceiling: str) -> float | None:
    """What the sheet says of a ceiling; None where it says nothing."""
    if ceiling.startswith("matmul "):
        return gpu.peaks.get(Math(ceiling.removeprefix("matmul ")))
    match ceiling:
        case "global copy" | "global read" | "global write":
            return gpu.memory_bandwidth
        case "l2 read":
            return gpu.l2_bandwidth
        case "shared read":
            return bandwidth(gpu, Distance.SHARED)
        case "host to GPU" | "GPU to host":
            return gpu.pcie_bandwidth
        case _:
            return None


def _when(found: Calibration) -> str:
    driver = f"driver {found.driver}" if found.driver else "driver unknown"
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return f"{driver} · {versions} · {found.date}"


def _value(one: Ceiling, value: float) -> str:
    if one.unit is Unit.SECONDS:
        return f"{value * 1e6:.3g} µs"
    unit = "OP/s" if one.name.endswith(Math.TENSOR_INT8) else str(one.unit)
    return rate(value, unit)


def _failures(found: Calibration) -> list[RenderableType]:
    if not found.failed:
        return []
    rows: list[RenderableType] = [Text(f"Not measured: {len(found.failed)}", style="bold")]
    for name, why in list(found.failed.items())[:SHOWN_FAILURES]:
        rows.append(Paragraph(text=Text(f"{name}: {why}."), indent=2))
    if len(found.failed) > SHOWN_FAILURES:
        rows.append(Text(f"  and {len(found.failed) - SHOWN_FAILURES} more, in the JSON."))
    return rows
