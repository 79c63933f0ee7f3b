"""Asks a real GPU which kernels matrix products launch, over many sizes: what the rules for tiles are held against.

    python benchmarks/golden_gemms.py OUT.json.gz          (needs CUDA and torch, nothing else; a minute on an H200)

Sizes are those of linear layers: tokens, inputs, outputs; each as forward with and without bias, gradient of the input
and gradient of the weight. Every second layer is marked `held`: rules may be fitted to the others alone.
"""

import datetime
import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

TOKENS = (1, 2, 4, 8, 16, 32, 64, 100, 128, 200, 256, 384, 512, 777, 1000, 1024, 1536, 2048, 3000, 4096, 6144)
TOKENS += (8192, 12288, 16384, 24576, 32768)
WIDTHS = (64, 80, 96, 128, 192, 256, 320, 384, 512, 640, 768, 896, 1000, 1024, 1152, 1280, 1536, 1600, 1920, 2048, 2304)
WIDTHS += (2560, 3072, 3840, 4096, 4800, 5120, 6144, 6400, 8192, 10240, 11008, 12288, 13824, 14336, 28672, 32000, 50304)
LAYERS = {"bfloat16": 130, "float16": 10, "float32": 40}
MOST_FLOPS = {"bfloat16": 8e12, "float16": 4e12, "float32": 6e11}
SEED = 7
GPU_WORK = ("kernel", "gpu_memset", "gpu_memcpy")


def layers() -> Iterator[tuple[str, int, int, int]]:
    """dtype, tokens, inputs, outputs."""
    choice = random.Random(SEED)
    for dtype, count in LAYERS.items():
        found = 0
        while found < count:
            tokens, inputs, outputs = choice.choice(TOKENS), choice.choice(WIDTHS), choice.choice(WIDTHS)
            if 2 * tokens * inputs * outputs <= MOST_FLOPS[dtype] and inputs * outputs <= 5e8:
                found += 1
                yield dtype, tokens, inputs, outputs


def products(dtype: str, tokens: int, inputs: int, outputs: int) -> list[tuple[dict, Callable[[], torch.Tensor]]]:
    """A layer's, each as what it is (op, dtype, layout of both matrices, m × k by k × n) and a call."""
    kind = getattr(torch, dtype)
    x = torch.randn(tokens, inputs, device="cuda", dtype=kind)
    weight = torch.randn(outputs, inputs, device="cuda", dtype=kind)
    bias = torch.randn(outputs, device="cuda", dtype=kind)
    grad = torch.randn(tokens, outputs, device="cuda", dtype=kind)
    calls = (
        ("mm", "rc", tokens, outputs, inputs, lambda: torch.mm(x, weight.t())),
        ("addmm", "rc", tokens, outputs, inputs, lambda: torch.addmm(bias, x, weight.t())),
        ("mm", "rr", tokens, inputs, outputs, lambda: torch.mm(grad, weight)),
        ("mm", "cr", outputs, inputs, tokens, lambda: torch.mm(grad.t(), x)),
    )
    return [
        ({"op": op, "dtype": dtype, "layout": layout, "m": m, "n": n, "k": k}, call)
        for op, layout, m, n, k, call in calls
    ]


def kernels(calls: list[Callable[[], torch.Tensor]]) -> list[list[dict]]:
    """What the GPU did for each call, in order. Fills of an int8 stand between the calls."""
    mark = torch.zeros(1, device="cuda", dtype=torch.int8)
    for call in calls:
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for call in calls:
            mark.fill_(1)
            call()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    found: list[list[dict]] = []
    for event in sorted((e for e in events if e.get("cat") in GPU_WORK), key=lambda e: e["ts"]):
        if "FillFunctor<signed char>" in event["name"]:
            found.append([])
            continue
        args = event["args"]
        found[-1].append(
            {
                "name": event["name"][:200],
                "grid": args.get("grid"),
                "block": args.get("block"),
                "registers": args.get("registers per thread"),
                "shared": args.get("shared memory"),
                "bytes": args.get("bytes"),
                "us": round(event["dur"], 3),
            }
        )
    return found


def main(out: str) -> None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    machine = {
        "gpu": torch.cuda.get_device_name(0),
        "driver": subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    cases = []
    for number, layer in enumerate(layers()):
        asked = products(*layer)
        answers = kernels([call for _, call in asked])
        cases += [what | {"held": number % 2 == 1, "kernels": k} for (what, _), k in zip(asked, answers, strict=True)]
    with gzip.open(out, "wt") as file:
        json.dump({"machine": machine, "seed": SEED, "cases": cases}, file, separators=(",", ":"))
    print(len(cases), "products")


if __name__ == "__main__":
    main(sys.argv[1])
