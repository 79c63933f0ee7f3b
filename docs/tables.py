"""Makes the tables of the pages in TABLES from benchmarks/results/: `make bench`. The ops' calls come from their code.

A table stands between `<!-- table NAME -->` and `<!-- end -->`; NAME is a function here.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ops_calls import ops_calls
from train_tables import train_gpus, train_peers, train_phases

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def result(name: str) -> dict:
    """A benchmark's last result."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(head: list[str], rows: list[list[object]]) -> str:
    """A Markdown table; all columns but the first are figures."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def kinds() -> str:
    """Busy time of the GPT-2 step by kind of kernel."""
    rows = [row for row in result("gpt2_against_h200")["rows"] if "kind" in row]
    predicted, measured = (sum(row[key] for row in rows) for key in ("predicted_us", "measured_us"))
    cells = [
        [
            r["kind"],
            r["launches"],
            f"{r['predicted_us'] / 1e3:.2f}",
            f"{r['measured_us'] / 1e3:.2f}",
            f"{r['ratio']:.2f}",
        ]
        for r in rows
    ]
    whole = ["**all**", sum(r["launches"] for r in rows), f"{predicted / 1e3:.2f}", f"{measured / 1e3:.2f}"]
    return table(
        ["kind", "launches", "predicted ms", "measured ms", "ratio"], [*cells, [*whole, f"{predicted / measured:.3f}"]]
    )


def scripts() -> str:
    """Step time and peak memory of whole scripts."""
    return table(
        ["script", "step predicted", "measured", "peak memory predicted", "measured"],
        [
            [
                f"`{r['script']}`",
                f"{r['step_us predicted'] / 1e3:.1f} ms",
                f"{r['step_us measured'] / 1e3:.1f} ms",
                f"{r['peak_bytes predicted'] / 1e9:.2f} GB",
                f"{r['peak_bytes measured'] / 1e9:.2f} GB",
            ]
            for r in result("scripts_against_h200")["rows"]
        ],
    )


def cost() -> str:
    """What seeing costs."""
    content = result("see_cost")
    rows = [[r["what"], f"{r['seconds']} s" if "seconds" in r else f"{r['GiB']} GiB"] for r in content["rows"]]
    return table([f"`see` of GPT-2 124M, {content['machine']}", ""], rows)


LEVELS = ("none", "counters", "events")


def machine_speeds() -> str:
    """Executed thread-instructions of the machine, by kernel and by what is watched."""
    rows = [row for row in result("machine_speed")["rows"] if row.get("threads") == 1]
    speeds = {(row["kernel"], row["instrument"]): row["giga_per_processor_second"] for row in rows}
    kernels = dict.fromkeys(row["kernel"] for row in rows)
    cells = [[f"`{kernel}`", *(f"{speeds[kernel, level]:.1f}" for level in LEVELS)] for kernel in kernels]
    return table(["10⁹ thread-instructions a second, one host thread", "nothing", "counters", "events"], cells)


def machine_compiles() -> str:
    """What the machine's compiling takes."""
    states = ("first on a machine", "first in a process", "next in a process", "kept")
    rows = [row for row in result("machine_speed")["rows"] if "ptx_statements" in row]
    cells = [
        [f"`{row['kernel']}`", row["ptx_statements"], *(f"{1e3 * row[f'{s}, seconds']:.0f} ms" for s in states)]
        for row in rows
    ]
    return table(["kernel", "PTX statements", *states], cells)


def triton_cases() -> str:
    """Errors and seconds of Triton's kernels on the machine."""
    rows = [row for row in result("triton_on_machine")["rows"] if "torch_error" in row]
    cells = [[r["case"], r["source"], f"{r['error']:.1e}", f"{r['torch_error']:.1e}", r["launches"],
              f"{r['seconds']:.2g}"] for r in rows]  # fmt: skip
    return table(["", "of", "error", "torch's on the CPU", "launches", "seconds"], cells)


def triton_speeds() -> str:
    """Beside Triton's interpreter."""
    rows = [row for row in result("triton_on_machine")["rows"] if "machine_seconds" in row]

    def seconds(value: float | str) -> str:
        return value if isinstance(value, str) else f"{value:.2g} s"

    cells = [[r["case"], seconds(r["machine_seconds"]), seconds(r["interpreter_seconds"]),
              "" if r["times"] is None else f"{r['times']:.0f}"] for r in rows]  # fmt: skip
    return table(["forward", "the machine", "Triton's interpreter", "times"], cells)


MEASURES = {"ulp": "units of the last place", "relative": "of the value", "absolute": "absolute"}


def approximations() -> str:
    """The greatest errors of `.approx` instructions: stated, a GPU's, the machine's."""
    content = result("approximations")

    def figure(row: dict[str, Any], which: str) -> str:
        if row[which] is None:
            return "none"
        return f"{row[which]:.2f}" if row["measure"] == "ulp" else f"2^{math.log2(row[which]):.1f}"

    cells = [
        [f"`{r['opcode']}`", r["over"], MEASURES[r["measure"]], *(figure(r, w) for w in ("stated", "gpu", "machine"))]
        for r in content["rows"]
    ]
    gpu = f"{content['versions']['gpu']}, driver {content['versions']['driver']}"
    return table(["", "over", "greatest error", "stated by the PTX ISA", gpu, "the machine"], cells)


def trace_joins() -> str:
    """What of everything on the GPU could be joined, by trace."""
    rows = [row for row in result("traces")["rows"] if "trace" in row]
    head = ["trace", "GPU", "on the GPU", "with launch", "with call", "backward", "accumulation", "forward found"]
    cells = [
        [
            f"`{r['trace']}`",
            r["gpu"],
            f"{r['on the GPU']:,}",
            f"{r['with launch']:,}",
            f"{r['with call']:,}",
            f"{r['in backward']:,}",
            f"{r['accumulation']:,}",
            f"{r['with forward']:,} of {r['with number']:,}",
        ]
        for r in rows
    ]
    idle = [f"{100 * r['idle_us'] / r['step_us']:.1f} %" for r in rows]
    lost = [f"{r['lost']:,}" for r in rows]
    more = [[*row, share, number] for row, share, number in zip(cells, idle, lost, strict=True)]
    return table([*head, "idle", "lost"], more)


def trace_speed() -> str:
    """Seconds and memory of reading, by size."""
    content = result("traces")
    rows = [row for row in content["rows"] if "what" in row]
    cells = [
        [
            f"{r['MB']:,} MB" + (f", gzip of {r['packed MB']:,} MB" if "packed MB" in r else ""),
            f"{r['seconds']:.1f} s",
            f"{r['processor seconds']:.1f} s",
            f"{r['MB'] / r['processor seconds']:.0f} MB",
            f"{r['peak MB']:,} MB",
        ]
        for r in rows
    ]
    head = [f"JSON, {content['machine']}", "`undertorch see`", "processor time", "a second of it", "peak memory"]
    return table(head, cells)


def measured_models() -> str:
    """Models seen on a GPU, and the same steps unseen."""

    def between(times: list[float]) -> str:
        return f"{min(times) / 1e3:.2f} … {max(times) / 1e3:.2f}"

    def losses(row: dict[str, Any]) -> str:
        return "same bits" if row["losses_same"] else f"differ from step {row['losses_differ_from_step']}"

    cells = [
        [
            f"`{r['model']}`",
            f"{r['launches']:,}",
            f"{100 * r['with_line']:.1f} %",
            f"{one['seen_median_us'] / 1e3:.2f}",
            between(one["seen_us"]),
            f"{one['unseen_median_us'] / 1e3:.2f}",
            between(one["unseen_us"]),
            f"{100 * (one['seen_median_us'] / one['unseen_median_us'] - 1):+.2f} %",
            f"{100 * r['idle_us'] / r['step_us']:.1f} %" if one is r else "",
            losses(r) if one is r else "another run",
        ]
        for r in result("golden_models")["rows"]
        for one in (r, *r["earlier"])
    ]
    head = ["run", "launches", "with a line", "seen, ms", "each step", "unseen, ms", "each step", "differs"]
    return table([*head, "idle", "losses"], cells)


def measured_shares() -> str:
    """Where the time of these launches has its line, and in which phase they ran."""

    def of(row: dict[str, Any], *phases: str) -> str:
        return f"{100 * sum(row['phases_us'][phase] for phase in phases) / row['kernels_us']:.1f} %"

    cells = [
        [
            f"`{r['model']}`",
            *(f"{100 * r['shares'][where]:.1f} %" for where in ("model", "no line")),
            of(r, "forward", "loss"),
            of(r, "backward", "accumulate"),
            of(r, "recompute"),
            of(r, "clip", "update"),
            of(r, "communicate", "other"),
            f"{100 * r['idle_us'] / r['step_us']:.1f} %",
        ]
        for r in result("golden_models")["rows"]
    ]
    head = ["run", "line in the model's file", "no line", "forward, loss", "backward", "recompute"]
    return table([*head, "clip, update", "other", "idle, of the step"], cells)


def recordings() -> str:
    """The same models recorded twice."""
    cells = [
        [
            f"`{r['model']}`",
            f"{r['ops_alike']:,} of {max(r['ops']):,}",
            f"{r['kernels_alike']:,} of {max(r['launches']):,}",
            f"{r['launches_alike']:,}",
            f"{r['busy_us'][0] / 1e3:.2f}, {r['busy_us'][1] / 1e3:.2f}",
            f"{100 * (r['ratio_median'] - 1):+.2f} %",
            f"{100 * (r['ratio_5_95'][0] - 1):+.1f} … {100 * (r['ratio_5_95'][1] - 1):+.1f} %",
        ]
        for r in result("recordings_compared")["rows"]
    ]
    head = ["run", "ops at the same line", "kernels there", "with the same grid", "kernels' sum, ms"]
    return table([*head, "a launch, median", "nine in ten"], cells)


def gpu_only() -> str:
    """What a step takes unprofiled, with the profiler on the GPU alone, and under the whole profiler."""
    times = ("unprofiled_us", "gpu_only_us", "whole_us")
    cells = [
        [
            f"`{r['model']}`",
            r["launches"],
            *(f"{r[name] / 1e3:.1f}" for name in times),
            *(f"{r[name] / r[times[0]]:.2f}" for name in times[1:]),
        ]
        for r in result("gpu_only")["rows"]
    ]
    head = ["step", "launches", "unprofiled, ms", "the GPU alone, ms", "the whole profiler, ms"]
    return table([*head, "the GPU alone", "the whole, times unprofiled"], cells)


def ranks_measured() -> str:
    """Several ranks: communication in the report beside the sum of NCCL's kernels in the raw trace."""

    def ms(time_us: float | None) -> str:
        return "–" if time_us is None else f"{time_us / 1e3:.2f}"

    cells = [
        [
            f"{row['run']}, rank {one['rank']}",
            ms(one["unprofiled_us"]),
            ms(one["step_us"]),
            one["nccl_kernels"],
            f"{one['communication_us']:,.1f}",
            f"{one['nccl_us']:,.1f}",
            ms(one["waited_us"]),
            ms(one["moving_us"]),
            ms(one["compute_us"]),
        ]
        for row in result("ranks_measured")["rows"]
        for one in row["ranks"]
    ]
    head = ["run", "step, ms", "profiled, ms", "NCCL's kernels", "communication in the report, µs"]
    return table([*head, "sum of NCCL's kernels, µs", "waiting, ms", "moving, ms", "computing, ms"], cells)


def _beside(r: dict[str, Any]) -> list[str]:
    """Of a model's row its step and busy time, predicted, measured and their ratio, and the ratio of its memory."""
    times = [
        cell
        for what in ("step", "busy")
        for cell in (
            f"{r[f'{what}_us predicted'] / 1e3:.1f}",
            f"{r[f'{what}_us measured'] / 1e3:.1f}",
            f"{r[f'{what} ratio']:.2f}",
        )
    ]
    return [*times, f"{r['peak ratio']:.3f}"]


def ten_models() -> str:
    """Steps, busy time and memory of ten models, predicted and measured."""
    rows = result("models_against_h200")["rows"]
    cells = [
        [
            f"`{r['model']}`",
            f"{r['ops at the same line in the same phase']:,} of {r['ops measured']:,}",
            *_beside(r),
        ]
        for r in sorted(rows, key=lambda row: abs(row["busy ratio"] - 1))
    ]
    head = ["model", "ops at their line", "step predicted, ms", "measured", "ratio", "busy predicted, ms", "measured"]
    return table([*head, "ratio", "peak memory, ratio"], cells)


def compiled_models() -> str:
    """Models under torch.compile: what Inductor writes, step, busy time and memory, predicted and measured."""
    rows = result("compiled_against_h200")["rows"]
    cells = [
        [
            f"`{r['model']}`",
            f"{r['of these of the same name in order']} of {r['kernels of Inductor measured']}",
            r["of these with the same grid"],
            *_beside(r),
        ]
        for r in rows
    ]
    head = ["model", "Inductor's kernels, by name in order", "of these grid equal", "step predicted, ms", "measured"]
    return table([*head, "ratio", "busy predicted, ms", "measured", "ratio", "peak memory, ratio"], cells)


def kinds_of_compiled() -> str:
    """The same by kind, of the models that nothing was fitted to."""
    kinds: dict[str, dict[str, float]] = {}
    ratios: dict[str, dict[str, float]] = {}
    for row in result("compiled_against_h200")["rows"]:
        if row["model"].startswith("gpt2"):
            continue
        for one in row["kinds"]:
            kept = kinds.setdefault(one["kind"], dict.fromkeys(one, 0.0) | {"kind": 0.0})
            for key, value in one.items():
                kept[key] += 0.0 if key == "kind" else value
            if one["us measured"] > SOME * row["busy_us measured"]:
                ratios.setdefault(one["kind"], {})[row["model"]] = one["us predicted"] / one["us measured"]

    cells = [
        [
            name,
            f"{one['launches predicted']:,.0f}",
            f"{one['launches measured']:,.0f}",
            f"{one['us predicted'] / 1e3:.1f}",
            f"{one['us measured'] / 1e3:.1f}",
            f"{one['us predicted'] / one['us measured']:.2f}",
            *(f"{pick(found.values()):.2f}" for pick in (min, max)),
        ]
        for name, one in sorted(kinds.items(), key=lambda item: -item[1]["us measured"])
        if (found := ratios.get(name))
    ]
    head = ["kind", "launches predicted", "measured", "predicted, ms", "measured, ms", "ratio", "least", "most"]
    return table(head, cells)


SOME = 0.01
"""Of a model's busy time: a kind of op that takes less of it is not compared there."""


def kinds_of_ten() -> str:
    """The same by kind of op: all ten together, and the models that are furthest off."""
    kinds: dict[str, dict[str, float]] = {}
    ratios: dict[str, dict[str, float]] = {}
    for row in result("models_against_h200")["rows"]:
        for one in row["kinds"]:
            whole = kinds.setdefault(one["kind"], dict.fromkeys(one.keys() - {"kind"}, 0))
            for key in whole:
                whole[key] += one[key]
            if one["us measured"] > SOME * row["busy_us measured"]:
                ratios.setdefault(one["kind"], {})[row["model"]] = one["us predicted"] / one["us measured"]

    def end(kind: str, pick: Callable[..., str]) -> str:
        found = ratios.get(kind, {})
        return f"{found[name]:.2f} {name}" if (name := pick(found, key=found.get, default="")) else ""

    cells = [
        [
            kind,
            f"{one['launches predicted']:,}",
            f"{one['launches measured']:,}",
            f"{one['us predicted'] / 1e3:.1f}",
            f"{one['us measured'] / 1e3:.1f}",
            f"{one['us predicted'] / one['us measured']:.2f}",
            end(kind, min),
            end(kind, max),
        ]
        for kind, one in sorted(kinds.items(), key=lambda item: -item[1]["us measured"])
    ]
    head = ["kind of op", "launches predicted", "measured", "predicted, ms", "measured, ms", "ratio", "least", "most"]
    return table(head, cells)


UNITS = {"B/s": (1e12, "TB/s"), "s": (1e-6, "µs"), "FLOP/s": (1e12, "TFLOP/s")}


def calibrated() -> str:
    """What an H200 reaches, beside its sheet."""
    content = result("calibration")

    def figure(value: float | None, unit: str, link: bool) -> str:
        if value is None:
            return ""
        scale, name = (1e9, "GB/s") if link else UNITS[unit]
        return f"{value / scale:.3g} {name}" if value / scale < 1000 else f"{value / scale:,.0f} {name}"

    cells = [
        [
            r["ceiling"],
            figure(r["value"], r["unit"], "host" in r["ceiling"]),
            f"{100 * r['spread']:.1f} %",
            figure(r["sheet"], r["unit"], "host" in r["ceiling"]),
            "" if r["sheet"] is None else f"{100 * r['value'] / r['sheet']:.0f} %",
            r["variant"],
        ]
        for r in content["rows"]
        if "ceiling" in r
    ]
    gpu = f"{content['machine']}, driver {content['versions']['driver']}"
    return table([gpu, "median", "±", "sheet", "of it", "variant"], cells)


WALKS = {
    "own": "each block a part of its own",
    "random": "from part to part at random",
    "next": "each block a part behind the next",
    "same": "all blocks the same part",
}


def l2_walks() -> str:
    """What arrives from the L2 by the order in which blocks read a set, past the L1; of sets of all sizes."""
    cells = []
    for walk, said in WALKS.items():
        rates = [r["TB/s"] for r in result("l2_walks")["rows"] if r["walk"] == walk and r["load"] == "cg"]
        cells.append([said, f"{min(rates):.1f} … {max(rates):.1f} TB/s"])
    return table(["an H200, 4 to 50 MiB", "arrives"], cells)


def seeing_cost() -> str:
    """What undertorch's own code takes of a clean step, and steps of seen and unseen processes."""

    def times(values: list[float]) -> str:
        return ", ".join(f"{one:.2f}" for one in values) or "–"

    cells = []
    for row in result("seeing_cost")["rows"]:
        if not (row["seen_ms"] and row["unseen_ms"]):
            continue
        own = row["own_us"]
        within = row.get("all against nothing", [])
        share = f"{100 * max(own) / 1e3 / max(row['seen_ms']):.2f} %" if own and row["seen_ms"] else "–"
        cells.append(
            [
                f"`{row['model']}`",
                ", ".join(f"{one:.0f}" for one in own) or "–",
                share,
                ", ".join(f"{100 * one:+.1f} %" for one in within) or "–",
                times(row["seen_ms"]),
                times(row["unseen_ms"]),
            ]
        )
    head = ["model", "undertorch's own, µs a step", "of the step", "with it against without", "seen, ms", "unseen, ms"]
    return table(head, cells)


def checked_kernels() -> str:
    """What check says of kernels that people use, and what it costs beside the machine alone."""
    cases = result("check_kernels")["rows"]
    sources: dict[str, list[dict]] = {}
    for case in cases:
        sources.setdefault(str(case["source"]).partition(" ")[0], []).append(case)
    rows = []
    for source, own in sources.items():
        found = [finding["severity"] for case in own for finding in case["findings"]]
        slower = sorted(case["checked_seconds"] / case["seconds"] for case in own)
        rows.append([
            {"tutorial": "Triton's tutorials", "undertorch": "our ops"}.get(source, source), len(own),
            len({kernel for case in own for kernel in case["kernels"]}),
            *(found.count(severity) for severity in ("error", "warning", "note")),
            f"{slower[len(slower) // 2]:.1f} ({slower[0]:.1f} to {slower[-1]:.1f})",
        ])  # fmt: skip
    return table(["", "cases", "kernels", "errors", "warnings", "notes", "times slower than the machine alone"], rows)


def counters() -> str:
    """The machine's counts against a GPU's."""
    rows = result("counters")["rows"]
    cells: list[list[object]] = [[r["what"], r["counted"], r["equal"]] for r in rows]
    whole = [sum(r[key] for r in rows) for key in ("counted", "equal")]
    return table(["an H200, by Nsight Compute", "counted", "equal"], [*cells, ["**all**", *whole]])


def sanitized() -> str:
    """Planted faults: who finds what, and in how long."""
    cells: list[list[object]] = []
    for row in result("sanitizer")["rows"]:
        tools = row["broken_sanitizer"]
        found = ", ".join(tools) or "–" if tools is not None else "not run"
        seconds = f"{row['broken_sanitizer_seconds']:.0f}" if row["broken_sanitizer_ended"] else "never ended"
        own = ", ".join(row["broken_undertorch"]) or "–"
        page = row["fault"]  # a fault that nobody finds has no page
        if (ROOT / "docs" / "faults" / f"{page}.md").exists():
            page = f"[{page}](faults/{page}.md)"
        cells.append([page, found, seconds, own, f"{row['broken_undertorch_seconds']:.1f}"])
    return table(["fault", "compute-sanitizer, four tools", "seconds, together", "undertorch", "seconds"], cells)


def check_scale() -> str:
    """Launches that could take too much."""
    cells: list[list[object]] = [
        [r["what"], f"{r['threads']:,}", f"{r['bytes'] / 1e6:,.0f} MB", f"{r['seconds']:.1f} s",
         f"{r['memory'] / 1e6:,.0f} MB"]
        for r in result("check_scale")["rows"]
    ]  # fmt: skip
    return table(["launch", "threads", "arguments", "checked in", "memory beside them"], cells)


OPS_BY = ("undertorch auto", "undertorch own", "torch", "torch.compile", "liger", "quack")
"""Who is in the table of the ops' times, in order."""

OPS_MEASURED = ROOT / "src" / "undertorch" / "ops" / "measured.json"


def ops_cases() -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """By op and by what was measured of it (shape, dtype unless bfloat16, pass): the row of each who was."""
    cases: dict[tuple[str, str], dict[str, Any]] = {}
    for row in result("ops")["rows"]:
        if "us" not in row:
            continue
        size = " × ".join(str(row[name]) for name in ("rows", "features", "width") if row[name])
        kind = "" if row["dtype"] == "bfloat16" else f" {row['dtype']}"
        case = f"{row['op']} {size}{kind}, {row['pass_']}"
        cases.setdefault((row["op"].partition(",")[0], case), {})[row["who"]] = row
    return cases


def ops_measured() -> str:
    """The same times as a file of the package: `undertorch ops explain` prints them."""
    content = result("ops")
    versions = ", ".join(f"{name} {content['versions'][name]}" for name in ("torch", "triton"))
    rows = [
        {"op": op, "case": case, "us": {who.removeprefix("undertorch "): by[who]["us"] for who in OPS_BY if who in by}}
        for (op, case), by in ops_cases().items()
    ]
    where = f"{content['machine']}, {versions}, {content['date']}"
    return json.dumps({"where": where, "rows": rows}, indent=1, ensure_ascii=False) + "\n"


def ops_times() -> str:
    """Times of the training ops beside others', with the share of the copy rate, or the arithmetic, of `auto`."""

    def time(row: dict[str, Any] | None) -> str:
        if row is None:
            return ""
        return f"{row['us'] / 1e3:.2f} ms" if row["us"] >= 1000 else f"{row['us']:.0f} µs"

    def reached(row: dict[str, Any]) -> str:
        if "flops" in row:
            return f"{row['flops'] / row['us'] / 1e6:.0f} TFLOP/s"
        return f"{100 * row['of_copy']:.0f} %"

    cells = []
    for (_, case), by in ops_cases().items():
        first = by.get("undertorch auto") or by.get("undertorch own")
        cells.append(
            [
                case,
                *(time(by.get(who)) for who in OPS_BY),
                reached(first) if first else "",
            ]
        )
    return table(
        [f"{result('ops')['machine']}", *(who.removeprefix("undertorch ") for who in OPS_BY), "of copy"], cells
    )


def ops_aims() -> str:
    """What was aimed at with the ops, and what was reached."""
    aims = [aim for name in ("ops", "ops_sanitized") for aim in result(name)["aims"]]
    return table(["", "aim", "reached", ""],
                 [[aim["what"], aim["aim"], aim["got"], "yes" if aim["holds"] else "no"] for aim in aims])  # fmt: skip


def ops_saved() -> str:
    """Bytes and arithmetic of plain torch and of the ops, forward and backward."""

    def less(row: dict[str, Any], what: str) -> str:
        before, after = row[f"{what} torch"], row[f"{what} undertorch"]
        return f"{100 * (after / before - 1):+.0f} %" if before else ""

    rows = result("ops_savings")["rows"]
    return table(
        ["forward and backward", "bytes, torch", "ours", "", "FLOPs, torch", "ours", "", "launches"],
        [
            [
                r["op"],
                f"{r['bytes torch'] / 1e9:.2f} GB", f"{r['bytes undertorch'] / 1e9:.2f} GB", less(r, "bytes"),
                f"{r['flops torch'] / 1e9:,.1f} G", f"{r['flops undertorch'] / 1e9:,.1f} G", less(r, "flops"),
                f"{r['launches torch']} → {r['launches undertorch']}",
            ]
            for r in rows
        ],
    )  # fmt: skip


def ops_contract() -> str:
    """Rows of the contract by class of past mistakes."""
    rows = [row for row in result("ops_contract")["rows"] if row["kind"] == "past bugs"]
    return table(
        ["rows that look for", "there are", "right on the GPU, of those tried", "right on the CPU, of those tried"],
        [
            [r["name"], r["rows"], f"{r['gpu_right']} of {r['gpu_tried']}", f"{r['cpu_right']} of {r['cpu_tried']}"]
            for r in rows
        ],
    )


def ops_overhead() -> str:
    """µs of the CPU's time of a call."""
    return table(
        ["op", "forward, µs", "torch", "backward, µs", "torch", "graph breaks", "compilations for 20 batch sizes"],
        [
            [r["op"], f"{r['forward_us']:.0f}", f"{r['torch_forward_us']:.0f}", f"{r['backward_us']:.0f}",
             f"{r['torch_backward_us']:.0f}", r.get("graph_breaks", ""), r.get("compilations", "")]
            for r in result("ops_overhead")["rows"]
        ],
    )  # fmt: skip


TABLES: dict[str, tuple[Callable[[], str], ...]] = {
    "check.md": (checked_kernels,),
    "check_counts.md": (counters, sanitized, check_scale),
    "accuracy.md": (kinds, scripts, ten_models, kinds_of_ten, compiled_models, kinds_of_compiled, cost),
    "gpus.md": (calibrated, l2_walks),
    "machine.md": (machine_speeds, machine_compiles, approximations),
    "measuring.md": (
        measured_models,
        measured_shares,
        seeing_cost,
        recordings,
        gpu_only,
        ranks_measured,
    ),
    "ops.md": (ops_calls, ops_times, ops_aims, ops_saved, ops_overhead, ops_contract),
    "traces.md": (trace_joins, trace_speed),
    "train.md": (train_gpus, train_peers, train_phases),
    "triton.md": (triton_cases, triton_speeds),
}


def fault_time(fault: str) -> str:
    """What a fault of docs/faults/ costs on the GPU that it was measured on; nothing where it was not measured."""
    path = RESULTS / "fault_times.json"
    content = json.loads(path.read_text()) if path.exists() else {"rows": []}
    rows = [row for row in content["rows"] if row["fault"] == fault]
    gpu = content.get("machine", "").partition(";")[0]
    return "".join(
        f"On an {gpu}, {row['what']}: {row['broken_us']:.1f} µs, mended {row['mended_us']:.1f} µs "
        f"({row['broken_us'] / row['mended_us']:.2f} times).\n"
        for row in rows
    )


def fault_times() -> None:
    """Fills in the times of the pages of docs/faults/."""
    for page in sorted((ROOT / "docs" / "faults").glob("*.md")):
        text = page.read_text()
        block = r"(<!-- table fault_time -->\n).*?(<!-- end -->)"
        page.write_text(re.sub(block, lambda m, page=page: m[1] + fault_time(page.stem) + m[2], text, flags=re.S))


def main() -> None:
    """Fills in every table of the pages."""
    fault_times()
    OPS_MEASURED.write_text(ops_measured(), encoding="utf-8")
    for name, tables in TABLES.items():
        page = ROOT / "docs" / name
        text = page.read_text()
        for made in tables:
            block = rf"(<!-- table {made.__name__} -->\n).*?(\n<!-- end -->)"
            text, found = re.subn(block, lambda m, made=made: m[1] + made() + m[2], text, flags=re.S)
            if found != 1:
                raise SystemExit(f"{name} has {found} places for the table {made.__name__}; one is needed.")
        page.write_text(text)


if __name__ == "__main__":
    main()
