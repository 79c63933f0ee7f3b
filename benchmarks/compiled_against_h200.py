"""Models under torch.compile, predicted with no GPU, beside the same steps as an H200 ran them.

    python benchmarks/compiled_against_h200.py [NAME…]      (torch 2.11 and Triton 3.6, which the GPU had)
    python benchmarks/compiled_against_h200.py --take OUT   (makes the golden of what golden_models.py left in OUT)

Names given: those alone are predicted again, and the other rows stay. Inductor's kernels of both sides are aligned by
their names in the order in which they ran; grids, blocks and lines are compared of those that are aligned.
"""

import argparse
import gzip
import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from golden_models import RUNS, STEPS, Run
from measured_figures import golden
from models_against_h200 import busy, kind
from results_file import RESULTS, Aim, write
from undertorch import gpus
from undertorch.records import Step
from undertorch.records.totals import busy_us
from undertorch.steps.see import see

ROOT = Path(__file__).parent.parent
MEASURED = ROOT / "tests" / "golden" / "measured"
GOLDEN = MEASURED / "compiled.json.gz"
NAME = "compiled_against_h200"
FITTED, AGAIN = "gpt2-compile", "gpt2-compile, recorded again"
"""The recording that rates were fitted to (tests/golden/measured/gpt2-compile.json.gz), and another run."""
SCRIPTS = {FITTED: "gpt2-compile", AGAIN: "gpt2-compile"}
INDUCTOR = {"triton_poi": "Inductor, pointwise", "triton_per": "Inductor, reduction in one pass",
            "triton_red": "Inductor, reduction in a loop"}  # fmt: skip
FITTED_TO = {
    FITTED: "rates of reductions, norms, GELUs and unaligned products were fitted to it",
    AGAIN: "another run of the step that rates were fitted to",
}


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One launch, predicted or measured."""

    kernel: str
    op: str
    line: str | None
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    us: float

    @property
    def inductor(self) -> bool:
        return self.kernel.startswith("triton_")

    @property
    def kind(self) -> str:
        return INDUCTOR.get(self.kernel[:10], "Inductor, others") if self.inductor else kind(self.op)


def launches(kept: dict[str, Any]) -> list[Ran]:
    """Of a step as measured_figures.golden keeps it."""
    texts = [*kept["texts"], None]

    def text(number: int | None) -> Any:
        return texts[-1 if number is None else number]

    def sizes(found: list[int] | None) -> tuple[int, ...] | None:
        return None if found is None else tuple(found)

    return [
        Ran(
            kernel=text(one[0]),
            op=text(kept["ops"][one[1][0]][0]),
            line=text(kept["ops"][one[1][0]][1]),
            grid=sizes(one[3]),
            block=sizes(one[4]),
            us=one[9],
        )
        for one in sorted(kept["launches"], key=lambda one: one[8])
    ]


def predicted(step: Step) -> list[Ran]:
    """Of a prediction."""
    found = []
    for one in step.launches:
        op, kernel = step.ops[one.ops[0]], one.kernel
        line = None if op.where is None else f"{Path(op.where.file).name}:{op.where.line}"
        found.append(
            Ran(kernel=kernel.name, op=op.name, line=line, grid=kernel.grid, block=kernel.block, us=one.time_us)
        )
    return found


def paired(ours: Iterable[Ran], theirs: Iterable[Ran]) -> Iterator[tuple[Ran, Ran]]:
    """Inductor's kernels of both, by name in their order."""
    left, right = ([one for one in some if one.inductor] for some in (ours, theirs))
    names = [[one.kernel for one in some] for some in (left, right)]
    for block in SequenceMatcher(None, *names, autojunk=False).get_matching_blocks():
        yield from zip(left[block.a : block.a + block.size], right[block.b : block.b + block.size], strict=True)


def by_kind(ours: list[Ran], theirs: list[Ran]) -> list[dict[str, object]]:
    rows = []
    for name in {one.kind for one in (*ours, *theirs)}:
        left, right = ([one.us for one in some if one.kind == name] for some in (ours, theirs))
        rows.append(
            {"kind": name, "launches predicted": len(left), "launches measured": len(right)}
            | {"us predicted": round(sum(left), 1), "us measured": round(sum(right), 1)}
        )
    return sorted(rows, key=lambda row: -row["us measured"])


def row(name: str, run: Run, step: Step, kept: dict[str, Any]) -> dict[str, object]:
    """One model predicted, beside what was measured."""
    ours, theirs = predicted(step), launches(kept)
    pairs = list(paired(ours, theirs))
    lined = [(left, right) for left, right in pairs if right.op.startswith("inductor::")]
    measured_us = statistics.median(kept["timed_us"])
    ran = busy((one[8], one[8] + one[9]) for one in kept["launches"])
    peak = step.memory.peak_bytes or 0
    return {
        "model": name,
        "arguments": run.arguments,
        "fitted": FITTED_TO.get(name, "nothing was fitted to it"),
        "launches predicted": len(ours),
        "launches measured": len(theirs),
        "kernels of Inductor predicted": sum(one.inductor for one in ours),
        "kernels of Inductor measured": sum(one.inductor for one in theirs),
        "of these of the same name in order": len(pairs),
        "of these with lines of Inductor's in the recording": len(lined),
        "of these at the same first line": sum(left.line == right.line for left, right in lined),
        "of these with the same grid": sum(left.grid == right.grid for left, right in pairs),
        "of these with the same block": sum(left.block == right.block for left, right in pairs),
        "time of aligned kernels with another grid, of Inductor's": round(
            sum(right.us for left, right in pairs if left.grid != right.grid)
            / sum(one.us for one in theirs if one.inductor),
            3,
        ),
        "step_us predicted": round(step.step_us or 0.0, 1),
        "step_us measured": round(measured_us, 1),
        "step ratio": round((step.step_us or 0.0) / measured_us, 3),
        "busy_us predicted": round(busy_us(step.launches), 1),
        "busy_us measured": round(ran, 1),
        "busy ratio": round(busy_us(step.launches) / ran, 3),
        "peak_bytes predicted": peak,
        "peak_bytes measured": kept["peak_bytes"],
        "peak ratio": round(peak / kept["peak_bytes"], 3),
        "kinds": by_kind(ours, theirs),
    }


def recorded() -> dict[str, dict[str, Any]]:
    """What was measured, by the names of rows."""
    found = {FITTED: first_recording()}
    models = json.loads(gzip.decompress((MEASURED / "models.json.gz").read_bytes()))["models"]
    found[AGAIN] = models["gpt2-compile"]
    if GOLDEN.exists():
        found |= json.loads(gzip.decompress(GOLDEN.read_bytes()))["models"]
    return found


def first_recording() -> dict[str, Any]:
    """The step that the tests replay, which is kept as the profiler wrote it."""
    from undertorch.steps.measure import exchange
    from undertorch.steps.measure.reading import read_measured

    content = json.loads(gzip.decompress((MEASURED / "gpt2-compile.json.gz").read_bytes()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, trace in content["files"].items():
            (folder / file).write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
        (folder / exchange.MEASURED).write_text(json.dumps(content["measured"]))
        measured = exchange.read(folder)
        assert measured is not None
        return golden(read_measured(folder, measured)[0], measured)


def take(outs: list[Path]) -> None:
    """Makes the golden."""
    models: dict[str, Any] = {}
    about: dict[str, Any] = {}
    for out in outs:
        models |= json.loads(gzip.decompress((out / "golden_models.json.gz").read_bytes()))["models"]
        for one in json.loads((out / "golden_models.json").read_text())["rows"]:
            if "gpu" in one:
                about = {"gpu": one["gpu"], "versions": {**one["versions"], "driver": one["driver"]}}
    content = json.dumps(about | {"models": models}, separators=(",", ":"))
    GOLDEN.write_bytes(gzip.compress(content.encode(), 9, mtime=0))
    print(f"{GOLDEN.name}: {GOLDEN.stat().st_size:,} bytes: {', '.join(models)}")


def aims(rows: list[dict[str, Any]]) -> list[Aim]:
    fresh = [one for one in rows if one["model"] not in (FITTED, AGAIN)]
    if not fresh:
        return []
    same, total = (sum(one[key] for one in fresh) for key in ("of these of the same name in order",
                                                              "kernels of Inductor measured"))  # fmt: skip
    grids = sum(one["of these with the same grid"] for one in fresh)
    found = [
        Aim(what="Inductor's kernels that are predicted by name and in order, of models that nothing was fitted to",
            aim="all", got=f"{same:,} of {total:,}", holds=same == total),
        Aim(what="grids of these", aim="95 %", got=f"{grids:,} of {same:,}", holds=grids >= 0.95 * same),
    ]  # fmt: skip
    for what, key in (("step", "step ratio"), ("busy time", "busy ratio"), ("peak memory", "peak ratio")):
        got = ", ".join(f"{one['model']} {one[key]}" for one in fresh)
        found.append(Aim(what=f"{what}, predicted / measured", aim="all within 10 %", got=got,
                         holds=all(abs(one[key] - 1) <= 0.1 for one in fresh)))  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--take", nargs="+", type=Path, help="what golden_models.py left on the GPU")
    given = parser.parse_args()
    if given.take:
        take(given.take)
        return
    runs = {run.name: run for run in RUNS}
    rows: dict[str, dict[str, Any]] = {}
    if given.names:
        rows = {one["model"]: one for one in json.loads((RESULTS / f"{NAME}.json").read_text())["rows"]}
    steps: dict[str, Step] = {}
    for name, kept in recorded().items():
        run = runs[SCRIPTS.get(name, name)]
        if given.names and run.name not in given.names:
            continue
        if run.name not in steps:
            script = ROOT / "benchmarks" / "models" / f"{run.script}.py"
            arguments = (str(script), run.mode or "", "--steps", str(STEPS), *run.arguments.split())
            steps[run.name] = see(ROOT / "benchmarks" / "compiled_model.py", arguments, gpus.find("H200"))
        rows[name] = row(name, run, steps[run.name], kept)
        print({key: value for key, value in rows[name].items() if key != "kinds"}, flush=True)
    versions = next(iter(steps.values())).environment.versions
    write(NAME, list(rows.values()), aims(list(rows.values())), versions)


if __name__ == "__main__":
    main()
