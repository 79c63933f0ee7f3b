"""Steps of a source text, for tests of what compares them. A line that launches says how long: `h = norm(x)  # 100 µs`.

The mark is no part of the source that the Step holds. Each such line is one Op and one launch, in the order of the
text; its function is that of the nearest `def` above.
"""

import re
from dataclasses import replace

from steps_by_hand import STEP, kernel, launch, op
from undertorch.records import Accounting, Environment, Phase, Step, Where

MARK = re.compile(r"  # (\d+) µs$")


def step_of(script: str = "train.py", **texts: str) -> Step:
    """A Step of the texts, by file name without `.py`."""
    sources, ops, launches, start = {}, [], [], 0
    for name, text in texts.items():
        file = f"{name}.py"
        function = "<module>"
        rows = []
        for number, row in enumerate(text.splitlines(), 1):
            if row.strip().startswith("def "):
                function = row.strip().removeprefix("def ").split("(")[0]
            rows.append(MARK.sub("", row))
            if (marked := MARK.search(row)) is None:
                continue
            where = Where(file=file, line=number, function=function)
            ops.append(op(len(ops), "aten::add", where, Phase.FORWARD))
            spent = int(marked[1])
            launches.append(launch(kernel("k", read=spent, flops=spent), (ops[-1].id,), Phase.FORWARD, start, spent))
            start += spent
        sources[file] = "\n".join(rows)
    return replace(
        STEP,
        ops=tuple(ops),
        launches=tuple(launches),
        idle=(),
        step_us=float(start),
        accounting=Accounting(launches=len(launches), time_with_line=1.0),
        environment=Environment(script=script, step=2, sources=sources),
    )
