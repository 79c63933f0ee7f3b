"""Figures as people read them: three significant digits and a unit. Unknown (None) is a dash, never a zero."""

from collections.abc import Sequence

from undertorch.records import Dim3, Kernel, Origin

UNKNOWN = "–"


def time(us: float | None) -> str:
    """Microseconds as `12.3 ms`."""
    return UNKNOWN if us is None else _scaled(us, ("µs", "ms", "s"))


def size(amount: float | None) -> str:
    """Bytes as `38.2 GB`, in powers of 1000 as bandwidths are quoted."""
    return UNKNOWN if amount is None else _scaled(amount, ("B", "kB", "MB", "GB", "TB", "PB"))


def flops(amount: float | None) -> str:
    """Floating-point operations as `3.71 TFLOP`."""
    return (
        UNKNOWN if amount is None else _scaled(amount, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"))
    )


def rate(value: float, unit: str) -> str:
    """Something a second, such as `4.8 TB/s`, in powers of 1000 as rates are quoted."""
    step, letter = next((s, p) for s, p in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (0, "")) if value >= s)
    return f"{three(value / (step or 1))} {letter}{unit}"


def three(value: float) -> str:
    """Three significant digits, none of a whole number lost."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(part: float | None) -> str:
    """A share from 0 to 1 as `13.2 %`; above 99.95 % as `100 %`; what is there but rounds to nothing as `<0.1 %`."""
    if part is None:
        return UNKNOWN
    if 0 < part < 0.0005:
        return "<0.1 %"
    return "100 %" if 0.9995 <= part < 1.005 else f"{part:.1%}".replace("%", " %")


def count(number: int | None, one: str = "", many: str = "") -> str:
    """`1,234`, followed by the noun that fits where nouns are given."""
    if number is None:
        return UNKNOWN
    return f"{number:,} {one if number == 1 else many or one + 's'}" if one else f"{number:,}"


def dims(dim: Dim3) -> str:
    """`132`, `(32,12)` or `(8,4,2)`: what is 1 at the end is left out."""
    x, y, z = dim
    if (y, z) == (1, 1):
        return str(x)
    return f"({x},{y})" if z == 1 else f"({x},{y},{z})"


def geometry(kernel: Kernel) -> str:
    """Grid × block, such as `(32,12) × 128`; `~` before it where the tile is a prediction."""
    if kernel.grid is None or kernel.block is None:
        return UNKNOWN
    guess = "~" if kernel.geometry_origin is Origin.PREDICTED else ""
    return f"{guess}{dims(kernel.grid)} × {dims(kernel.block)}"


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole; None where either is unknown or there is no whole."""
    return None if part is None or not whole else part / whole


def bar(part: float, width: int) -> str:
    """A bar of eighths of a cell, as long as `part` (0 to 1) of the width; empty only for what is nothing."""
    eighths = round(min(max(part, 0.0), 1.0) * width * 8)
    if part > 0:
        eighths = max(eighths, 1)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _scaled(value: float, units: Sequence[str]) -> str:
    unit = 0
    while abs(value) >= 999.5 and unit < len(units) - 1:
        value /= 1000
        unit += 1
    if float(value).is_integer() and (unit == 0 or abs(value) >= 100):
        return f"{value:.0f} {units[unit]}"
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f} {units[unit]}"
