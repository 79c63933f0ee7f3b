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
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from results_file import RESULTS
from train_gpus import LONGEST, SEVERAL, efficiency, failing_folder, failing_run, is_one, started, together, whole_run
from train_gpus import rows as rows_of_gpus
from train_timing import LONGEST_WAIT, SEED, TOGETHER, WAIT, Timer, random_rows, settings

ROOT = Path(__file__).parents[1]
ONE_GPU = (
    "ours", "ours_whole_logits", "compile_graphs", "compile_graphs_bf16", "eager",  # side by side
    "ours_torchs_products", "products", "compile", "seen",
)  # fmt: skip
AT_ONCE = 5


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

    from undertorch.train.distributed import Group
    from undertorch.train.model import made
    from undertorch.train.step import Step, own_stream
    from undertorch.train.update import Update

    config = replace(settings(name, on), **changes)
    one = Group(rank=0, world=1, device=torch.device(on))
    model = made(config, one.device, torch.bfloat16 if on == "cuda" else torch.float32)
    called = torch.compile(model) if config.compiled else model
    step = Step(called, Update(model, config), config, one, own_stream(config, one))
    rows, count = random_rows(config), 0

    def once() -> float:
        nonlocal count
        step.compute([rows[count % len(rows)]])
        count += 1
        step.load(rows[count % len(rows)])
        loss, _, _ = step.numbers()
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


def way(name: str, on: str, out: Path) -> dict[str, Any] | None:
    timer = Timer(on, out / f"lock{os.environ.get('CUDA_VISIBLE_DEVICES', '')}", name)  # of a GPU
    if name.endswith("_N_fails"):
        failing_run(on)
        return None
    if name.endswith("_run"):
        return whole_run(on)
    if is_one(name):
        return together(name, on, timer, out)
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
    # Says where a way is that does not end, and ends it.
    faulthandler.dump_traceback_later(LONGEST - 2 if is_one(name) else 40, repeat=not is_one(name), exit=is_one(name))
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


def all_ways(names: tuple[str, ...], on: str, out: Path, gpus: int, ends: float) -> None:
    """Starts them in their order, some at a time: on one GPU, which a lock then hands from one to the next; of several,
    those of one GPU on a GPU each, two at most, then those of all one by one. Kills what is left at the limit.
    """
    several = gpus > 1
    singles = [name for name in names if not (several and "_N" in name)]
    at_once = 2 * gpus if several else AT_ONCE
    batches = [singles[at : at + at_once] for at in range(0, len(singles), at_once)]
    for batch in [*batches, *([name] for name in names if name not in singles)]:
        if time.monotonic() > ends - 20:
            print(f"not begun within the limit: {', '.join(batch)}", flush=True)
            continue
        wait = min(LONGEST_WAIT, LONGEST / 2 if several else 0.45 * (ends - time.monotonic()))
        os.environ |= {TOGETHER: ",".join(batch), WAIT: str(wait)}
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "6")
        running = {}
        for number, name in enumerate(batch):
            own = [sys.executable, str(Path(__file__).resolve()), str(out), "--way", name, "--on", on]
            with (out / f"train_{name}.log").open("w") as log:
                running[name] = started(name, own, gpus, number % gpus if several and name in singles else None, log)
        own_end = min(ends, time.monotonic() + LONGEST) if several else ends  # one that hangs leaves time for others
        while running and time.monotonic() < own_end:
            for name, group in list(running.items()):
                if any(process.poll() for process in group):  # the others would wait for the one that failed
                    ended(group)
                if all(process.poll() is not None for process in group):
                    del running[name]
                    (out / f"ready_{name}").touch()  # nobody waits for one that has died
                    shorten(out, name)
                    told(out, name)
            time.sleep(0.2)
        for name, group in running.items():
            print(f"{name}: not done within the limit", flush=True)
            ended(group)
            shorten(out, name)


def ended(group: list[subprocess.Popen[bytes]]) -> None:
    """Kills what is left of a way."""
    for process in group:
        process.kill()
    for process in group:
        process.wait()


def shorten(out: Path, name: str) -> None:
    log = out / f"train_{name}.log"
    log.write_text(log.read_text(errors="replace")[-4000:])


def told(out: Path, name: str) -> None:
    path = out / f"train_{name}.json"
    if not path.is_file():
        print(f"{name}: no result, ended at {time.monotonic():.1f} s; see train_{name}.log", flush=True)
        return
    result = json.loads(path.read_text())
    if "failed" in result:
        print(f"{name}: {result['failed']}"[:300], flush=True)
    elif name == "seen":
        print("\n".join(result["screen"]), flush=True)
    elif "run" in result:
        print(f"{name}: {result['run']}", flush=True)
    elif name == "products":
        print(f"products: {len(result['products'])} rows", flush=True)
    else:
        memory, losses = result.get("peak_allocated_gib", 0), result["losses"]
        print(
            f"{name:22} {result['ms']:8.2f} ms  {result['tokens_per_s']:10,.0f} tokens/s  "
            f"MFU {result.get('mfu', 0):.3f}  {memory:.1f} GiB  loss {losses[0]:.4f} {losses[-1]:.4f}  "
            f"busy {result.get('profiled', {}).get('busy_us', 0) / 1e3:.2f} ms  "
            f"exposed {result.get('profiled', {}).get('exposed_communication_us', 0) / 1e3:.2f} ms  "
            f"{result.get('clocks', [])[:1]}  ({result.get('seconds', 0):.0f} s)",
            flush=True,
        )


AIM = 575_000
"""Tokens a second of GPT-2 124M, 32 × 1024, on one H200."""


SCALING = 0.95
"""Of four times one GPU, on four, for the larger model."""
VERSIONS = {"torch": "2.11.0+cu130", "triton": "3.6.0", "driver": "580.159"}


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
    own = [each for each in timed if each["way"].startswith("ours")]
    rows = [row for row in rows if not is_one(str(row["way"]))] + published(is_one)
    best = max(own, key=lambda each: each["tokens_per_s"])
    aim = Aim(
        what=f"tokens a second of {best['way']}, one GPU", aim=f"{AIM:,}", got=f"{best['tokens_per_s']:,.0f}",
        holds=best["tokens_per_s"] >= AIM,
    )  # fmt: skip
    write("train", rows, [aim, *of_several(rows)], VERSIONS, "NVIDIA H200")


def publish_gpus(outs: list[Path]) -> None:
    """Writes what several GPUs did anew into benchmarks/results/train.json, and leaves the rest."""
    from results_file import Aim, write

    before = json.loads((RESULTS / "train.json").read_text())
    rows = published(lambda name: not is_one(name)) + rows_of_gpus(outs)
    aims = [Aim(**aim) for aim in before["aims"] if aim["what"].endswith("one GPU")]
    write("train", rows, [*aims, *of_several(rows)], VERSIONS, "NVIDIA H200")


def published(which: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Rows of benchmarks/results/train.json whose way is one of those."""
    rows: list[dict[str, Any]] = json.loads((RESULTS / "train.json").read_text())["rows"]
    return [row for row in rows if which(row["way"])]


def of_several(rows: list[dict[str, Any]]) -> list[Any]:
    """The aim of scaling, by the larger model's best way on four GPUs."""
    from results_file import Aim

    found = [(efficiency(row, rows), row["way"]) for row in rows if row.get("world") == 4 and "llama" in row["way"]]
    got = [(share, name) for share, name in found if share is not None]
    if not got:
        return []
    share, name = max(got)
    what = f"tokens a second of {name} on four GPUs, as a share of four times one"
    return [Aim(what=what, aim=f"{SCALING:.0%}", got=f"{share:.1%}", holds=share >= SCALING)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="+", help="one folder; with --publish one or more")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds, after which it has ended")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--on", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--way", help="one way, in this process")
    parser.add_argument("--only", default=None, help="ways, with commas between")
    parser.add_argument("--publish", action="store_true", help="only write benchmarks/results/train.json from OUT")
    parser.add_argument("--publish-gpus", action="store_true", help="the same, of several GPUs only")
    asked = parser.parse_args()
    if asked.publish:
        publish(asked.out)
        return
    if asked.publish_gpus:
        publish_gpus(asked.out)
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
    all_ways(names, asked.on, asked.out, asked.gpus, ends)
    results = [json.loads(path.read_text()) for path in sorted(asked.out.glob("train_*.json"))]
    for result in results:
        result.pop("trace", None)
    (asked.out / "train.json").write_text(json.dumps(results, indent=1))
    for path in (*asked.out.glob("lock*"), *asked.out.glob("ready_*")):
        path.unlink()
    shutil.rmtree(failing_folder(os.getpid()), ignore_errors=True)


if __name__ == "__main__":
    main()
