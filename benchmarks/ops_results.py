"""Makes benchmarks/results/ops.json, with the aims, and docs/ops.svg out of what runs of benchmarks/ops.py wrote.

    python3 benchmarks/ops_results.py OUT [OUT ...] [--again OUT] [--contract CPU CUDA] [--sanitized FILE [FILE ...]]
        [--overhead FILE] [--dry]

The last OUT counts; of the earlier ones it is said how far each figure lay from it. Ops that were measured again, after
a change, with all their peers, are taken from `--again` as a whole, and held against the copy rate of that run; the
result names them. `--contract`, `--sanitized` and `--overhead` take what ops_contract.py (on the CPU, and on a GPU),
ops_sanitized.py (several: a group counts as the last that ran it has it) and ops_overhead.py wrote, and make results of
the same names. `--dry` only prints.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from results_file import Aim, write

PEERS = ("torch", "torch, cuDNN", "torch.compile", "liger", "quack")
OURS = ("undertorch own", "undertorch auto")
SAID_OF = {
    "torch.compile": "torch.compile", "liger": "Liger, bfloat16 sums", "liger, wide sums": "Liger, float32 sums",
}  # fmt: skip
NORMS = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")
LARGE = 256e6
"""Bytes of a tensor from which the aims of memory-bound ops hold."""
NEAR_TORCH = 2.0
"""Times the CPU's time of torch's own call, which counts as near it."""
KEPT_OF_A_GROUP = ("tool", "group", "status", "clean", "found", "in_cublas")
ALIKE = 0.001
"""Of a time or a memory, which counts as the same: some tensors of a few KB are no difference."""
BEHIND_BY, BEHIND_US = 0.05, 1.0
"""What counts as behind a peer: more than both."""

Row = dict[str, Any]
Key = tuple[str, int, int, int, str, str]
"""op, rows, width, features, dtype, pass."""


@dataclass(frozen=True)
class Run:
    """What one run measured."""

    versions: dict[str, str]
    gpu: str
    copy: float
    """Bytes a second, of the best copy kernel."""
    matmul: dict[str, float]
    """FLOPs a second, by shape."""
    cases: dict[Key, dict[str, Row]]
    """The rows of each pass by who."""
    cuts: list[Row]
    failed: list[Row]
    copies: dict[str, float] = field(default_factory=dict)
    """The copy rate that holds for an op that was measured in a run of its own."""


def read(folder: Path) -> Run:
    """A folder that ops.py wrote to."""
    rows = [json.loads(line) for line in (folder / "ops.jsonl").read_text("utf-8").splitlines()]
    about = next(row for row in rows if row["op"] == "environment")
    cases: dict[Key, dict[str, Row]] = {}
    for row in rows:
        if "us" in row and not row["config"]:
            key = (row["op"], row["rows"], row["width"], row["features"], row["dtype"], row["pass_"])
            cases.setdefault(key, {})[row["who"]] = row
    return Run(
        versions={name: str(about[name]) for name in ("torch", "triton", "driver")},
        gpu=about["gpu"],
        copy=max(row["rate"] for row in rows if row["op"] == "copy" and "rate" in row),
        matmul={row["config"]: row["rate"] for row in rows if row["op"] == "matmul"},
        cases=cases,
        cuts=[row for row in rows if "us" in row and row["config"]],
        failed=[row for row in rows if "failed" in row or row["op"] in ("ended", "stopped")],
    )


def renewed(run: Run, again: Run) -> Run:
    """With all rows of the ops that were measured again. Raises ValueError where a peer is missing among them."""
    ops = {key[0] for key in again.cases}
    for key, by in run.cases.items():
        missing = sorted(set(by) - set(again.cases.get(key, {}))) if key[0] in ops else []
        if missing:
            raise ValueError(f"{named(key)} was measured again without {', '.join(missing)}.")
    cases = {key: again.cases.get(key, by) for key, by in run.cases.items()}
    failed = [row for row in run.failed if row["op"] not in ops] + [row for row in again.failed if row["op"] in ops]
    return replace(run, cases=cases, failed=failed, copies=dict.fromkeys(sorted(ops), again.copy))


def named(key: Key) -> str:
    """A pass as the tables name it."""
    op, rows, width, features, dtype, pass_ = key
    inner = f"{features} x " if features else ""
    return f"{op} {rows} x {inner}{width} {dtype} {pass_}"


def share(run: Run, row: Row) -> float:
    """Of the copy rate."""
    return float(row["bytes"] / (row["us"] * 1e-6) / run.copies.get(row["op"], run.copy))


def tensor_bytes(key: Key) -> int:
    """Of the case's rows."""
    return key[1] * key[2] * (4 if key[4] == "float32" else 2)


def aims(run: Run) -> list[Aim]:
    """What the ops were to reach, and what they did. An aim whose case was not measured does not hold."""
    return [
        *(_shares(run, who, "forward", 0.92) for who in OURS),
        *(_shares(run, who, "backward", 0.87) for who in OURS),
        *(_losses(run, who) for who in OURS),
        *(_losses(run, who, "both, gradient not 1", 2600.0) for who in OURS),
        _optimizer(run),
        *_linear(run),
        *(_behind(run, who) for who in OURS),
    ]


def _shares(run: Run, who: str, pass_: str, aim: float) -> Aim:
    wanted = ("swiglu", "geglu", *NORMS) if pass_ == "forward" else NORMS
    found = {
        named(key): share(run, by[who])
        for key, by in run.cases.items()
        if key[0] in wanted and key[5] == pass_ and who in by and tensor_bytes(key) >= LARGE
    }
    said = ", ".join(f"{name.rsplit(' ', 2)[0]} {100 * value:.0f} %" for name, value in found.items())
    return Aim(
        what=f"{pass_} of {'memory-bound ops' if pass_ == 'forward' else 'norms'} from 256 MB on, {who}",
        aim=f"{100 * aim:.0f} % of the copy rate",
        got=said or "not measured",
        holds=bool(found) and min(found.values()) >= aim,
    )


def _losses(run: Run, who: str, pass_: str = "both", most: float = 1900.0) -> Aim:
    row = run.cases.get(("cross_entropy", 32768, 50304, 0, "bfloat16", pass_), {}).get(who)
    return Aim(
        what=f"cross_entropy 32768 x 50304 {pass_}, {who}",
        aim=f"{most / 1e3:.1f} ms",
        got=f"{row['us'] / 1e3:.2f} ms" if row else "not measured",
        holds=row is not None and row["us"] <= most,
    )


def _optimizer(run: Run) -> Aim:
    by = run.cases.get(("adamw", 148, 403_000_000, 0, "float32", "step"), {})
    row = by.get("undertorch own")
    most = 1.1 * 32 * 403e6 / run.copy * 1e6
    return Aim(
        what="AdamW with clipping, 403 M float32 parameters",
        aim=f"1.1 x 32 bytes a parameter at the copy rate, {most / 1e3:.2f} ms",
        got=f"{row['us'] / 1e3:.2f} ms, torch {by['torch']['us'] / 1e3:.2f}"
        if row and "torch" in by
        else "not measured",
        holds=row is not None and row["us"] <= most,
    )


def _linear(run: Run) -> list[Aim]:
    by = run.cases.get(("linear_cross_entropy", 16384, 128256, 4096, "bfloat16", "both"), {})
    what = "linear_cross_entropy 16384 x 4096 x 128256 both"

    def compared(figure: str, scale: float, unit: str, mine: str, theirs: str, said: str) -> Aim:
        ours, other = by.get(mine), by.get(theirs)
        return Aim(
            what=f"{what}, {said}",
            aim=f"{SAID_OF[theirs]}: {other[figure] / scale:.2f} {unit}" if other else SAID_OF[theirs],
            got=f"{ours[figure] / scale:.2f} {unit}" if ours else "not measured",
            holds=bool(ours and other and ours[figure] <= other[figure] * (1 + ALIKE)),
        )

    return [
        compared("us", 1e3, "ms", "undertorch own", "torch.compile", "time"),
        compared("peak_bytes", 2**30, "GiB", "undertorch own", "liger, wide sums", "memory, float32 sums"),
        compared("peak_bytes", 2**30, "GiB", "undertorch own, narrow sums", "liger", "memory, bfloat16 sums"),
        compared("us", 1e3, "ms", "undertorch own", "liger, wide sums", "time beside Liger, float32 sums"),
        compared("us", 1e3, "ms", "undertorch own, narrow sums", "liger", "time beside Liger, bfloat16 sums"),
    ]


def behind(run: Run, who: str) -> dict[str, str]:
    """Where a peer is ahead by more than 5 % and 1 µs: whose time, and by how much."""
    found = {}
    for key, by in run.cases.items():
        peers = {name: by[name]["us"] for name in PEERS if name in by}
        if who in by and peers:
            best = min(peers, key=lambda name: peers[name])
            mine = by[who]["us"]
            if mine > peers[best] * (1 + BEHIND_BY) and mine > peers[best] + BEHIND_US:
                found[named(key)] = f"{mine:.1f} µs, {best} {peers[best]:.1f}"
    return found


def _behind(run: Run, who: str) -> Aim:
    found = behind(run, who)
    tried = sum(who in by for by in run.cases.values())
    return Aim(
        what=f"passes in which {who} is behind the best peer by more than 5 % and 1 µs",
        aim=f"none of {tried}",
        got="; ".join(f"{name}: {text}" for name, text in found.items()) or "none",
        holds=not found and tried > 0,
    )


def library_share(folder: Path) -> str:
    """How many of the choices that `auto` made in the run are the library's."""
    file = folder / "cache" / "ops.json"
    if not file.exists():
        return "nothing was chosen"
    choices = [choice for some in json.loads(file.read_text())["choices"].values() for choice in some.values()]
    library = [choice["key"] for choice in choices if choice["way"] == "library"]
    return f"{len(library)} of {len(choices)} choices are the library's: {', '.join(library) or 'none'}"


def drift(runs: Sequence[Run]) -> list[Row]:
    """How far earlier runs lay from the last, of our own and torch's times."""
    rows = []
    for number, run in enumerate(runs[:-1]):
        apart = [
            by[who]["us"] / runs[-1].cases[key][who]["us"] - 1
            for key, by in run.cases.items()
            for who in by
            if who in runs[-1].cases.get(key, {})
        ]
        if apart:
            rows.append({
                "op": "repeat", "run": number, "figures": len(apart),
                "median_apart": round(sorted(map(abs, apart))[len(apart) // 2], 4),
                "most_apart": round(max(apart, key=abs), 4),
            })  # fmt: skip
    return rows


# Plot

COLOURS = {
    "undertorch own": "#c0392b", "undertorch auto": "#e67e22", "torch": "#7f8c8d", "torch.compile": "#2980b9",
    "liger": "#27ae60", "quack": "#8e44ad",
}  # fmt: skip
LINE, LEFT, WIDE = 18, 330, 560


def plot(run: Run) -> str:
    """A dot for each who on a line for each pass: its share of the copy rate of the run."""
    lines = [(key, by) for key, by in run.cases.items() if not any("flops" in row for row in by.values())]
    high = LINE * (len(lines) + 4)

    def x(value: float) -> float:
        return LEFT + WIDE * min(value, 1.1) / 1.1

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDE + 20}" height="{high}" '
             'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="#fff"/>']  # fmt: skip
    for place, (who, colour) in enumerate(COLOURS.items()):
        parts.append(f'<circle cx="{20 + place * 130}" cy="12" r="4" fill="{colour}"/>'
                     f'<text x="{28 + place * 130}" y="16">{who}</text>')  # fmt: skip
    for tenth in range(0, 11, 2):
        at = x(tenth / 10)
        parts.append(f'<line x1="{at}" x2="{at}" y1="{2 * LINE}" y2="{high - LINE}" stroke="#ddd"/>'
                     f'<text x="{at}" y="{2 * LINE - 5}" text-anchor="middle">{tenth * 10} %</text>')  # fmt: skip
    for number, (key, by) in enumerate(lines):
        y = LINE * (number + 3)
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{named(key)}</text>')
        for who in reversed([name for name in COLOURS if name in by]):
            parts.append(f'<circle cx="{x(share(run, by[who])):.1f}" cy="{y}" r="4" fill="{COLOURS[who]}">'
                         f"<title>{who}: {by[who]['us']:.1f} µs</title></circle>")  # fmt: skip
    return "\n".join([*parts, "</svg>"]) + "\n"


def rows_of(run: Run) -> Iterable[Row]:
    """What is kept: every figure, its share of the copy rate."""
    for by in run.cases.values():
        for row in by.values():
            yield {
                **{name: value for name, value in row.items() if name != "at_s"},
                "of_copy": round(share(run, row), 4),
            }


def keep_contract(files: Sequence[Path], versions: dict[str, str], machine: str) -> None:
    """The matrix: rows that there are, were tried and were right, on the CPU and on the GPU."""
    cpu, gpu = (json.loads(file.read_text("utf-8")) for file in files)
    rows: list[Row] = []
    for kind, lines in gpu["matrix"].items():
        for name, count in lines.items():
            on_cpu = cpu["matrix"][kind].get(name, {"tried": 0, "right": 0})
            row = {"kind": kind, "name": name, "rows": count["rows"]}
            for who, one in (("gpu", count), ("cpu", on_cpu)):
                row |= {f"{who}_tried": one["tried"], f"{who}_right": one["right"]}
            rows.append(row)
    rows += [{"kind": "wrong", **row} for row in (*cpu["wrong"], *gpu["wrong"])]
    found = []
    for one in (cpu, gpu):
        there, tried, right = (
            sum(count[what] for count in one["matrix"]["ops"].values()) for what in ("rows", "tried", "right")
        )
        found.append(Aim(
            what=f"rows of the contract on {one['device']}", aim=f"all {there} right",
            got=f"{right} of {tried} that were tried", holds=right == tried == there,
        ))  # fmt: skip
    write("ops_contract", rows, found, versions, machine=machine)


def keep_sanitized(files: Sequence[Path], versions: dict[str, str], machine: str) -> None:
    """compute-sanitizer's findings, group by group, each as the last run of it has them."""
    each = [
        {(row["tool"], row["group"]): {name: row[name] for name in KEPT_OF_A_GROUP} for row in json.loads(text)}
        for text in (file.read_text("utf-8") for file in files)
    ]
    rows: list[Row] = list({key: row for one in each for key, row in one.items()}.values())
    again = " ".join(dict.fromkeys(group for one in each[1:] for _, group in one))
    clean, ran = sum(row["clean"] for row in rows), [row for row in rows if row["status"] is not None]
    theirs = sum(bool(row["in_cublas"]) for row in rows)
    aim = Aim(
        what="compute-sanitizer over the ops, groups by tool",
        aim="all clean",
        got=f"{clean} of {len(ran)} clean; {len(rows) - len(ran)} out of time; findings in cuBLAS's kernels: {theirs}"
        + f"; run again, in a later run: {again}" * bool(again),
        holds=clean == len(rows),
    )
    write("ops_sanitized", rows, [aim], versions, machine=machine)


def keep_overhead(file: Path, versions: dict[str, str], machine: str) -> None:
    """µs of a call, graph breaks, compilations."""
    rows = json.loads(file.read_text("utf-8"))
    looked = [row for row in rows if "graph_breaks" in row]
    times = {row["op"]: row["forward_us"] / row["torch_forward_us"] for row in rows if "torch_forward_us" in row}
    aims = [
        Aim(what="eager call, CPU's time, forward", aim=f"at most {NEAR_TORCH:g} times torch's op",
            got=", ".join(f"{op} {ratio:.1f}" for op, ratio in times.items()),
            holds=bool(times) and max(times.values()) <= NEAR_TORCH),
        Aim(what="graph breaks", aim="0", got=str(sum(row["graph_breaks"] for row in looked)),
            holds=bool(looked) and not any(row["graph_breaks"] for row in looked)),
        Aim(what="compilations over 20 batch sizes", aim="at most 2 an op",
            got=str(max((row["compilations"] for row in looked), default="not looked at")),
            holds=bool(looked) and all(row["compilations"] <= 2 for row in looked)),
    ]  # fmt: skip
    write("ops_overhead", rows, aims, versions, machine=machine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--again", type=Path, help="a run of some ops alone, after the others")
    parser.add_argument("--contract", type=Path, nargs=2, metavar=("CPU", "CUDA"))
    parser.add_argument("--sanitized", type=Path, nargs="+")
    parser.add_argument("--overhead", type=Path)
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    asked = parser.parse_args()
    runs = [read(folder) for folder in asked.out]
    again = read(asked.again) if asked.again else None
    run = renewed(runs[-1], again) if again else runs[-1]
    found = aims(run)
    for row in run.failed:
        print("failed:", {name: str(value)[:160] for name, value in row.items()})
    print(library_share(asked.out[-1]))
    if asked.dry:
        for aim in found:
            print("holds" if aim.holds else "falls short", aim)
        for key, by in run.cases.items():
            print(named(key), {who: f"{row['us']:.1f} ({100 * share(run, row):.0f} %)" for who, row in by.items()})
        return
    extra: list[Row] = [
        {"op": "copy", "rate": run.copy},
        *({"op": "matmul", "config": name, "rate": rate} for name, rate in run.matmul.items()),
        *({"op": "measured again", "which": op, "copy_rate": rate} for op, rate in run.copies.items()),
        *(
            {"op": "library's share", "said": library_share(folder)}
            for folder in (asked.out[-1], asked.again)
            if folder
        ),
        *drift(runs),
        *run.failed,
    ]
    machine = f"{run.gpu}, driver {run.versions['driver']}"
    write("ops", [*rows_of(run), *extra], found, run.versions, machine=machine)
    (Path(__file__).parent.parent / "docs" / "ops.svg").write_text(plot(run), encoding="utf-8")
    if asked.contract:
        keep_contract(asked.contract, run.versions, machine)
    if asked.sanitized:
        keep_sanitized(asked.sanitized, run.versions, machine)
    if asked.overhead:
        keep_overhead(asked.overhead, run.versions, machine)


if __name__ == "__main__":
    main()
