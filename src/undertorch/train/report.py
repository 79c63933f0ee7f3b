"""What a run tells: rows on the terminal, metrics.jsonl, and a picture of the loss."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertorch.train.config import Settings

METRICS, PICTURE = "metrics.jsonl", "loss.svg"
EVERY_SECONDS = 5.0
"""Between rows on the terminal; the first step, evaluations and the last have theirs whenever they come."""


@dataclass(slots=True, kw_only=True)
class Report:
    """Of one process; the others' tell nothing."""

    folder: Path
    settings: Settings
    world: int
    peak: float | None
    """Operations a second that one GPU could do; None: unknown, and there is no MFU."""
    speaks: bool
    begun: float = field(default_factory=time.perf_counter)
    shown: float = 0.0
    timed: int = 0
    spent: float = 0.0
    """Steps, and their seconds, since the last row."""

    def resumed(self, step: int) -> None:
        """Leaves of metrics.jsonl what the checkpoint knows of: rows up to its step."""
        if not self.speaks:
            return
        path = self.folder / METRICS
        kept = [row for row in read_metrics(path) if row["step"] <= step]
        aside = path.with_suffix(".writing")
        aside.write_text("".join(json.dumps(row) + "\n" for row in kept), "utf-8")
        aside.replace(path)

    def step(self, number: int, loss: float, norm: float, rate: float, seconds: float) -> None:
        """Of update `number`, counted from 1."""
        if not self.speaks:
            return
        settings = self.settings
        tokens = settings.tokens_a_step * self.world
        speed = tokens / seconds
        mfu = None if self.peak is None else speed * settings.shape.flops_a_token / (self.peak * self.world)
        self._write(step=number, loss=loss, norm=norm, rate=rate, seconds=seconds, tokens_per_s=speed, mfu=mfu)
        self.timed, self.spent = self.timed + 1, self.spent + seconds
        now = time.perf_counter()
        if number > 1 and number < settings.steps and now - self.shown < EVERY_SECONDS:
            return
        mean = self.spent / self.timed
        self.shown, self.timed, self.spent = now, 0, 0.0
        speed, left = tokens / mean, mean * (settings.steps - number)
        share = "" if mfu is None or self.peak is None else (
            f"  MFU {speed * settings.shape.flops_a_token / (self.peak * self.world):.1%}"
        )  # fmt: skip
        self.say(
            f"step {number:>6,}/{settings.steps:,}  loss {loss:.4f}  norm {norm:.2f}  rate {rate:.2e}  "
            f"{speed:,.0f} tokens/s{share}  {clock(left)} left"
        )

    def evaluated(self, number: int, bits: float) -> None:
        """Of the held-out text, after update `number`."""
        if self.speaks:
            self._write(step=number, validation_bits_per_byte=bits)
            self.say(f"step {number:>6,}/{self.settings.steps:,}  held-out text: {bits:.4f} bits a byte")

    def say(self, line: str) -> None:
        """A row on standard output."""
        if self.speaks:
            print(line, flush=True)

    def _write(self, **row: Any) -> None:
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def draw(self) -> None:
        """Writes the picture of all that metrics.jsonl has."""
        if self.speaks:
            (self.folder / PICTURE).write_text(picture(read_metrics(self.folder / METRICS)), "utf-8")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Its rows; one that a crash cut off is none."""
    rows: list[dict[str, Any]] = []
    if path.is_file():
        for line in path.read_text("utf-8", "replace").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def clock(seconds: float) -> str:
    """`1:02:03`, `2:03`."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


WIDTH, HEIGHT, EDGE = 720, 360, 48


def picture(rows: Sequence[dict[str, Any]]) -> str:
    """Loss of each step (nats a token), and bits a byte of the held-out text, each on its own axis, as SVG."""
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    bits = [(row["step"], row["validation_bits_per_byte"]) for row in rows if "validation_bits_per_byte" in row]
    last = max([step for step, _ in losses + bits], default=1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for points, colour, side, label in (
        (losses, "#4477aa", "start", "loss, nats a token"),
        (bits, "#cc6677", "end", "held-out text, bits a byte"),
    ):
        if points:
            parts += _curve(points, last, colour, side, label)
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">step (the last: {last:,})</text></svg>')
    return "\n".join(parts)


def _curve(points: Sequence[tuple[int, float]], last: int, colour: str, side: str, label: str) -> list[str]:
    low, high = min(value for _, value in points), max(value for _, value in points)
    span = high - low or 1.0
    at = [
        (EDGE + (WIDTH - 2 * EDGE) * step / last, HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * (value - low) / span)
        for step, value in points
    ]
    x = EDGE - 6 if side == "start" else WIDTH - EDGE + 6
    anchor = "end" if side == "start" else "start"
    made = [f'<polyline fill="none" stroke="{colour}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in at)}"/>']
    if len(at) < 50:
        made += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in at]
    for value, y in ((high, EDGE), (low, HEIGHT - EDGE)):
        made.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{value:.2f}</text>')
    where = EDGE if side == "start" else WIDTH - EDGE
    made.append(f'<text x="{where}" y="24" text-anchor="{side}" fill="{colour}">{label}</text>')
    return made
