"""A GPT-2 step predicted with no GPU, beside the same step as an H200 ran it.

    python benchmarks/gpt2_against_h200.py [SCRIPT]

The recorded step is tests/golden/h200_gpt2_train.json.gz (torch 2.11). SCRIPT makes the same step; the default is the
one that the tests record. The two queues are aligned by kernel name; matmul and attention kernels, whose names carry
tiles that are modelled, by their kind and position in the queue.
"""

import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path

from results_file import Aim, write
from undertorch import gpus
from undertorch.records import Kind, Launch, Step
from undertorch.steps.predict import predict
from undertorch.steps.record import record

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden" / "h200_gpt2_train.json.gz"
SCRIPT = ROOT / "tests" / "steps" / "record" / "scripts" / "gpt2.py"
RECORDED_TORCH = "2.11.0+cu130"
MODELLED = (Kind.MATMUL, Kind.ATTENTION)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One entry of the queue that the GPU worked off."""

    name: str
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    us: float

    @property
    def token(self) -> str:
        """What it is aligned by."""
        if self.name.startswith("Memset"):
            return "Memset"
        if re.match(r"nvjet|.*gemm", self.name):
            return "matmul"
        if "sdpa" in self.name:
            return "attention"
        bare = re.sub(r"\w+ |\(anonymous namespace\)::", "", self.name, count=2).replace("(anonymous namespace)::", "")
        return re.split(r"[<(]", bare)[0].rsplit("::", 1)[-1]


def recorded() -> list[Measured]:
    """The queue in order of its starts."""
    with gzip.open(GOLDEN) as file:
        events = json.load(file)["traceEvents"]
    ran = [event for event in events if event.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy")]
    return [
        Measured(
            name=event["name"],
            grid=tuple(event["args"]["grid"]) if "grid" in event["args"] else None,
            block=tuple(event["args"]["block"]) if "block" in event["args"] else None,
            us=event["dur"],
        )
        for event in sorted(ran, key=lambda event: event["ts"])
    ]


def token(launch: Launch) -> str:
    """What a predicted launch is aligned by."""
    kernel = launch.kernel
    name = re.split(r"[<(]", kernel.name)[0].rsplit("::", 1)[-1]
    if kernel.kind is Kind.MATMUL and "splitKreduce" not in name:
        return "matmul"
    return "attention" if "sdpa" in name else name


def aligned(step: Step, queue: list[Measured]) -> Iterator[tuple[Launch | None, Measured | None]]:
    """Pairs in order; None on one side where the other has something more."""
    ours, theirs = [token(launch) for launch in step.launches], [entry.token for entry in queue]
    for tag, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(step.launches[a:b], queue[c:d], strict=True)
        else:
            yield from ((launch, None) for launch in step.launches[a:b])
            yield from ((None, entry) for entry in queue[c:d])


def main(script: Path) -> None:
    gpu = gpus.find("H200")
    recording = record(script, (), gpu)
    # The installed torch makes the calls; the recorded one's launches are what they are compared with.
    ops = tuple(replace(op, torch=RECORDED_TORCH) for op in recording.ops)
    step = predict(replace(recording, ops=ops), gpu)
    queue = recorded()
    pairs = list(aligned(step, queue))
    matched = [(launch, entry) for launch, entry in pairs if launch and entry]
    exact = [(launch, entry) for launch, entry in matched if launch.kernel.kind not in MODELLED]
    equal = [
        (launch, entry)
        for launch, entry in exact
        if (launch.kernel.grid, launch.kernel.block) == (entry.grid, entry.block)
    ]
    different = Counter(
        f"{launch.kernel.name}: {launch.kernel.grid}×{launch.kernel.block} for {entry.grid}×{entry.block}"
        for launch, entry in exact
        if (launch.kernel.grid, launch.kernel.block) != (entry.grid, entry.block)
    )
    times: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for launch, entry in matched:
        row = times[launch.kernel.kind]
        row[0] += 1
        row[1] += launch.time_us
        row[2] += entry.us
    rows: list[dict[str, object]] = [
        {"kind": kind, "launches": n, "predicted_us": round(p, 1), "measured_us": round(m, 1), "ratio": round(p / m, 3)}
        for kind, (n, p, m) in sorted(times.items(), key=lambda item: -item[1][2])
    ]
    only_ours = Counter(token(launch) for launch, entry in pairs if launch and not entry)
    only_theirs = Counter(entry.token for launch, entry in pairs if entry and not launch)
    rows += [
        {"only predicted": dict(only_ours)},
        {"only measured": dict(only_theirs)},
        {"geometry differs": dict(different)},
    ]
    predicted, measured = sum(launch.time_us for launch in step.launches), sum(entry.us for entry in queue)
    for row in rows:
        print(row)
    share = len(equal) / len(exact)
    write(
        "gpt2_against_h200",
        rows,
        [
            Aim(
                what="launches of the recorded step that are predicted",
                aim="all",
                got=f"{len(matched)} of {len(queue)}",
                holds=len(matched) == len(queue),
            ),
            Aim(
                what="grid and block equal outside matmul and attention",
                aim="95 %",
                got=f"{share:.2%} of {len(exact)}",
                holds=share >= 0.95,
            ),
            Aim(
                what="busy time, predicted / measured",
                aim="within 10 %",
                got=f"{predicted / 1e3:.2f} / {measured / 1e3:.2f} ms = {predicted / measured:.3f}",
                holds=abs(predicted / measured - 1) <= 0.1,
            ),
        ],
        step.environment.versions | {"recorded with torch": RECORDED_TORCH},
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SCRIPT)
