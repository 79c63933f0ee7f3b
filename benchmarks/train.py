"""Training on a GPU: undertorch's step beside torch's own ways, and on several GPUs.

    PYTHONPATH=src python3 benchmarks/train.py OUT [--limit SECONDS]          GPT-2 124M, 32 × 1024, one GPU
    PYTHONPATH=src python3 benchmarks/train.py OUT --gpus 2 [--limit SECONDS] DDP (GPT-2 124M), FSDP2 (Llama 1B)

Writes OUT/train_WAY.json as soon as a way is timed, and OUT/train.json at the end, which comes before the limit
whatever is still running. Each way is a process of its own, so that none can take the others along; what they compile
they compile side by side, and a lock lets one at a time be timed. All have float32 weights (ours and `bf16`: float32
masters of bfloat16 weights), AdamW with clipping at 1.0, the same random tokens, and attention by cuDNN unless `flash`
is in the name. `--on cpu` rehearses it all on a small model.
"""

import argparse
import faulthandler
import fcntl
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ONE_GPU = (
    "ours", "ours_whole_logits", "compile_graphs", "compile_graphs_bf16", "eager",  # side by side
    "ours_torchs_products", "products", "compile", "seen",
)  # fmt: skip
SEVERAL = (
    "gpt2-124m_1", "gpt2-124m_N", "llama-1b_1", "llama-1b_N", "gpt2-124m_N_flat", "gpt2-124m_N_graphs",
    "gpt2-124m_N_alone",
)  # fmt: skip
AT_ONCE = 5
WARM, TIMED, ROUNDS = 6, 10, 3
SEED = 1
TOGETHER = "TRAIN_WAYS_TOGETHER"
SHORT_GAP = 6.0
"""Microseconds: what lies between two kernels of a graph is less."""
LONGEST_OF_SEVERAL = 70.0
"""Seconds that a way of several GPUs has."""
WAIT, LONGEST_WAIT = "TRAIN_WAYS_WAIT", 55.0
"""Seconds."""


def small(on: str) -> bool:
    return on == "cpu"


def settings(name: str, on: str) -> Any:
    from undertorch.train.config import changed, preset

    found = preset(name)
    if small(on):
        return changed(found, layers=1, width=32, heads=4, context=16, vocabulary=300, batch=2)
    return replace(found, shape=replace(found.shape, vocabulary=50257)) if name.startswith("gpt2") else found


class Timer:
    """Times calls of a step, with the GPU to itself."""

    def __init__(self, on: str, lock: Path, name: str) -> None:
        self.on, self.lock, self.name, self.warm = on, lock, name, WARM

    def ready(self) -> None:
        """Waits until all that were started together have compiled: nothing else then uses the GPU, or its power."""
        together = [name for name in os.environ.get(TOGETHER, "").split(",") if name and name != self.name]
        (self.lock.parent / f"ready_{self.name}").touch()
        ends = time.monotonic() + float(os.environ.get(WAIT, LONGEST_WAIT))
        while time.monotonic() < ends and not all(
            (self.lock.parent / f"ready_{name}").exists() or (self.lock.parent / f"train_{name}.json").exists()
            for name in together
        ):
            time.sleep(0.05)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The GPU is ours inside."""
        with self.lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def __call__(self, step: Callable[[], float | None], tokens: int) -> dict[str, Any]:
        import torch

        cuda = self.on == "cuda"
        losses, began = [], time.monotonic()
        for number in range(self.warm):
            losses.append(step())
            print(f"step {number}: {time.monotonic() - began:.1f} s", flush=True)
        self.ready()
        each = []
        with self.alone():
            for _ in range(2):
                step()
            for number in range(ROUNDS):
                if cuda:
                    torch.cuda.synchronize()
                clocks = asked_clocks() if cuda and number == 1 else None
                began = time.perf_counter()
                for _ in range(TIMED):
                    step()
                if cuda:
                    torch.cuda.synchronize()
                each.append((time.perf_counter() - began) / TIMED)
                if clocks is not None:
                    states = clocks.communicate()[0].split("\n")
            profiled = kernels_of(step) if cuda else {}
        best = statistics.median(each)
        result = {
            "ms": best * 1e3,
            "rounds_ms": [e * 1e3 for e in each],
            "tokens_per_s": tokens / best,
            "losses": losses,
        }
        if cuda:
            result["peak_allocated_gib"] = torch.cuda.max_memory_allocated() / 2**30
            result["peak_reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
            result |= {"clocks": states[:8], "profiled": profiled}
        return result


def asked_clocks() -> Any:
    """nvidia-smi, while the GPU is at work: SM clock, power, why the clock is what it is."""
    query = "clocks.sm,power.draw,clocks_event_reasons.active,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    return subprocess.Popen(["sh", "-c", f"sleep 0.25; {' '.join(command)}"], stdout=subprocess.PIPE, text=True)


def kernels_of(step: Callable[[], float | None], steps: int = 3) -> dict[str, Any]:
    """Time of each kernel in the steady state, the sum, and what of the span nothing ran in; microseconds a step."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    for _ in range(6):
        step()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    names: dict[str, list[float]] = {}
    spans: list[tuple[float, float]] = []
    starts: list[tuple[float, str]] = []
    for event in profiler.events():
        if str(event.device_type).endswith("CUDA"):
            row = names.setdefault(event.name[:100], [0, 0.0])
            row[0] += 1 / steps
            row[1] += event.time_range.elapsed_us() / steps
            spans.append((event.time_range.start, event.time_range.end))
            starts.append((event.time_range.start, event.name[:60]))
    spans.sort()
    after = dict(starts)
    busy, until, gaps = 0.0, 0.0, []
    for begin, end in spans:
        if until and begin > until:
            gaps.append((begin - until, after[begin]))
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    gaps.sort(reverse=True)
    short = [gap for gap, _ in gaps if gap < SHORT_GAP]
    span = (until - spans[0][0]) / steps if spans else 0.0
    top = sorted(names.items(), key=lambda pair: -pair[1][1])[:60]
    return {
        "span_us": span, "busy_us": busy / steps, "launches": len(spans) / steps,
        "short_gaps": len(short) / steps, "short_gaps_us": sum(short) / steps,
        "long_gaps": [[round(gap, 1), name] for gap, name in gaps[:24] if gap >= SHORT_GAP],
        "kernels": [[name, round(count, 2), round(us, 1)] for name, (count, us) in top],
    }  # fmt: skip


def random_rows(config: Any, world: int = 1, rank: int = 0) -> Any:
    """The same tokens for every way; each step takes the next of four batches."""
    import numpy as np

    from undertorch.train.loader import Rows

    random = np.random.default_rng(SEED)
    shape = (4, world, config.batch, config.shape.context + 1)
    tokens = random.integers(0, config.shape.vocabulary, shape)[:, rank]
    return [Rows(tokens=each, places=(0,) * config.batch, epoch=0) for each in tokens]


def products(on: str, timer: Timer) -> dict[str, Any]:
    """Each product of the step: torch's, and cuBLASLt's algorithms; microseconds, and how far results are apart."""
    import torch

    from undertorch.train import gradients
    from undertorch.train import products as lt

    config = settings("gpt2-124m", on)
    width, hidden, rows = config.shape.width, config.shape.hidden, config.batch * config.shape.context
    found: list[dict[str, Any]] = []

    def some(*shape: int) -> Any:
        return torch.randn(shape, device=on, dtype=torch.bfloat16) / shape[-1] ** 0.5

    def off(got: Any, wanted: Any) -> float:
        return float((got.float() - wanted.float()).abs().max() / wanted.float().abs().max())

    def measured(name: str, run: Any, first: Any, second: Any, bias: Any, epilogue: Any) -> None:
        ways = lt.ways(run, first, second, bias, epilogue)
        taken = lt.times([partial(run, way, first, second, bias) for way in ways])
        results = [run(way, first, second, bias) for way in ways[:2]]
        pairs: Any = zip(*results, strict=True) if isinstance(results[0], tuple) else [results]
        pairs = pairs if len(ways) > 1 else ()
        row = {"product": name, "gflop": 2e-9 * first.numel() * second.shape[1], "torch_us": taken[0]}
        found.append(row | {"cublaslt_us": taken[1:], "off": [off(mine, its) for its, mine in pairs]})
        print(found[-1], flush=True)

    timer.ready()
    with timer.alone():
        for name, out, inputs in (("qkv", 3 * width, width), ("out", width, width), ("up", hidden, width),
                                  ("down", width, hidden), ("head", config.shape.padded, width)):  # fmt: skip
            x, dy, weight = some(rows, inputs), some(rows, out), some(out, inputs)
            bias, none = None if name == "head" else some(out), lt.Epilogue.NONE
            forward = none if bias is None else lt.Epilogue.BIAS
            measured(f"{name} forward", lt._product, x, weight.t(), bias, forward)
            measured(f"{name} inputs", lt._product, dy, weight, None, none)
            measured(f"{name} weights", lt._product, dy.t(), x, None, none)
            if name == "up":
                gelu = lt.Epilogue.GELU_AUX_BIAS
                measured("up forward with gelu", lt._gelu_product, x, weight.t(), bias, gelu)
        dy = some(rows, width)
        sums = lt.times([lambda: gradients.bias_gradient(dy), lambda: dy.sum(0)])
        found.append({"product": "sums of a bias's gradient", "ours_us": sums[0], "torch_us": sums[1]})
    return {"products": found}


def ours(name: str, on: str, timer: Timer, **changes: Any) -> dict[str, Any]:
    """As `undertorch train` does a step."""
    import torch

    from undertorch.train.distributed import Group, shared
    from undertorch.train.model import made
    from undertorch.train.step import Step
    from undertorch.train.update import Update

    config = replace(settings(name, on), **changes)
    device = torch.device(on)
    model = made(config, device, torch.bfloat16 if on == "cuda" else torch.float32)
    called = shared(model, config, Group(rank=0, world=1, device=device))
    step = Step(torch.compile(called) if config.compiled else called, Update(model, config), config, device)
    rows, count = random_rows(config), 0

    def once() -> float:
        nonlocal count
        step.compute([rows[count % len(rows)]])
        count += 1
        step.load(rows[count % len(rows)])
        loss, _ = step.numbers()
        step.update(config.rate)
        return loss

    result = timer(once, config.tokens_a_step)
    return result | {"graphs": step.graphs is not None, "flops_a_token": config.shape.flops_a_token}


def peer(  # noqa: PLR0915 - one recipe, read from top to bottom
    on: str, timer: Timer, *, compiled: bool, graphs: bool, half: bool = False, flash: bool = False
) -> dict[str, Any]:
    """The GPT-2 of examples/train_gpt.py, by torch alone."""
    sys.path.insert(0, str(ROOT / "examples"))
    import torch
    import train_gpt
    from torch.nn import functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    config = settings("gpt2-124m", on)
    shape, cuda = config.shape, on == "cuda"
    train_gpt.VOCABULARY = shape.padded
    torch.manual_seed(SEED)
    model = train_gpt.GPT(shape.context, shape.layers, shape.width, shape.heads).to(on)
    if half:
        model = model.bfloat16()
    parameters = list(model.parameters())
    masters = [p.detach().float() for p in parameters] if half else parameters
    decayed = [m for m in masters if m.dim() >= 2], [m for m in masters if m.dim() < 2]
    groups = [{"params": decayed[0], "weight_decay": 0.1}, {"params": decayed[1], "weight_decay": 0.0}]
    more: dict[str, Any] = {"fused": True, "capturable": graphs} if cuda else {}
    optimizer = torch.optim.AdamW(groups, lr=config.rate, betas=config.betas, **more)
    wide = [torch.zeros_like(m) for m in masters] if half else []

    def loss_of(tokens: Any, targets: Any) -> Any:
        with torch.autocast(on, dtype=torch.bfloat16, enabled=cuda and not half):
            logits = model(tokens)
            return functional.cross_entropy(logits.view(-1, shape.padded), targets.reshape(-1))

    function = torch.compile(loss_of) if compiled else loss_of
    rows = [torch.from_numpy(each.tokens).to(on) for each in random_rows(config)]
    tokens, targets = rows[0][:, :-1].clone(), rows[0][:, 1:].clone()
    order = [
        SDPBackend.FLASH_ATTENTION if flash else SDPBackend.CUDNN_ATTENTION,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.MATH,
    ]
    held: list[Any] = [torch.zeros((), device=on)]

    def body() -> None:
        for p in parameters:
            p.grad = None
        with sdpa_kernel(list(dict.fromkeys(order)), set_priority=True):
            loss = function(tokens, targets)
        loss.backward()
        if half:
            torch._foreach_copy_(wide, [p.grad for p in parameters])
            for master, gradient in zip(masters, wide, strict=True):
                master.grad = gradient
        torch.nn.utils.clip_grad_norm_(masters, config.clip, foreach=True)
        optimizer.step()
        if half:
            with torch.no_grad():
                torch._foreach_copy_(parameters, masters)
        held[0].copy_(loss.detach())

    stream = torch.cuda.Stream() if cuda else None
    graph: list[Any] = []
    count = 0

    def once() -> float:
        nonlocal count
        tokens.copy_(rows[count % len(rows)][:, :-1])
        targets.copy_(rows[count % len(rows)][:, 1:])
        if graph:
            graph[0].replay()
        else:
            body()
        count += 1
        if graphs and cuda and count == 3:
            torch.cuda.synchronize()
            made = torch.cuda.CUDAGraph()
            with torch.cuda.graph(made, stream=stream):
                body()
            graph.append(made)
        return float(held[0])

    if stream is None:
        result = timer(once, config.tokens_a_step)
    else:
        with torch.cuda.stream(stream):
            result = timer(once, config.tokens_a_step)
    return result | {"graphs": bool(graph), "flops_a_token": shape.flops_a_token}


def seen(on: str) -> dict[str, Any]:
    """Where the time of our step goes: every launch by phase, kind and bound, beside its floor: the longer of its
    bytes at the rate that a large copy reaches, and its FLOPs at the data sheet's rate of the unit that does them."""
    from collections import defaultdict

    from undertorch.records import Kind, Math
    from undertorch.records.totals import busy_us, shares_us
    from undertorch.train.seen import screen, see_step

    step, gpu = see_step(settings("gpt2-124m", on), None if on == "cuda" else "H200")
    reached = gpu.achieved_bandwidth or gpu.memory_bandwidth
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0, 0])
    names: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    unknown: dict[str, float] = defaultdict(float)
    for launch, share in zip(step.launches, shares_us(step.launches), strict=True):
        kernel = launch.kernel
        products = kernel.kind in (Kind.MATMUL, Kind.ATTENTION)
        rate = gpu.peaks[Math.TENSOR_BF16 if products else kernel.math or Math.FP32]
        floor = max((kernel.min_bytes or 0) / reached, (kernel.flops or 0) / rate) * 1e6
        known = kernel.min_bytes is not None
        row = groups[str(launch.phase), str(kernel.kind), str(launch.bound)]
        for place, value in enumerate((1, share, floor if known else share, share if known else 0.0, not known)):
            row[place] += value
        if not known:
            unknown[kernel.name[:90]] += share
        for place, value in enumerate((1, share, floor)):
            names[str(launch.phase), kernel.name[:90]][place] += value
    rows = [
        {"phase": p, "kind": k, "bound": b, "launches": n, "us": us, "floor_us": floor, "us_with_floor": with_floor,
         "without_bytes": without}
        for (p, k, b), (n, us, floor, with_floor, without) in sorted(groups.items())
    ]  # fmt: skip
    top = sorted(names.items(), key=lambda pair: -pair[1][1])[:80]
    return {
        "step_us": step.step_us, "busy_us": busy_us(step.launches), "origin": str(step.time_origin), "rows": rows,
        "floor_us": sum(row["floor_us"] for row in rows), "without_bytes": unknown,
        "kernels": [
            {"phase": phase, "name": name, "launches": n, "us": us, "floor_us": floor}
            for (phase, name), (n, us, floor) in top
        ],
        "screen": list(screen(step)),
    }  # fmt: skip


def together(
    name: str, on: str, timer: Timer, out: Path, *, alone: bool = False, graphs: bool = False, flat: bool = False
) -> dict[str, Any] | None:
    """DDP of GPT-2, FSDP2 of Llama, by torchrun. `alone`: without the sum of gradients, which shows what that costs.
    `flat`: all gradients are summed at once, when all are there.
    """
    import torch
    import torch.distributed as dist

    from undertorch.train.distributed import group, shared
    from undertorch.train.model import made
    from undertorch.train.step import Step
    from undertorch.train.update import Update

    config = replace(settings(name, on), parallel="fsdp" if name.startswith("llama") else "ddp")
    with group(on) as one:
        fsdp = one.world > 1 and config.parallel == "fsdp"
        model = made(config, one.device, torch.bfloat16 if on == "cuda" and not fsdp else torch.float32)
        cuda = one.device.type == "cuda"
        with torch.cuda.stream(torch.cuda.Stream()) if cuda else nullcontext():  # for a DDP that is to be captured
            called = model if alone or flat else shared(model, config, one)
        if cuda:
            torch.cuda.synchronize()
        step = Step(called, Update(model, config), config, one.device, captures=one.world == 1 or graphs)
        timer.warm = 14 if graphs else WARM
        norm = step._end

        def summed() -> None:
            for gradient in step._gradients().values():
                gradient.div_(one.world)
            dist.all_reduce_coalesced(list(step._gradients().values()))
            norm()

        if flat:
            step._end = summed  # type: ignore[method-assign]
        rows, count = random_rows(config, one.world, one.rank), 0

        def once() -> float:
            nonlocal count
            loss, _ = step.gradients([rows[count % len(rows)]])
            step.update(config.rate)
            count += 1
            return loss

        if not one.first:
            timer.lock = out / f"lock_{one.rank}"  # all time the same steps
        result = timer(once, config.tokens_a_step * one.world)
        result |= {"world": one.world, "flops_a_token": config.shape.flops_a_token, "graphs": step.graphs is not None}
        return result if one.first else None


def way(name: str, on: str, out: Path) -> dict[str, Any] | None:
    timer = Timer(on, out / "lock", name)
    if "_1" in name or "_N" in name:
        model, _, how = name.partition("_")
        return together(
            model,
            on,
            timer,
            out,
            alone=how.endswith("alone"),
            graphs=how.endswith(("graphs", "flat")),
            flat=how.endswith("flat"),
        )
    if name == "seen":
        return seen(on)
    if name == "ours":
        return ours("gpt2-124m", on, timer)
    if name == "ours_torchs_products":
        from undertorch.train import products as lt

        lt.ways = lambda *_: (lt.Torchs(),)
        return ours("gpt2-124m", on, timer)
    if name == "products":
        return products(on, timer)
    if name == "ours_whole_logits":
        return ours("gpt2-124m", on, timer, fused_loss=False)
    return peer(
        on, timer, compiled="compile" in name, graphs="graphs" in name, half="bf16" in name, flash="flash" in name
    )  # fmt: skip


def run_way(name: str, on: str, out: Path) -> None:
    """In a process of its own: writes OUT/train_WAY.json, also where it fails."""
    began = time.monotonic()
    faulthandler.dump_traceback_later(40, repeat=True)  # says where a way is that does not end
    try:
        result = way(name, on, out)
    except BaseException as error:
        result = {"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]}
        if int(os.environ.get("RANK", "0")) > 0:
            raise
    if result is None:
        return
    if "tokens_per_s" in result and on == "cuda":
        from undertorch import gpus
        from undertorch.records import Math

        peak = gpus.find("H200").peaks[Math.TENSOR_BF16] * result.get("world", 1)
        result["mfu"] = result["tokens_per_s"] * result["flops_a_token"] / peak
    at = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())
    result |= {"way": name, "seconds": time.monotonic() - began, "at": at}
    (out / f"train_{name}.json").write_text(json.dumps(result, indent=1))
    if "failed" in result:
        sys.exit(1)


def command(name: str, on: str, out: Path, gpus: int) -> list[str]:
    own = [str(Path(__file__).resolve()), str(out), "--way", name, "--on", on]
    if "_N" in name:
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}", *own]
    return [sys.executable, *own]


def all_ways(names: tuple[str, ...], at_once: int, on: str, out: Path, gpus: int, ends: float) -> None:
    """Starts them in their order, some at a time; kills what is left at the limit."""
    waiting = [names[at : at + at_once] for at in range(0, len(names), at_once)]
    for batch in waiting:
        if time.monotonic() > ends - 20:
            print(f"not begun within the limit: {', '.join(batch)}", flush=True)
            continue
        wait = min(LONGEST_WAIT, 0.45 * (ends - time.monotonic()))
        environment = {"TORCHINDUCTOR_COMPILE_THREADS": "6", **os.environ, TOGETHER: ",".join(batch), WAIT: str(wait)}
        running = {}
        for name in batch:
            log = (out / f"train_{name}.log").open("w")
            running[name] = subprocess.Popen(
                command(name, on, out, gpus), stdout=log, stderr=log, start_new_session=True, env=environment
            )  # fmt: skip
        own_end = min(ends, time.monotonic() + LONGEST_OF_SEVERAL) if gpus > 1 else ends  # one that hangs leaves time for the others
        while running and time.monotonic() < own_end:
            for name, process in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    (out / f"ready_{name}").touch()  # nobody waits for one that has died
                    shorten(out, name)
                    told(out, name)
            time.sleep(0.2)
        for name, process in running.items():
            print(f"{name}: not done within the limit", flush=True)
            os.killpg(process.pid, 9)
            process.wait()
            shorten(out, name)


def shorten(out: Path, name: str) -> None:
    log = out / f"train_{name}.log"
    log.write_text(log.read_text(errors="replace")[-4000:])


def told(out: Path, name: str) -> None:
    path = out / f"train_{name}.json"
    if not path.is_file():
        print(f"{name}: no result; see train_{name}.log", flush=True)
        return
    result = json.loads(path.read_text())
    if "failed" in result:
        print(f"{name}: {result['failed']}"[:300], flush=True)
    elif name == "seen":
        print("\n".join(result["screen"]), flush=True)
    elif name == "products":
        print(f"products: {len(result['products'])} rows", flush=True)
    else:
        memory, losses = result.get("peak_allocated_gib", 0), result["losses"]
        print(
            f"{name:22} {result['ms']:8.2f} ms  {result['tokens_per_s']:10,.0f} tokens/s  "
            f"MFU {result.get('mfu', 0):.3f}  {memory:.1f} GiB  loss {losses[0]:.4f} {losses[-1]:.4f}  "
            f"busy {result.get('profiled', {}).get('busy_us', 0) / 1e3:.2f} ms  {result.get('clocks', [''])[:1]}  "
            f"({result['seconds']:.0f} s)",
            flush=True,
        )


AIM = 575_000
"""Tokens a second of GPT-2 124M, 32 × 1024, on one H200."""


def ended_at(path: Path) -> str:
    """UTC, to the minute."""
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(path.stat().st_mtime))


def publish(outs: list[Path]) -> None:
    """Writes benchmarks/results/train.json from what runs on the GPU left in OUT…: `run` numbers them from 1, and `at`
    says when each ended.
    """
    from results_file import Aim, write

    found = [
        {"at": ended_at(out / "train.json"), **each, "run": number}
        for number, out in enumerate(outs, 1)
        for each in json.loads((out / "train.json").read_text())
    ]
    timed = [each for each in found if "tokens_per_s" in each]
    kept = (
        "way",
        "ms",
        "rounds_ms",
        "tokens_per_s",
        "mfu",
        "peak_allocated_gib",
        "peak_reserved_gib",
        "graphs",
        "world",
        "losses",
        "clocks",
        "run",
        "at",
    )
    rows: list[dict[str, object]] = [
        {key: each[key] for key in kept if key in each}
        | ({"busy_us": each["profiled"]["busy_us"]} if each.get("profiled") else {})
        for each in timed
    ]
    rows += [
        {
            key: each[key]
            for key in ("way", "step_us", "busy_us", "floor_us", "without_bytes", "rows", "kernels", "run", "at")
        }
        for each in found
        if each.get("way") == "seen" and "floor_us" in each
    ]
    own = [each for each in timed if each["way"].startswith("ours") or each["way"] == "gpt2-124m_1"]
    best = max(own, key=lambda each: each["tokens_per_s"])
    aim = Aim(
        what=f"tokens a second of {best['way']}, one GPU", aim=f"{AIM:,}", got=f"{best['tokens_per_s']:,.0f}",
        holds=best["tokens_per_s"] >= AIM,
    )  # fmt: skip
    write("train", rows, [aim], {"torch": "2.11.0+cu130", "triton": "3.6.0", "driver": "580.159"}, "NVIDIA H200")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="+", help="one folder; with --publish one or more")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds, after which it has ended")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--on", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--way", help="one way, in this process")
    parser.add_argument("--only", default=None, help="ways, with commas between")
    parser.add_argument("--publish", action="store_true", help="only write benchmarks/results/train.json from OUT")
    asked = parser.parse_args()
    if asked.publish:
        publish(asked.out)
        return
    if len(asked.out) > 1:
        parser.error("several folders are for --publish")
    asked.out = asked.out[0]
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.way:
        run_way(asked.way, asked.on, asked.out)
        return
    ends = time.monotonic() + asked.limit - 3
    names = SEVERAL if asked.gpus > 1 else ONE_GPU
    if asked.only:
        names = tuple(asked.only.split(","))
    # Side by side they would need more GPUs than there are; a way of several GPUs has all.
    all_ways(names, 1 if asked.gpus > 1 else AT_ONCE, asked.on, asked.out, asked.gpus, ends)
    results = [json.loads(path.read_text()) for path in sorted(asked.out.glob("train_*.json"))]
    for result in results:
        result.pop("trace", None)
    (asked.out / "train.json").write_text(json.dumps(results, indent=1))
    for path in (*asked.out.glob("lock*"), *asked.out.glob("ready_*")):
        path.unlink()


if __name__ == "__main__":
    main()
