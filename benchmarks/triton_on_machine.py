"""Triton's tutorials, Liger's kernels and what Inductor writes, on the machine: results against float64, and times.

make triton-on-machine FOLDER=~/src/triton/python/tutorials LIGER=~/liger        or
python benchmarks/triton_on_machine.py --tutorials FOLDER --liger FOLDER [--keep FOLDER] [--only NAME]

--tutorials: python/tutorials of a clone of triton-lang/triton (04 needs tabulate); --liger: where liger-kernel was
installed to (`pip install --target FOLDER liger-kernel --no-deps`). Nothing of theirs is changed or kept: of a tutorial
all runs but its top-level calls, which are its own tests and benchmarks. An error is the largest difference to torch's
result in float64 over that result's largest value; beside it stands that of torch on the CPU in the kernel's own dtype.
`seconds` are of the second call; the first one compiles.

The forms: every kernel that ran is compiled for sm_80 and for sm_90a, and its PTX's instruction forms are counted as
benchmarks/ptx_forms.py counts them.
"""

import argparse
import ast
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

import undertorch
from ptx_forms import look, report
from results_file import Aim, write

PATIENCE = 120
"""Seconds that the interpreter gets for a case."""


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    source: str
    run: Callable[[], dict[str, torch.Tensor]]
    """The kernel's results."""
    right: Callable[[torch.dtype], dict[str, torch.Tensor]]
    """What torch says in this dtype."""
    dtype: torch.dtype
    aim: float
    """The largest error."""


def tutorial(folder: Path, number: str) -> dict[str, Any]:
    """What a tutorial defines."""
    path = next(folder.glob(f"{number}-*.py"))
    tree = ast.parse(path.read_text())
    called = [n for n in tree.body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)]
    tree.body = [n for n in tree.body if n not in called]
    names = {"__name__": f"tutorial_{number}", "__file__": str(path)}
    module = ModuleType(names["__name__"])
    sys.modules[module.__name__] = module
    vars(module).update(names)
    exec(compile(tree, str(path), "exec"), vars(module))
    return vars(module)


def both_ways(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Result and gradients of what has any, for an upstream gradient that is the same each time."""
    held = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    y = function(*held)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(7)).to(y.dtype)
    leaves = [x for x in held if x.requires_grad]
    grads = torch.autograd.grad(y, leaves, upstream) if y.requires_grad else ()
    return {"forward": y.detach()} | {f"gradient {n}": g for n, g in enumerate(grads)}


def case(
    name: str,
    source: str,
    kernel: Callable[..., torch.Tensor],
    plain: Callable[..., torch.Tensor],
    inputs: list[torch.Tensor],
    aim: float,
) -> Case:
    dtype = next(x.dtype for x in inputs if x.is_floating_point())

    def right(wanted: torch.dtype) -> dict[str, torch.Tensor]:
        return both_ways(plain, *(x.to(wanted) if x.is_floating_point() else x for x in inputs))

    return Case(name=name, source=source, dtype=dtype, aim=aim, run=lambda: both_ways(kernel, *inputs), right=right)


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


HALF, BRAIN = torch.float16, torch.bfloat16
ROUNDED = {torch.float32: 1e-5, HALF: 4e-3, BRAIN: 3e-2}
"""Aims: a few units in the last place of the dtype that results are stored in."""


def tutorials(folder: Path) -> Iterator[Case]:
    def one(number: str, name: str, *more: Any, aim: float | None = None) -> Case:
        kernel, plain, inputs = more
        dtype = next(x.dtype for x in inputs if x.is_floating_point())
        return case(name, f"tutorial {number}", kernel, plain, inputs, aim or ROUNDED[dtype])

    yield one("01", "vector add", tutorial(folder, "01")["add"], torch.add, [randn(98432), randn(98432, seed=1)])
    yield one(
        "02", "fused softmax 1024²", tutorial(folder, "02")["softmax"], lambda x: x.softmax(1), [randn(1024, 1024)]
    )
    matmul = tutorial(folder, "03")["matmul"]
    yield one(
        "03",
        "matmul 512³ f16",
        matmul,
        torch.matmul,
        [randn(512, 512, dtype=HALF), randn(512, 512, dtype=HALF, seed=1)],
    )
    yield one(
        "03",
        "matmul 1024³ bf16 (its store rounds to f16)",
        matmul,
        torch.matmul,
        [randn(1024, 1024, dtype=BRAIN), randn(1024, 1024, dtype=BRAIN, seed=1)],
    )
    names = tutorial(folder, "04")
    keep = (randn(10000, seed=1) > 0).int()
    yield one(
        "04", "dropout", lambda x, k: names["dropout"](x, x_keep=k, p=0.5), lambda x, k: x * k * 2, [randn(10000), keep]
    )
    seeded = names["seeded_dropout"](torch.ones(10000), p=0.5, seed=123)
    yield one(
        "04",
        "seeded dropout",
        lambda x: names["seeded_dropout"](x, p=0.5, seed=123),
        lambda x: x * seeded,
        [randn(10000)],
    )
    norm = tutorial(folder, "05")["layer_norm"]
    for dtype in (torch.float32, HALF):
        yield one(
            "05",
            f"layer norm 1151 × 2048 {str(dtype)[6:]}",
            lambda x, w, b: norm(x, (2048,), w, b, 1e-5),
            lambda x, w, b: F.layer_norm(x, (2048,), w, b, 1e-5),
            [randn(1151, 2048, dtype=dtype), randn(2048, dtype=dtype), randn(2048, dtype=dtype)],
        )
    attention = tutorial(folder, "06")["attention"]
    qkv = queries()
    for causal in (False, True):
        yield one(
            "06",
            f"flash attention 4 × 512 × 64 f16{', causal' if causal else ''}",
            lambda q, k, v, c=causal: attention(q, k, v, c, 0.125, False),
            lambda q, k, v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c, scale=0.125),
            qkv,
            aim=1e-2,
        )
    asin = tutorial(folder, "07")
    yield one("07", "asin of libdevice", lambda x: _asin(asin, x), torch.asin, [randn(98432).tanh()])
    grouped = tutorial(folder, "08")["group_gemm_fn"]
    sizes = ((256, 256, 256), (128, 384, 128), (384, 128, 512))
    parts = [randn(m, k, dtype=HALF, seed=n) for n, (m, k, _) in enumerate(sizes)]
    parts += [randn(k, o, dtype=HALF, seed=9 + n) for n, (_, k, o) in enumerate(sizes)]
    yield one(
        "08",
        "grouped gemm",
        lambda *p: torch.cat([c.flatten() for c in grouped(list(p[:3]), list(p[3:]))]),
        lambda *p: torch.cat([(a @ b).flatten() for a, b in zip(p[:3], p[3:], strict=True)]).detach(),
        parts,
    )


def _asin(names: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    names["asin_kernel"][(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK_SIZE=1024)
    return y


def liger() -> Iterator[Case]:
    """Ten operations of Liger, at small shapes."""
    from liger_kernel.transformers import functional as ops

    def one(
        name: str,
        kernel: Callable[..., Any],
        plain: Callable[..., torch.Tensor],
        *inputs: torch.Tensor,
        aim: float | None = None,
    ) -> Case:
        dtype = next(x.dtype for x in inputs if x.is_floating_point())
        return case(f"{name} {str(dtype)[6:]}", "Liger", kernel, plain, list(inputs), aim or ROUNDED[dtype])

    def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w

    labels = torch.randint(0, 1000, (64,), generator=torch.Generator().manual_seed(3))
    labels[::7] = -100
    for dtype in (torch.float32, BRAIN):
        x, w = randn(4, 64, 512, dtype=dtype), randn(512, dtype=dtype, seed=1)
        yield one("RMSNorm", lambda x, w: ops.liger_rms_norm(x, w, 1e-6, in_place=False), rms, x, w)
        yield one(
            "LayerNorm",
            lambda x, w, b: ops.liger_layer_norm(x, w, b, 1e-6),
            lambda x, w, b: F.layer_norm(x, (512,), w, b, 1e-6),
            x,
            w,
            randn(512, dtype=dtype, seed=2),
        )
        yield one("SwiGLU", ops.liger_swiglu, lambda a, b: F.silu(a) * b, x, randn(4, 64, 512, dtype=dtype, seed=3))
        yield one(
            "GeGLU",
            ops.liger_geglu,
            lambda a, b: F.gelu(a, approximate="tanh") * b,
            x,
            randn(4, 64, 512, dtype=dtype, seed=3),
        )
        yield one("cross-entropy", ops.liger_cross_entropy, F.cross_entropy, randn(64, 1000, dtype=dtype), labels)
    yield one("softmax", ops.liger_softmax, lambda x: x.softmax(-1), randn(64, 1000))
    q, k = randn(2, 8, 64, 64), randn(2, 4, 64, 64, seed=1)
    angle = torch.outer(torch.arange(64.0), 1e4 ** -(torch.arange(0, 64, 2) / 64)).repeat(1, 2)[None]
    yield one(
        "RoPE",
        lambda q, k: torch.cat([y.flatten() for y in ops.liger_rope(q, k, angle.cos(), angle.sin())]),
        lambda q, k: torch.cat([_rotated(y, angle).flatten() for y in (q, k)]),
        q,
        k,
    )
    x, y = randn(64, 1000).log_softmax(-1), randn(64, 1000, seed=1).softmax(-1)
    yield one("KL divergence", lambda x: ops.liger_kl_div(x, y), lambda x: F.kl_div(x, y.to(x), reduction="mean"), x)
    yield one(
        "group norm",
        lambda x, w, b: ops.liger_group_norm(x, w, b, 16, 4, 1e-5),
        lambda x, w, b: F.group_norm(x, 4, w, b, 1e-5),
        randn(8, 16, 64),
        randn(16),
        randn(16, seed=1),
    )
    yield one(
        "fused linear cross-entropy",
        ops.liger_fused_linear_cross_entropy,
        lambda x, w, t: F.cross_entropy(x @ w.T, t),
        randn(64, 128),
        randn(1000, 128, seed=1),
        labels,
        aim=1e-4,
    )


def _rotated(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    angle = angle.to(x.dtype)
    return x * angle.cos() + torch.cat([-high, low], -1) * angle.sin()


def error(got: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> dict[str, float]:
    """Of each result: the largest difference over the largest value."""
    return {
        name: float((got[name].double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp_min(1e-30))
        for name, wanted in right.items()
        if name in got
    }


def measure(one: Case, launches: Any) -> dict[str, object]:
    began = time.perf_counter()
    one.run()
    first = time.perf_counter() - began
    launches.clear()
    began = time.perf_counter()
    got = one.run()
    seconds = time.perf_counter() - began
    kernels = len(launches)
    right = one.right(torch.float64)
    errors, own = error(got, right), error(one.right(one.dtype), right)
    return {
        "case": one.name,
        "source": one.source,
        "error": max(errors.values()),
        "errors": errors,
        "torch_error": max(own.values()),
        "aim": one.aim,
        "launches": kernels,
        "first_seconds": round(first, 3),
        "seconds": round(seconds, 4),
    }


def all_cases(given: argparse.Namespace) -> Iterator[Case]:
    if given.tutorials:
        yield from tutorials(given.tutorials)
    if given.liger:
        sys.path.append(str(given.liger))
        yield from liger()


class Both:
    """Compiles each kernel for sm_90a as well, and keeps both PTX texts."""

    OF_THE_TARGET = (
        "arch",
        "supported_fp8_dtypes",
        "deprecated_fp8_dot_operand_dtypes",
        "extern_libs",
        "max_num_imprecise_acc_default",
        "backend_name",
        "allowed_dot_input_precisions",
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failed: dict[str, str] = {}
        self.compile = triton.compiler.compiler.compile

    def __call__(self, src: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
        compiled = self.compile(src, target=target, options=options, **more)
        self.keep("sm_80", compiled)
        other = {k: v for k, v in dict(options or {}).items() if k not in self.OF_THE_TARGET}
        try:
            hopper = triton.backends.compiler.GPUTarget("cuda", 90, 32)
            self.keep("sm_90a", self.compile(src, target=hopper, options=other))
        except Exception as problem:  # whatever the compiler says is counted
            self.failed[src.name] = str(problem).splitlines()[-1][:160]
        return compiled

    def keep(self, arch: str, compiled: Any) -> None:
        (self.folder / arch).mkdir(parents=True, exist_ok=True)
        (self.folder / arch / f"{compiled.name[:80]}_{compiled.hash[:12]}.ptx").write_text(compiled.asm["ptx"])


@contextlib.contextmanager
def compiled_for_both(folder: Path) -> Iterator[Both]:
    both = Both(folder)
    homes = [triton, triton.compiler, triton.compiler.compiler]
    for home in homes:
        home.compile = both
    try:
        yield both
    finally:
        for home in homes:
            home.compile = both.compile


def gpt2_step() -> tuple[list[dict[str, object]], list[Aim]]:
    """One step of a small GPT-2, compiled, against eager on the CPU."""
    torch.manual_seed(0)
    model = Gpt(vocabulary=512, context=64, width=128, heads=4, layers=2)
    tokens, targets = torch.randint(0, 512, (2, 2, 64))
    loss = model(tokens, targets)
    loss.backward()
    wanted = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    seconds = []
    with undertorch.machine() as machine:
        compiled = torch.compile(model)
        for _ in range(2):
            model.zero_grad()
            machine.launches.clear()
            began = time.perf_counter()
            got = compiled(tokens, targets)
            got.backward()
            seconds.append(time.perf_counter() - began)
        kernels = len(machine.launches)
    worst = max(float((p.grad - wanted[n]).abs().max() / wanted[n].abs().max()) for n, p in model.named_parameters())
    apart = abs(float(got.detach() - loss.detach()))
    row: dict[str, object] = {
        "case": "GPT-2 step under torch.compile",
        "source": "Inductor",
        "loss_difference": apart,
        "gradient_error": worst,
        "launches": kernels,
        "first_seconds": round(seconds[0], 2),
        "seconds": round(seconds[1], 3),
    }
    print(row, flush=True)
    return [row], [
        Aim(
            what="a compiled GPT-2 step: gradients against eager",
            aim="1e-4",
            got=f"{worst:.1e}",
            holds=worst < 1e-4 and apart < 1e-4,
        )
    ]


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(context, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy((self.norm(x) @ self.tokens.weight.T).flatten(0, 1), targets.flatten())


@triton.jit
def row_softmax(x, y, columns, BLOCK: tl.constexpr):
    """Tutorial 02's asks for the registers of its own binary, which the interpreter has not."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    values = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(y + row + at, values / tl.sum(values, 0), mask=at < columns)


def softmax() -> torch.Tensor:
    x = randn(1024, 1024)
    y = torch.empty_like(x)
    row_softmax[(1024,)](x, y, 1024, BLOCK=1024)
    return y


SPEED = ("softmax 1024²", "matmul 1024³ bf16", "flash attention 4 × 512 × 64 f16")
"""Compared with Triton's interpreter, forward only."""
FORWARD = {
    "softmax 1024²": ("01", lambda t: softmax()),
    "matmul 1024³ bf16": ("03", lambda t: t["matmul"](*(randn(1024, 1024, dtype=BRAIN, seed=s) for s in range(2)))),
    "flash attention 4 × 512 × 64 f16": ("06", lambda t: t["attention"](*queries(), False, 0.125, False)),
}


def queries() -> list[torch.Tensor]:
    """And keys and values."""
    return [randn(1, 4, 512, 64, dtype=HALF, seed=s) / 2 for s in range(3)]


def forward_seconds(name: str, folder: Path) -> float:
    """Of the second call, in this process."""
    number, run = FORWARD[name]
    with undertorch.machine(), torch.no_grad():
        names = tutorial(folder, number)
        run(names)
        began = time.perf_counter()
        run(names)
        return time.perf_counter() - began


def interpreted(name: str, folder: Path) -> float | None:
    """The same under TRITON_INTERPRET=1; None where it takes longer than is waited for, or does not run."""
    command = [sys.executable, __file__, "--tutorials", str(folder), "--forward", name]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return float("inf")
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def speeds(folder: Path) -> tuple[list[dict[str, object]], list[Aim]]:
    rows: list[dict[str, object]] = []
    aims = []
    for name in SPEED:
        ours, theirs = forward_seconds(name, folder), interpreted(name, folder)
        said = "does not run" if theirs is None else f"more than {PATIENCE} s" if theirs == float("inf") else None
        row: dict[str, object] = {
            "case": name,
            "machine_seconds": round(ours, 4),
            "interpreter_seconds": said or theirs,
            "times": None if theirs is None else round(min(theirs, PATIENCE) / ours, 1),
        }
        print(row, flush=True)
        rows.append(row)
        if name.startswith("matmul"):
            aims.append(Aim(what=name, aim="1.5 s", got=f"{ours:.2f} s", holds=ours <= 1.5))
    return rows, aims


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutorials", type=Path)
    parser.add_argument("--liger", type=Path)
    parser.add_argument("--keep", type=Path, help="where PTX of every kernel goes, by target")
    parser.add_argument("--only", help="cases that have this in their names; nothing is written")
    parser.add_argument("--forward", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.forward:
        print(forward_seconds(given.forward, given.tutorials))
        return
    rows: list[dict[str, object]] = []
    aims: list[Aim] = []
    with tempfile.TemporaryDirectory() as folder:
        kept = given.keep or Path(folder)
        with compiled_for_both(kept) as both, undertorch.machine() as machine:
            for one in all_cases(given):
                if given.only and given.only not in one.name:
                    continue
                rows.append(measure(one, machine.launches))
                print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
        good = [row for row in rows if float(str(row["error"])) <= float(str(row["aim"]))]
        aims.append(
            Aim(
                what="cases whose error is within their aim",
                aim="all",
                got=f"{len(good)} of {len(rows)}",
                holds=len(good) == len(rows),
            )
        )
        if given.only:
            return
        with compiled_for_both(kept):
            more_rows, more_aims = gpt2_step()
        rows += more_rows
        aims += more_aims
        if given.tutorials:
            more_rows, more_aims = speeds(given.tutorials)
            rows += more_rows
            aims += more_aims
        for arch in ("sm_80", "sm_90a"):
            more_rows, more_aims = report(f"Triton for {arch}", look(kept / arch, [], None))
            more_rows[0]["kernels_not_compiled"] = both.failed if arch == "sm_90a" else {}
            rows += more_rows
            aims += more_aims
    versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}
    write("triton_on_machine", rows, aims, versions)


if __name__ == "__main__":
    main()
