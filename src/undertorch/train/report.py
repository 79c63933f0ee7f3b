"""What a run tells: rows on the terminal, metrics.jsonl, and a picture of the loss."""

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertorch.train.config import Settings
from undertorch.train.errors import NotSaved

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
    unwritten: bool = False
    """Whether the last row found no room in metrics.jsonl."""

    def resumed(self, step: int) -> None:
        """Leaves of metrics.jsonl what the checkpoint knows of: rows up to its step. Raises NotSaved."""
        if not self.speaks:
            return
        path = self.folder / METRICS
        kept = [row for row in read_metrics(path) if row["step"] <= step]
        written(path, "".join(json.dumps(row) + "\n" for row in kept))

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
            try:
                print(line, flush=True)
            except OSError:  # whoever read it has gone (`| head`), or it has no room: no reason to end training
                self.speaks_no_more()

    def speaks_no_more(self) -> None:
        """Standard output leads nowhere from here on, so that what it holds is no error at the process's end either.
        What it would have had is in metrics.jsonl.
        """
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)

    def _write(self, **row: Any) -> None:
        """A row for which there is no room is missing, as is told once: training goes on."""
        path = self.folder / METRICS
        begins = "\n" if self.unwritten else ""  # after what may be half a row
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{begins}{json.dumps(row)}\n")
        except OSError as error:
            if not self.unwritten:
                self.say(f"{path} cannot be written ({error.strerror or error}): it lacks rows until there is room.")
            self.unwritten = True
        else:
            self.unwritten = False

    def draw(self) -> None:
        """Writes the picture of all that metrics.jsonl has."""
        if self.speaks:
            try:
                written(self.folder / PICTURE, picture(read_metrics(self.folder / METRICS)))
            except NotSaved as error:
                self.say(str(error))


def written(path: Path, content: str) -> None:
    """Writes a file as a whole or not at all. Raises NotSaved."""
    aside = path.with_name(f"{path.name}.writing")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise NotSaved(f"{path} cannot be written ({error.strerror or error}); make room in {path.parent}.") from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Its rows; one that a crash or a full disk cut off is none."""
    rows: list[dict[str, Any]] = []
    if path.is_file():
        for line in path.read_text("utf-8", "replace").splitlines():
            with suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict) and isinstance(row.get("step"), int):
                    rows.append(row)
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
