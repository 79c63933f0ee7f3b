"""Ten models predicted with no GPU, beside the same steps as an H200 ran them: step, busy time, memory, kinds of op.

    python benchmarks/models_against_h200.py [NAME…]

What the H200 answered is tests/golden/measured/models.json.gz (benchmarks/golden_models.py). Names given: those alone
are predicted again, and the other rows stay. The kind of a kernel is told from the op that launched it, so that both
sides are sorted by the same rule whatever their kernels are named.
"""

import gzip
import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from golden_models import RUNS, STEPS, Run
from results_file import RESULTS, Aim, write
from undertorch import gpus
from undertorch.records import Step
from undertorch.records.totals import busy_us
from undertorch.steps.predict import predict
from undertorch.steps.record import record

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden" / "measured" / "models.json.gz"
NAME = "models_against_h200"
LEFT_OUT = re.compile(r"gpt2-|.*-compile$")
"""Variants of a model: compiled, captured, deterministic."""
MEASURED_TORCH = "2.11.0+cu130"

KINDS = {
    "convolution": r"convolution",
    "recurrent": r"_rnn|lstm|gru",
    "attention": r"attention",
    "matmul": r"::(add|b|badd|_grouped_)?mm$|::(addmv|mv|dot)$",
    "norm": r"(layer|batch|group|rms)_norm",
    "softmax": r"softmax",
    "loss": r"loss|cross_entropy",
    "optimizer, clipping": r"_fused_|_foreach_|::linalg_vector_norm",
    "embedding": r"embedding",
    "dropout": r"dropout|bernoulli",
    "copy, cast, fill": r"::(_to_copy|copy_|clone|cat|stack|contiguous|zeros|zeros_like|zero_|fill_|new_zeros)$",
    "indexing": r"index|gather|scatter|where|nonzero|sort|topk|one_hot|select|slice|masked",
    "sum, mean": r"::(sum|mean|amax|max|min)$",
}
"""Kinds of op, the first that fits. All others: elementwise."""
OTHERS = "elementwise and others"


def kind(op: str) -> str:
    return next((name for name, pattern in KINDS.items() if re.search(pattern, op)), OTHERS)


def by_kind(launches: Iterable[tuple[str, float]]) -> dict[str, tuple[int, float]]:
    """Launches and microseconds of each kind, from the op and time of each launch."""
    found: dict[str, list[float]] = defaultdict(list)
    for op, us in launches:
        found[kind(op)].append(us)
    return {name: (len(times), sum(times)) for name, times in found.items()}


def busy(spans: Iterable[tuple[float, float]]) -> float:
    """Microseconds in which at least one launch runs."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total


def measured_ops(measured: dict) -> Counter[tuple[str, str | None, str]]:
    """Of what the GPU ran: op, `file:line` and phase of all that launched something."""
    texts = [*measured["texts"], None]
    numbers = {launch[1][0] for launch in measured["launches"]}
    found = ([texts[-1 if field is None else field] for field in measured["ops"][number][:4]] for number in numbers)
    return Counter((name, line, phase) for name, line, _, phase in found)


def predicted_ops(step: Step) -> Counter[tuple[str, str | None, str]]:
    """The same of a prediction."""
    ops = (step.ops[number] for number in {launch.ops[0] for launch in step.launches})
    return Counter(
        (op.name, None if op.where is None else f"{Path(op.where.file).name}:{op.where.line}", op.phase) for op in ops
    )


def row(run: Run, measured: dict) -> tuple[dict[str, object], dict[str, str]]:
    """One model predicted, beside what was measured."""
    script = ROOT / "benchmarks" / "models" / f"{run.script}.py"
    gpu = gpus.find("H200")
    recording = record(script, ("--steps", str(STEPS), *run.arguments.split()), gpu)
    # The installed torch makes the calls; the launches are those of the torch that was measured.
    ops = tuple(replace(op, torch=MEASURED_TORCH) for op in recording.ops)
    step = predict(replace(recording, ops=ops), gpu)
    texts, ops = measured["texts"], measured["ops"]
    ours = by_kind((step.ops[one.ops[0]].name, one.time_us) for one in step.launches)
    theirs = by_kind((texts[ops[one[1][0]][0]], one[9]) for one in measured["launches"])
    ran, step_us = (
        busy((one[8], one[8] + one[9]) for one in measured["launches"]),
        statistics.median(measured["timed_us"]),
    )
    predicted = {"step_us": step.step_us or 0.0, "busy_us": busy_us(step.launches)}
    found, wanted = predicted_ops(step), measured_ops(measured)
    peak = step.memory.peak_bytes or 0
    kinds = [
        {
            "kind": name,
            "launches predicted": ours.get(name, (0, 0.0))[0],
            "launches measured": theirs.get(name, (0, 0.0))[0],
            "us predicted": round(ours.get(name, (0, 0.0))[1], 1),
            "us measured": round(theirs.get(name, (0, 0.0))[1], 1),
        }
        for name in sorted({*ours, *theirs}, key=lambda name: -theirs.get(name, (0, 0.0))[1])
    ]
    return {
        "model": run.name,
        "arguments": run.arguments,
        "launches predicted": len(step.launches),
        "launches measured": len(measured["launches"]),
        "ops predicted": found.total(),
        "ops measured": wanted.total(),
        "ops at the same line in the same phase": (found & wanted).total(),
        "step_us predicted": round(predicted["step_us"], 1),
        "step_us measured": round(step_us, 1),
        "step ratio": round(predicted["step_us"] / step_us, 3),
        "busy_us predicted": round(predicted["busy_us"], 1),
        "busy_us measured": round(ran, 1),
        "busy ratio": round(predicted["busy_us"] / ran, 3),
        "peak_bytes predicted": peak,
        "peak_bytes measured": measured["peak_bytes"],
        "peak ratio": round(peak / measured["peak_bytes"], 3),
        "kinds": kinds,
    }, step.environment.versions


def aims(rows: list[dict]) -> list[Aim]:
    same, all_ops = (
        sum(one[key] for one in rows) for key in ("ops at the same line in the same phase", "ops measured")
    )
    found = [
        Aim(
            what="ops of the measured steps that are predicted at the same line in the same phase",
            aim="all",
            got=f"{same:,} of {all_ops:,}",
            holds=same == all_ops,
        )
    ]
    for what, key in (("step", "step ratio"), ("busy time", "busy ratio"), ("peak memory", "peak ratio")):
        within = [one for one in rows if abs(one[key] - 1) <= 0.1]
        error = statistics.median(abs(one[key] - 1) for one in rows)
        furthest = max(rows, key=lambda one, key=key: abs(one[key] - 1))
        got = f"{len(within)} of {len(rows)}; median error {error:.1%}; furthest {furthest['model']}, {furthest[key]}"
        found.append(Aim(what=f"{what}, predicted / measured", aim="all within 10 %", got=got,
                         holds=len(within) == len(rows)))  # fmt: skip
    return found


def main(names: list[str]) -> None:
    measured = json.loads(gzip.decompress(GOLDEN.read_bytes()))["models"]
    rows: dict[str, dict] = {}
    if names:
        rows = {one["model"]: one for one in json.loads((RESULTS / f"{NAME}.json").read_text())["rows"]}
    versions: dict[str, str] = {}
    for run in RUNS:
        if run.name in measured and not LEFT_OUT.match(run.name) and (not names or run.name in names):
            rows[run.name], versions = row(run, measured[run.name])
            print({key: value for key, value in rows[run.name].items() if key != "kinds"}, flush=True)
    write(NAME, list(rows.values()), aims(list(rows.values())), versions | {"measured with torch": MEASURED_TORCH})


if __name__ == "__main__":
    main(sys.argv[1:])
