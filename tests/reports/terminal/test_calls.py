"""Where no line is known, the calls into ATen are listed."""

import re
from collections import Counter
from dataclasses import replace

from drawn import drawn, part
from steps_by_hand import LAUNCHES, STEP


def without_lines():
    ops = tuple(replace(op, where=None) for op in STEP.ops)
    return replace(STEP, ops=ops)


def test_calls_are_listed_only_where_no_line_is_known():
    assert not any(row.startswith("Calls") for row in drawn(STEP).splitlines())
    assert any(row.startswith("Calls") for row in drawn(without_lines()).splitlines())
    none = replace(without_lines(), launches=tuple(replace(launch, ops=()) for launch in LAUNCHES))
    assert not any(row.startswith("Calls") for row in drawn(none).splitlines())


def test_each_call_has_a_row_and_the_busiest_is_first():
    """Summed by hand: launches by the name of their first op; one launch has none."""
    names = {op.id: op.name for op in STEP.ops}
    launches: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for launch in LAUNCHES:
        name = names[launch.ops[0]] if launch.ops else "no call known"
        launches[name] += 1
        times[name] += round(launch.time_us)
    rows = [row for row in part(drawn(without_lines(), width=120), "Calls")[1:] if row.strip()]
    assert len(rows) == len(times)
    for name, often in launches.items():
        (row,) = (row for row in rows if re.search(rf"  {re.escape(name)}( · |$)", row))
        assert re.search(rf" {often}  {re.escape(name)}", row)
    assert times.most_common(1)[0][0] in rows[0]
