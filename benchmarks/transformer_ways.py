"""Times every way to cut softmax, the rotary embedding, the linear layer with its activation, and attention on a GPU.

    PYTHONPATH=src python3 benchmarks/transformer_ways.py OUT [--limit SECONDS] [--only WORD] [--on cpu]

OUT/transformer_ways.jsonl has a row as soon as it is known: µs of each way, its share of the copy rate (or TFLOP/s),
its error against float64 beside torch's. Ways of a case are CUDA graphs over rotating inputs, replayed in turn
(ops/choose.py). Kernels are compiled first, on all cores, by workers that launch nothing (`--compile I N`). `--on cpu`
compiles and no more.
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from undertorch.costs.capped_attention import FORWARD_TILES, pairs_of, tiles
from undertorch.ops.choose import DOES_NOT_RUN, LIBRARY, measure

softmax, rope, linear, attention = (
    import_module(f"undertorch.ops.{name}") for name in ("softmax", "rope", "linear_act", "attention")
)

BF16, FP32 = torch.bfloat16, torch.float32
SMS = 132
"""Of an H200: how the ways are listed where there is no GPU."""

COMPILING = 20.0
"""Seconds at most."""

FEW = 64
"""Rows, or tokens, that stand for many while compiling."""

TOLD = "TORCH"
"""The way that is plain torch, or a peer, in several launches."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pass of an op at a shape."""

    name: str
    tensors: Sequence[Tensor | None]
    ways: Sequence[Any]
    call: Callable[[Any, Sequence[Any]], Any]
    least_bytes: int = 0
    flops: int = 0
    holds: bool = False
    """Whether the memory counts that a way needs at its peak."""
    exact: Callable[[Sequence[Any]], Any] | None = None
    """The result in float64."""


@triton.jit
def copy_kernel(source, target, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at))


def copied(way: int, given: Sequence[Any]) -> Tensor:
    target = torch.empty_like(given[0])
    copy_kernel[(target.numel() // way,)](given[0], target, BLOCK=way, num_warps=8)
    return target


def randn(device: str, *shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(*shape, device=device, dtype=torch.float32).to(dtype)


def copy_cases(device: str, few: bool) -> Iterator[Case]:
    yield Case(
        name="copy",
        tensors=(randn(device, FEW if few else 4096, 32768),),
        ways=(4096, 8192),
        call=copied,
        least_bytes=2 * 4096 * 32768 * 2,
    )


def softmax_cases(device: str, few: bool) -> Iterator[Case]:
    shapes = ((4096, 32768, BF16), (65536, 1024, BF16), (32768, 4096, BF16), (16384, 8192, BF16), (8192, 16384, BF16),
              (2048, 131072, BF16), (131072, 128, BF16))  # fmt: skip
    for rows, width, dtype in shapes:
        x, dy = (randn(device, FEW if few else rows, width, dtype=dtype) for _ in range(2))
        size = rows * width * x.element_size()
        # As many rows as there are, even where few stand for them: ways depend on it.
        tiles = softmax.ways(width, rows, SMS, itemsize=x.element_size())
        yield Case(
            name=f"softmax forward {rows}x{width} {dtype}",
            tensors=(x,),
            ways=(*tiles, LIBRARY),
            call=lambda way, given: softmax.forward(given[0], tile=way),
            least_bytes=2 * size,
            exact=lambda given: given[0].double().softmax(-1),
        )
        yield Case(
            name=f"softmax backward {rows}x{width} {dtype}",
            tensors=(dy, x.softmax(-1)),
            ways=(*softmax.ways(width, rows, SMS, backward=True), LIBRARY),
            call=lambda way, given: softmax.backward(given[0], given[1], tile=way),
            least_bytes=3 * size,
            exact=lambda given: softmax_gradient(given[0].double(), given[1].double()),
        )


def softmax_gradient(dy: Tensor, y: Tensor) -> Tensor:
    return y * (dy - (dy * y).sum(-1, keepdim=True))


def rope_cases(device: str, few: bool) -> Iterator[Case]:
    for inner, interleaved, turned in (
        (True, False, 128), (False, False, 128), (True, True, 128), (True, False, 64)
    ):  # fmt: skip
        batch, tokens, heads, kv, size = (1, FEW, 32, 8, 128) if few else (4, 4096, 32, 8, 128)
        q, k = (
            randn(device, batch, tokens, n, size).transpose(1, 2) if inner else randn(device, batch, n, tokens, size)
            for n in (heads, kv)
        )
        angle = torch.outer(torch.arange(float(tokens)), 1e4 ** -(torch.arange(0, turned, 2) / turned)).to(device)
        cos, sin = angle.cos().to(BF16), angle.sin().to(BF16)

        def call(
            way: Any, given: Sequence[Any], cos: Tensor = cos, sin: Tensor = sin,
            inner: bool = inner, interleaved: bool = interleaved,
        ) -> Any:  # fmt: skip
            if way == TOLD:
                return rope.reference(given[0], given[1], cos, sin, interleaved=interleaved)
            if way == "Liger":
                return liger_rope(given[0], given[1], cos, sin)
            return rope.turn(given[0], given[1], cos, sin, None, interleaved, inner, inner, piece=way)

        peers = ("Liger",) if inner and not interleaved and turned == size and not few and has_liger() else ()
        yield Case(
            name=f"rope 4x4096x(32+8)x128 {'heads inside' if inner else 'tokens inside'}"
            f"{', interleaved' * interleaved}, {turned} turned",
            tensors=(q, k),
            ways=(*rope.PIECES, TOLD, *peers),
            call=call,
            least_bytes=2 * 4 * 4096 * 40 * 128 * 2,
            exact=lambda given, cos=cos, sin=sin, interleaved=interleaved: rope.reference(
                given[0].double(), given[1].double(), cos, sin, interleaved=interleaved
            ),
        )


def linear_cases(device: str, few: bool) -> Iterator[Case]:
    for rows, inputs, features, name in ((32768, 768, 3072, "gelu_tanh"), (16384, 4096, 14336, "gelu")):
        here = FEW if few else rows
        x, weight, bias = randn(device, here, inputs), randn(device, features, inputs) * 0.02, randn(device, features)
        kind = linear.KINDS[name]
        for keep in (True, False) if inputs == 768 else (True,):

            def call(way: Any, given: Sequence[Any], kind: int = kind, keep: bool = keep, name: str = name) -> Any:
                if way == TOLD:
                    before = torch.nn.functional.linear(*given)
                    return torch.nn.functional.gelu(before, approximate="tanh" if "tanh" in name else "none"), before
                return linear.forward(*given, kind, keep, way=way)

            yield Case(
                name=f"linear_act forward {rows}x{inputs}x{features} {name}{', kept' * keep}",
                tensors=(x, weight, bias),
                ways=(*linear.ways(x, kind, keep), TOLD),
                call=call,
                flops=2 * rows * inputs * features,
            )

        def back(way: Any, given: Sequence[Any], kind: int = kind, name: str = name) -> Any:
            if way != TOLD:
                return linear.backward(*given, kind, True, True, True)
            dy, x, weight, before = given
            d = torch.ops.aten.gelu_backward(dy, before, approximate="tanh" if "tanh" in name else "none")
            return d @ weight, d.t() @ x, d.sum(0)

        dy, before = randn(device, here, features), randn(device, here, features)
        yield Case(
            name=f"linear_act backward {rows}x{inputs}x{features} {name}",
            tensors=(dy, x, weight, before),
            ways=("ours", TOLD),
            call=back,
            flops=4 * rows * inputs * features,
        )


def attention_cases(device: str, few: bool) -> Iterator[Case]:
    """Of capped and windowed scores every tile; of the others the libraries, forward and both."""
    shape = (1, 32, FEW, 128) if few else (4, 32, 4096, 128)
    q, k, v, given = (randn(device, *shape) for _ in range(4))
    for name, window, cap in (("softcap 30", None, 30.0), ("window 1024", 1024, None)):
        flops = 4 * 4 * 32 * pairs_of(4096, 4096, window, causal=True) * 128
        settings = (True, window, cap, 128**-0.5, False, False)

        def forth(way: Any, tensors: Sequence[Any], settings: tuple[Any, ...] = settings) -> Any:
            return attention.forward(*tensors, *settings, tile=way)

        def back(way: Any, tensors: Sequence[Any], settings: tuple[Any, ...] = settings) -> Any:
            return attention.backward(*tensors, *settings, True, tile=way)

        yield Case(
            name=f"attention forward 4x32x4096x128 causal, {name}",
            tensors=(q, k, v),
            ways=tiles(FORWARD_TILES, 128, wide=False),
            call=forth,
            flops=flops,
        )
        out, lse = torch.empty_like(q), torch.empty((2, *q.shape[:3]), device=device)
        if not few:
            out, lse = attention.forward(q, k, v, *settings, tile=tiles(FORWARD_TILES, 128, wide=False)[0])
        yield Case(
            name=f"attention backward 4x32x4096x128 causal, {name}",
            tensors=(given, q, k, v, out, lse),
            ways=attention.backward_ways(128, wide=False),
            call=back,
            flops=flops * 5 // 2,
        )


def library_cases(device: str, few: bool) -> Iterator[Case]:
    """Whole: torch's for plain attention; FlashAttention's window and flex_attention beside ours."""
    if few:
        return
    tensors = tuple(randn("cuda", 4, 32, 4096, 128) for _ in range(4))
    shorter = tuple(randn("cuda", 8, 16, 1024, 64) for _ in range(4))
    plain = tuple(attention.Backend(name=name) for name in attention.BACKENDS)
    for given in (tensors, shorter):
        batch, heads, length, size = given[0].shape
        flops = 4 * batch * heads * pairs_of(length, length, None, causal=True) * size
        for both in (False, True):
            yield Case(
                name=f"attention {'x'.join(map(str, given[0].shape))} causal, {'both' if both else 'forward'}",
                tensors=given,
                ways=plain,
                call=lambda way, t, both=both: with_backward(
                    lambda *t: way.run(*t, True, None, only=True), t, both=both
                ),
                flops=flops * 7 // 2 if both else flops,
            )
    for name, window, cap in (("window 1024", 1024, None), ("softcap 30", None, 30.0)):
        flops = 4 * 4 * 32 * pairs_of(4096, 4096, window, causal=True) * 128
        for both in (False, True):
            yield Case(
                name=f"attention whole 4x32x4096x128 causal, {name}, {'both' if both else 'forward'}",
                tensors=tensors,
                ways=("ours", *(("FlashAttention",) if window else ()), "flex_attention"),
                call=lambda way, t, window=window, cap=cap, both=both: with_backward(
                    lambda *t: whole(way, *t, window, cap), t, both=both
                ),
                flops=flops * 7 // 2 if both else flops,
            )


Group = Callable[[str, bool], Iterator[Case]]
"""(device, whether few rows stand for many) -> cases."""

GROUPS: tuple[Group, ...] = (copy_cases, attention_cases, softmax_cases, rope_cases, linear_cases, library_cases)


def with_backward(function: Callable[..., Tensor], given: Sequence[Tensor], *, both: bool) -> Any:
    if not both:
        return function(*given[:3])
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in given[:3]]
        return torch.autograd.grad(function(*leaves), leaves, given[3])


def whole(way: str, q: Tensor, k: Tensor, v: Tensor, window: int | None, cap: float | None) -> Tensor:
    if way == "ours":
        return attention._own(q, k, v, True, window, cap, q.shape[3] ** -0.5)
    if way == "FlashAttention":
        return attention.Windowed(flash=True).run(q, k, v, True, window, q.shape[3] ** -0.5)
    flex, mask, score = flexible(window, cap)
    return flex(q, k, v, block_mask=mask, score_mod=score)


@cache
def flexible(window: int | None, cap: float | None) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (j <= i) & (i - j < window) if window else j <= i

    def capped(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return cap * torch.tanh(score / cap)

    mask = create_block_mask(seen, None, None, 4096, 4096, device="cuda")
    return torch.compile(flex_attention), mask, capped if cap else None


def has_liger() -> bool:
    try:
        import_module("liger_kernel.ops.rope")
    except ImportError:
        return False
    return True


def liger_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    """Its kernel writes over its inputs, and is timed so."""
    file = import_module("liger_kernel.ops.rope")
    return file.rope_forward(q, k, cos.repeat(1, 2)[None], sin.repeat(1, 2)[None])[:2]


def listed(result: Any) -> list[Tensor]:
    return [tensor for tensor in (result if isinstance(result, tuple | list) else (result,)) if tensor is not None]


def errors(case: Case) -> dict[str, float]:
    """‖ours - exact‖ / ‖exact‖, the worst of the results."""
    if case.exact is None:
        return {}
    exact = listed(case.exact(case.tensors))
    found = {}
    for way in case.ways:
        if way == "Liger":
            continue
        with contextlib.suppress(*DOES_NOT_RUN):
            found[str(way)] = max(
                float((a.double() - b).norm() / b.norm())
                for a, b in zip(listed(case.call(way, case.tensors)), exact, strict=True)
            )
    return found


def peak(case: Case, way: Any) -> int | None:
    """Bytes that a call holds at most, beyond its inputs; None where it does not run."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(*DOES_NOT_RUN):
        case.call(way, case.tensors)
        return torch.cuda.max_memory_allocated() - before
    return None


def told(case: Case, copy: list[float]) -> dict[str, Any]:
    """A line about a case; `copy` holds the best rate of the copy."""
    begin = time.monotonic()
    torch.cuda.empty_cache()
    try:
        off = errors(case)
        times = measure(case.ways, case.call, case.tensors)
    except Exception as error:  # told, whatever it is, and the others go on
        return {"case": case.name, "failed": repr(error)[:500]}
    rates = {way: case.least_bytes / t / 1e6 for way, t in times.items()} if case.least_bytes else {}
    if case.name == "copy":
        copy.append(max(rates.values()))
    return {
        "case": case.name,
        "us": dict(sorted(times.items(), key=lambda pair: pair[1])),
        "of_copy": {way: round(rate / max(copy[-1], 1e-9), 3) for way, rate in rates.items()},
        "tflops": {way: round(case.flops / t / 1e6, 1) for way, t in times.items()} if case.flops else {},
        "error": {way: float(f"{value:.3g}") for way, value in off.items()},
        "peak_bytes": {str(way): peak(case, way) for way in case.ways} if case.holds else {},
        "s": round(time.monotonic() - begin, 1),
    }


def compile_share(groups: Sequence[Group], share: int, of: int, only: str) -> None:
    from undertorch.compilers.triton_driver import Driver, put_in_place
    from undertorch.gpus import find
    from undertorch.ops.calls import on_host

    torch.set_num_threads(1)
    put_in_place(Driver(find("H200"), lambda launch: None, lambda name, count: None))
    place = 0
    for case in itertools.chain(*(group("cpu", True) for group in groups)):
        for way in case.ways if only in case.name else ():
            place += 1
            if place % of == share and way not in (LIBRARY, TOLD):
                with on_host(), contextlib.suppress(*DOES_NOT_RUN):
                    case.call(way, case.tensors)


def compile_all(script: str, only: str, seconds: float = COMPILING) -> float:
    began = time.monotonic()
    workers = max(min((os.cpu_count() or 2) - 1, 15), 1)
    each = [[sys.executable, script, "-", "--compile", str(n), str(workers), "--only", only] for n in range(workers)]
    running = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in each]
    for process in running:
        try:
            process.wait(max(seconds - (time.monotonic() - began), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
    return time.monotonic() - began


def main(groups: Sequence[Group], script: str, about: str | None) -> None:
    """Of `script`, whose docstring is `about`: OUT/NAME_OF_SCRIPT.jsonl."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, default=60.0, help="start no case after so many seconds")
    parser.add_argument("--only", default="", help="cases whose name holds this word")
    parser.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--compile", nargs=2, type=int, metavar=("I", "N"))
    asked = parser.parse_args()
    os.environ["UNDERTORCH_OPS"] = "own"
    began = time.monotonic()
    if asked.compile:
        return compile_share(groups, *asked.compile, asked.only)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.on == "cpu":
        return compile_share(groups, 0, 1, asked.only)
    with (asked.out / Path(script).with_suffix(".jsonl").name).open("w", encoding="utf-8") as lines:

        def tell(**row: Any) -> None:
            print(json.dumps(row, ensure_ascii=False), file=lines, flush=True)

        tell(gpu=torch.cuda.get_device_name(), torch=torch.__version__, triton=triton.__version__)
        tell(compiling_s=round(compile_all(script, asked.only), 1))
        copy = [0.0]
        for group in groups:
            try:
                for case in group("cuda", False):
                    if asked.only not in case.name and case.name != "copy":
                        continue
                    if time.monotonic() - began > asked.limit:
                        tell(not_run=case.name)
                    else:
                        tell(**told(case, copy))
            except Exception as error:  # told, whatever it is, and the others go on
                tell(group=group.__name__, failed=repr(error)[:500])
    # Not by returning: torch.compile's workers keep a process for tens of seconds.
    os._exit(0)


if __name__ == "__main__":
    main(GROUPS, __file__, __doc__)
