"""How far the .approx instructions lie from the true values: on a GPU, and on the machine.

python benchmarks/approximations.py FOLDER                 measure on this GPU, into FOLDER/h200_approximations.json
python benchmarks/approximations.py --beside               the machine beside tests/golden's, into results/

Every mantissa of the binades that an instruction treats alike where there are 2^24 of them, every float16 and bfloat16,
2^22 numbers elsewhere. The PTX ISA states a bound for most; some it leaves open.
"""

import argparse
import datetime
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import undertorch

MEASURED = Path(__file__).parent.parent / "tests/golden/h200_approximations.json"
Array = np.ndarray[Any, Any]
LONG = np.longdouble
"""80 bits on x86-64: a reference for float64's results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One instruction over one range, and what its error is measured in."""

    opcode: str
    over: str
    inputs: Callable[[int], tuple[Array, ...]]
    true: Callable[..., Array]
    measure: str
    """`relative`, `absolute`, or `ulp` of the result's format."""
    stated: float | None
    """By the PTX ISA ("Floating Point Instructions"), in the same measure; None where it states none."""


def mantissas(low: float, binades: int) -> Callable[[int], tuple[Array, ...]]:
    """Every float32 from `low` on, thinned out to a count."""

    def make(most: int) -> tuple[Array, ...]:
        first = int(np.float32(low).view(np.uint32))
        bits = np.arange(first, first + (binades << 23), max(1, (binades << 23) // most), dtype=np.uint32)
        return (bits.view(np.float32),)

    return make


def uniform(low: float, high: float, kind: type = np.float32) -> Callable[[int], tuple[Array, ...]]:
    def make(most: int) -> tuple[Array, ...]:
        return (np.random.default_rng(3).uniform(low, high, min(most, 1 << 22)).astype(kind),)

    return make


def every_half(most: int) -> tuple[Array, ...]:
    return (np.arange(1 << 16, dtype=np.uint32).astype(np.uint16),)


def pairs(most: int) -> tuple[Array, ...]:
    generator = np.random.default_rng(5)
    count = min(most, 1 << 22)
    a, b = (generator.uniform(1, 2, count) * 2.0 ** generator.integers(-60, 60, count) for _ in range(2))
    return a.astype(np.float32), b.astype(np.float32)


def inverse_root(x: Array) -> Array:
    return 1 / np.sqrt(x.astype(LONG))


def bf16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


PI = math.pi
TRIALS = (
    Trial(opcode="rcp.approx.ftz.f32", over="[1, 2)", inputs=mantissas(1, 1), true=lambda x: 1 / x, measure="ulp",
          stated=1),
    Trial(opcode="rcp.approx.f32", over="[1, 2)", inputs=mantissas(1, 1), true=lambda x: 1 / x, measure="ulp",
          stated=1),
    Trial(opcode="sqrt.approx.ftz.f32", over="[1, 4)", inputs=mantissas(1, 2), true=np.sqrt, measure="relative",
          stated=2.0**-23),
    Trial(opcode="rsqrt.approx.ftz.f32", over="[1, 4)", inputs=mantissas(1, 2), true=lambda x: 1 / np.sqrt(x),
          measure="relative", stated=2.0**-22.9),
    Trial(opcode="div.full.ftz.f32", over="2^±60 / 2^±60", inputs=pairs, true=lambda a, b: a / b, measure="ulp",
          stated=2),
    Trial(opcode="div.approx.ftz.f32", over="2^±60 / 2^±60", inputs=pairs, true=lambda a, b: a / b, measure="ulp",
          stated=2),
    Trial(opcode="ex2.approx.ftz.f32", over="[0.5, 2)", inputs=mantissas(0.5, 2), true=np.exp2, measure="ulp",
          stated=2),
    Trial(opcode="ex2.approx.ftz.f32", over="[-126, 128)", inputs=uniform(-126, 128), true=np.exp2, measure="ulp",
          stated=2),
    Trial(opcode="lg2.approx.ftz.f32", over="[0.5, 2)", inputs=mantissas(0.5, 2), true=np.log2, measure="absolute",
          stated=2.0**-22),
    Trial(opcode="lg2.approx.ftz.f32", over="[2, 2^64)", inputs=mantissas(2, 63), true=np.log2, measure="relative",
          stated=2.0**-22),
    Trial(opcode="sin.approx.ftz.f32", over="[-π, π]", inputs=uniform(-PI, PI), true=np.sin, measure="absolute",
          stated=2.0**-20.5),
    Trial(opcode="cos.approx.ftz.f32", over="[-π, π]", inputs=uniform(-PI, PI), true=np.cos, measure="absolute",
          stated=2.0**-20.5),
    Trial(opcode="sin.approx.ftz.f32", over="[-100π, 100π]", inputs=uniform(-100 * PI, 100 * PI), true=np.sin,
          measure="absolute", stated=2.0**-14.7),
    Trial(opcode="cos.approx.ftz.f32", over="[-100π, 100π]", inputs=uniform(-100 * PI, 100 * PI), true=np.cos,
          measure="absolute", stated=2.0**-14.7),
    Trial(opcode="sin.approx.ftz.f32", over="[10⁵, 2·10⁵]", inputs=uniform(1e5, 2e5), true=np.sin, measure="absolute",
          stated=None),
    Trial(opcode="tanh.approx.f32", over="[2^-10, 2^4)", inputs=mantissas(2.0**-10, 14), true=np.tanh,
          measure="relative", stated=2.0**-11),
    Trial(opcode="ex2.approx.f16", over="every float16", inputs=every_half, true=np.exp2, measure="relative",
          stated=2.0**-9.9),
    Trial(opcode="tanh.approx.f16", over="every float16", inputs=every_half, true=np.tanh, measure="absolute",
          stated=2.0**-10.987),
    Trial(opcode="ex2.approx.ftz.bf16", over="every bfloat16", inputs=every_half, true=np.exp2, measure="relative",
          stated=2.0**-7),
    Trial(opcode="tanh.approx.bf16", over="every bfloat16", inputs=every_half, true=np.tanh, measure="absolute",
          stated=2.0**-8),
    Trial(opcode="rsqrt.approx.f64", over="[1, 4)", inputs=uniform(1, 4, np.float64), true=inverse_root, measure="ulp",
          stated=2),
    Trial(opcode="rsqrt.approx.ftz.f64", over="[1, 4)", inputs=uniform(1, 4, np.float64), true=inverse_root,
          measure="relative", stated=None),
    Trial(opcode="rcp.approx.ftz.f64", over="[1, 2)", inputs=uniform(1, 2, np.float64),
          true=lambda x: 1 / x.astype(LONG), measure="relative", stated=None),
)  # fmt: skip


def kind_of(opcode: str) -> str:
    return opcode.rsplit(".", 1)[1]


def kernel(opcode: str, count: int) -> Any:
    """`opcode` on each of n elements of `count` arrays."""
    bits = {"f64": 64, "f32": 32}.get(kind_of(opcode), 16)
    letter = {64: "d", 32: "f", 16: "h"}[bits]
    loads = "".join(
        f"ld.param.u64 %p, [in{n}]; mad.wide.u32 %p, %i, {bits // 8}, %p; ld.global.b{bits} %{letter}{n}, [%p];\n"
        for n in range(count)
    )
    parameters = "".join(f".param .u64 in{n}, " for n in range(count))
    sources = ", ".join(f"%{letter}{n}" for n in range(count))
    return undertorch.ptx(f""".version 8.0
.target sm_90
.address_size 64
.visible .entry apply(.param .u64 out, {parameters}.param .u32 n)
{{
.reg .pred %q; .reg .b16 %h<4>; .reg .f32 %f<4>; .reg .f64 %d<4>; .reg .b32 %i, %n, %t; .reg .b64 %p;
mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %n, %t;
ld.param.u32 %n, [n]; setp.ge.u32 %q, %i, %n; @%q ret;
{loads}{opcode} %{letter}3, {sources};
ld.param.u64 %p, [out]; mad.wide.u32 %p, %i, {bits // 8}, %p; st.global.b{bits} [%p], %{letter}3;
ret;
}}
""")["apply"]


def answers(opcode: str, inputs: tuple[Array, ...], gpu: bool) -> Array:
    n, out = len(inputs[0]), np.zeros_like(inputs[0])
    run = kernel(opcode, len(inputs))[-(-n // 128), 128]
    if not gpu:
        with undertorch.machine(gpu="H200", threads=2):
            run(out, *inputs, n)
        return out
    import torch

    signed = {2: np.int16, 4: np.int32, 8: np.int64}[out.itemsize]
    there, *given = (torch.from_numpy(a.view(signed)).cuda() for a in (out, *inputs))
    run(there, *given, n)
    return there.cpu().numpy().view(out.dtype)


def worst(trial: Trial, gpu: bool, most: int) -> dict[str, Any]:
    """The greatest error, in the trial's measure, and where."""
    inputs = trial.inputs(most)
    got = answers(trial.opcode, inputs, gpu)
    kind = kind_of(trial.opcode)
    read = {"f16": lambda a: a.view(np.float16), "bf16": bf16}.get(kind, lambda a: a)
    given, got = tuple(read(a) for a in inputs), read(got)
    with np.errstate(all="ignore"):
        wider = LONG if kind == "f64" else np.float64
        true = trial.true(*(a if kind == "f64" else a.astype(np.float64) for a in given))
        error = np.abs(got.astype(wider) - true)
        # the ends of a short format are left out: subnormals, and what overflows
        least, greatest = {"f16": (2.0**-14, 65504.0), "bf16": (2.0**-126, 3.38e38), "f64": (2.0**-1022, 1e308)}.get(
            kind, (2.0**-126, 3.4e38)
        )
        counts = np.isfinite(true) & (np.abs(true) >= least) & (np.abs(true) <= greatest)
        if trial.measure == "relative":
            error = error / np.abs(true)
        elif trial.measure == "ulp":
            fraction = {"f64": 52, "f32": 23}[kind]
            error = error / 2.0 ** (np.floor(np.log2(np.abs(true.astype(np.float64)))) - fraction)
    error = np.where(counts, error, 0)
    at = int(np.argmax(error))
    return {"error": float(error[at]), "at": [float(a[at]) for a in given], "inputs": len(got)}


def measure(folder: Path) -> int:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    rows = [{"opcode": t.opcode, "over": t.over, **worst(t, True, 1 << 24)} for t in TRIALS]
    content = {
        "gpu": torch.cuda.get_device_name(0), "driver": driver, "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "rows": rows,
    }  # fmt: skip
    (folder / "h200_approximations.json").write_text(json.dumps(content, indent=1))
    for row in rows:
        print(row)
    return 0


def beside(path: Path) -> int:
    """The table: what the ISA states, what the GPU and the machine do."""
    from results_file import Aim, write

    measured = json.loads(path.read_text())
    rows: list[dict[str, object]] = []
    for trial, there in zip(TRIALS, measured["rows"], strict=True):
        assert (trial.opcode, trial.over) == (there["opcode"], there["over"])
        here = worst(trial, False, 1 << 20)
        rows.append({"opcode": trial.opcode, "over": trial.over, "measure": trial.measure, "stated": trial.stated,
                     "gpu": there["error"], "machine": here["error"]})  # fmt: skip
    stated = [r for r in rows if r["stated"] is not None]
    mine = [f"{r['opcode']} {r['over']}" for r in stated if not float(str(r["machine"])) <= float(str(r["stated"]))]
    aims = [
        Aim(what="the machine's error within the one that the PTX ISA states", aim=f"all {len(stated)}",
            got=f"all but: {', '.join(mine)}" if mine else f"all {len(stated)}", holds=not mine),
    ]  # fmt: skip
    write("approximations", rows, aims, {"gpu": measured["gpu"], "driver": measured["driver"]})
    return int(bool(mine))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--beside", action="store_true")
    given = parser.parse_args()
    if given.beside:
        return beside(MEASURED)
    if given.folder is None:
        parser.error("a FOLDER is needed to measure into")
    return measure(given.folder)


if __name__ == "__main__":
    sys.exit(main())
