"""Starts that are exact to the nanosecond, from whatever moment a trace counts.

Kineto writes them with three decimals and counts from a moment of the last three months, which the file names
(`baseTimeNanoseconds`); older ones count from 1970, and of such a number a float keeps a quarter of a microsecond.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Protocol

import msgspec
import numpy as np

from undertorch.steps.traces.damage import middle

EXACT_US = 2.0**43
"""Up to here, 102 days, neighbouring floats lie a nanosecond apart or less."""

DAY_US = 24 * 3600 * 1_000_000


class _Timed(Protocol):
    ts: float | None


class _Moment(msgspec.Struct, kw_only=True, gc=False):
    ts: Decimal | None = None


class _Moments(msgspec.Struct, kw_only=True, gc=False):
    events: list[_Moment] | None = msgspec.field(name="traceEvents", default=None)


DECODER = msgspec.json.Decoder(_Moments, strict=False)


def origin(events: Sequence[_Timed]) -> int | None:
    """What is to be taken off the starts of a file that holds these events, in whole days in microseconds: 0 where
    floats are exact as they stand. None where no event has a start."""
    starts = np.array([event.ts for event in events if event.ts is not None], float)
    if not len(starts):
        return None
    half = middle(starts)
    return int(half // DAY_US) * DAY_US if abs(half) >= EXACT_US else 0


def count_from(origin_us: int, events: Sequence[_Timed], text: bytes) -> None:
    """Takes the origin off the starts of events that were decoded from `text`."""
    if not origin_us:
        return
    moments = DECODER.decode(text).events or ()
    for event, moment in zip(events, moments, strict=True):
        event.ts = None if moment.ts is None else float(moment.ts - origin_us)
