"""Training on several GPUs of one host, as `undertorch train` does a step: DDP (GPT-2 124M) and FSDP2 (Llama 1B).

A way's name says what it is: MODEL_1 on one GPU, MODEL_N on all, MODEL_G on one in a process group of its own (NCCL of
one process: what several do, but for the waiting), and what is other than usual:

    b8         eight rows a GPU          a4         four microbatches
    eager      without CUDA graphs       sparing    weights gathered again for the backward
    ctas16     NCCL has so many blocks at most      torchs     products by torch

`nano_N_run` is the command itself: a small model trained, judged, saved, ended, and gone on with, by DDP and by FSDP2.
`nano_N_fails` is one of which the second process raises while the others are in a replayed step: it is to end.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from train_timing import Timer, random_rows, settings

SEVERAL = (
    "llama-1b_1", "llama-1b_1_b8", "llama-1b_1_a4", "gpt2-124m_1", "gpt2-124m_1_a4",  # side by side, each on a GPU
    "llama-1b_N", "gpt2-124m_N", "llama-1b_N_b8", "llama-1b_N_a4", "gpt2-124m_N_a4", "nano_N_run", "nano_N_fails",
    "llama-1b_N_ctas16", "gpt2-124m_N_eager", "llama-1b_N_sparing",
)  # fmt: skip
NAME = re.compile(r"(?P<model>[^_]+)_(?P<on>[1NG])(?P<how>(_[a-z0-9]+)*)")
LONGEST = 60.0
"""Seconds that a way of several GPUs has, and after which each of its processes ends by itself."""
FAILS_AFTER = 14
LARGE_TIMED = 3
"""Steps of a round where one is several as large."""


def is_one(name: str) -> bool:
    """Whether it is a way of this file."""
    return NAME.fullmatch(name) is not None


def processes(name: str, gpus: int) -> int:
    return gpus if "_N" in name else 1


def started(name: str, command: list[str], gpus: int, gpu: int | None, log: Any) -> list[subprocess.Popen[bytes]]:
    """The processes of a way: no launcher between, so that killing them is killing all. `gpu`: of a single one."""
    world = processes(name, gpus)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if ctas := re.search(r"_ctas(\d+)", name):
        environment["NCCL_MAX_CTAS"] = ctas[1]
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    if "_N" in name:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            environment |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1])}
        environment |= {"WORLD_SIZE": str(world)}
    return [
        subprocess.Popen(
            command, stdout=log, stderr=log,
            env=environment | ({"RANK": str(rank), "LOCAL_RANK": str(rank)} if "_N" in name else {}),
        )
        for rank in range(world)
    ]  # fmt: skip


@contextmanager
def group_of_one(on: str) -> Iterator[Any]:
    """A process group of this process alone, of which `train` makes none."""
    import torch
    import torch.distributed as dist

    from undertorch.train.distributed import Group, leave

    device = torch.device("cuda", 0) if on == "cuda" else torch.device("cpu")
    dist.init_process_group(
        "nccl" if on == "cuda" else "gloo", store=dist.HashStore(), rank=0, world_size=1,
        device_id=device if on == "cuda" else None,
    )  # fmt: skip
    whole = False
    try:
        yield Group(rank=0, world=1, device=device, grouped=True)
        dist.barrier()
        whole = True
    finally:
        leave(device, whole)


def together(name: str, on: str, timer: Timer, out: Path) -> dict[str, Any] | None:
    """Times a way; None where another process speaks for it. Writes what it found before the group ends, which a graph
    that is not let go would keep from ending.
    """
    from undertorch.train.distributed import group

    found = NAME.fullmatch(name)
    assert found is not None
    how = found["how"].split("_")[1:]
    joined: AbstractContextManager[Any] = group_of_one(on) if found["on"] == "G" else group(on)
    with joined as one:
        result = timed(found["model"], how, on, timer, out, one)
        if one.first:
            (out / f"train_{name}.json").write_text(json.dumps({"way": name, **result}))
        if "fails" in how:
            raise RuntimeError("as it was asked to")
        result["ranks"] = of_all({**result.get("profiled", {}), "ms": result["ms"]}, one)
        began = time.monotonic()
    result["end_s"] = time.monotonic() - began
    print(f"the group ended after {result['end_s']:.2f} s", flush=True)
    return result if one.first else None


def of_all(figures: dict[str, Any], one: Any) -> list[dict[str, Any]]:
    """Of each process: its step, and what of it its kernels had, and NCCL's: the slowest GPU holds up the others."""
    import torch.distributed as dist

    own = {name: figures.get(name) for name in ("ms", "others_us", "communication_us", "exposed_communication_us")}
    found: list[Any] = [None] * one.world
    if one.world > 1:
        dist.all_gather_object(found, own)
    return found if one.world > 1 else [own]


def whole_run(on: str) -> dict[str, Any] | None:
    """`undertorch train` by all processes, twice each way: from its first step, and on from its checkpoint."""
    from undertorch.train.report import METRICS, read_metrics
    from undertorch.train.start import Asked, start

    text = Path(__file__).parents[1] / "docs"
    found: dict[str, Any] = {}
    first = os.environ.get("RANK", "0") == "0"
    runs = Path(tempfile.gettempdir()) / f"undertorch-train-{os.getppid()}"  # the same for all
    for preset, parallel in (("nano", "ddp"), ("nano-llama", "fsdp")):
        folder, began = runs / parallel, time.monotonic()
        for steps in (20, 30):
            # One process may come to the next group before another has left this: they meet elsewhere.
            os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
            changes = {
                "steps": steps, "parallel": parallel, "evaluate_every": 10, "checkpoint_every": 10, "layers": 2,
                "vocabulary": 1000, "accumulate": 2 if parallel == "fsdp" else 1,
            }  # fmt: skip
            asked = Asked(
                texts=[str(text)], preset=preset, on=on, out=folder, resume=steps > 20, sample=[""], see=None,
                look=False, gpu=None, export=None, changes=changes,
            )  # fmt: skip
            found[f"{parallel}_{steps}"] = str(start(asked, None))
        rows = read_metrics(folder / METRICS)
        found[f"{parallel}_losses"] = [row["loss"] for row in rows if "loss" in row][::5]
        found[f"{parallel}_s"] = time.monotonic() - began
    if first:
        shutil.rmtree(runs, ignore_errors=True)
    return {"run": found} if first else None


def failing_folder(parent: int) -> Path:
    """Of the run, which none of its processes removes."""
    return Path(tempfile.gettempdir()) / f"undertorch-train-{parent}-fails"


def failing_run(on: str) -> None:
    """`undertorch train` of which the second process raises in step 15, when DDP's graphs are replayed."""
    from undertorch.train.start import Asked, start
    from undertorch.train.step import Step

    update = Step.update

    def fails(step: Step, rate: float) -> None:
        if os.environ["RANK"] == "1" and step.done == FAILS_AFTER:
            print(f"raises, graphs {step.graphs is not None}, at {time.monotonic():.1f} s", flush=True)
            raise RuntimeError("the second process has had enough")
        update(step, rate)

    Step.update = fails  # type: ignore[method-assign]
    changes = {"steps": 40, "parallel": "ddp", "layers": 2, "vocabulary": 1000}
    folder = failing_folder(os.getppid())
    start(
        Asked(
            texts=[str(Path(__file__).parents[1] / "docs")], preset="nano", on=on, out=folder, resume=False, sample=[],
            see=None, look=False, gpu=None, export=None, changes=changes,
        ),
        None,
    )  # fmt: skip


def timed(model_name: str, how: list[str], on: str, timer: Timer, out: Path, one: Any) -> dict[str, Any]:
    import torch

    from undertorch.ops import choose
    from undertorch.train import products
    from undertorch.train.distributed import shared
    from undertorch.train.model import made
    from undertorch.train.rehearsal import chosen_together
    from undertorch.train.step import Step, own_stream
    from undertorch.train.update import Update

    config = replace(settings(model_name, on), parallel="fsdp" if model_name.startswith("llama") else "ddp")
    usual = config.batch
    if "b8" in how:
        config = replace(config, batch=4 if on == "cpu" else 8)
    config = replace(
        config, accumulate=4 if "a4" in how else 1, graphs="eager" not in how,
        sparing=True if "sparing" in how else None,
    )  # fmt: skip
    if config.batch * config.accumulate > usual:
        timer.timed, timer.before_profile, timer.profiled = LARGE_TIMED, 1, 2
    cuda = on == "cuda"
    began = time.monotonic()
    if "torchs" in how:
        products.ways = lambda *_: (products.Torchs(),)
    else:
        chosen_together(config, one)
    chose_s = time.monotonic() - began
    fsdp = one.grouped and config.parallel == "fsdp"
    model = made(config, one.device, torch.bfloat16 if cuda and not fsdp else torch.float32)
    stream = own_stream(config, one)
    called = shared(model, config, one, stream)
    rows, count = random_rows(config, one.world, one.rank), 0
    if not one.first:
        timer.lock = out / f"lock_{one.rank}"  # all time the same steps
    with Step(called, Update(model, config), config, one, stream) as step:
        timer.warm = step.eager_steps + 3 if stream is not None else timer.warm

        def once() -> float:
            nonlocal count
            step.compute([rows[(count + number) % len(rows)] for number in range(config.accumulate)])
            count += config.accumulate
            step.load(rows[count % len(rows)])
            loss, _, _ = step.numbers()
            step.update(config.rate)
            return loss

        result = timer(once, config.tokens_a_step * one.world)
        result |= {
            "world": one.world, "grouped": one.grouped, "batch": config.batch, "accumulate": config.accumulate,
            "flops_a_token": config.shape.flops_a_token, "graphs": step.graphs is not None, "choosing_s": chose_s,
            "updates_replayed": None if step.replays is None else step.replays.replayed,
            "update_graphs": None if step.replays is None else len(step.replays.graphs),
            "by_cublaslt": sum(choice.way.startswith("cuBLASLt") for choice in choose.explained().values()),
        }  # fmt: skip
    return result


KEPT = (
    "way", "ms", "rounds_ms", "tokens_per_s", "mfu", "peak_allocated_gib", "peak_reserved_gib", "world", "batch",
    "accumulate", "graphs", "ranks", "updates_replayed", "update_graphs", "by_cublaslt", "choosing_s", "end_s",
    "losses", "clocks", "at", "run",
)  # fmt: skip


def rows(outs: list[Path]) -> list[dict[str, Any]]:
    """Of the ways of this file, what runs on GPUs left in OUT…, the first folder that has a way at so many GPUs."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for out in outs:
        for each in json.loads((out / "train.json").read_text()):
            if is_one(each["way"]) and "failed" not in each:
                found.setdefault((each["way"], each.get("world", 0)), each)
    return [{key: each[key] for key in KEPT if key in each} | _profiled(each) for each in found.values()]


def _profiled(each: dict[str, Any]) -> dict[str, Any]:
    """Of the profile of the first process. Of a run that did not note in what time only NCCL's kernels ran: under DDP,
    where all others run one after the other, the time of all less the sum of theirs; under FSDP2 it is unknown.
    """
    profile = each.get("profiled")
    if not profile:
        return {}
    found = {"busy_us": profile["busy_us"], "span_us": profile["span_us"]}
    if each["world"] == 1:
        return found
    nccl = sum(us for name, _, us in profile["kernels"] if name.startswith("nccl"))
    others = sum(us for name, _, us in profile["kernels"]) - nccl
    about = profile["busy_us"] - others if each["way"].startswith("gpt2") else None
    return found | {
        "communication_us": profile.get("communication_us", nccl),
        "exposed_communication_us": profile.get("exposed_communication_us", about),
        "exposed_noted": "exposed_communication_us" in profile,
    }


def partner(way: str) -> str:
    """The same model and batch on one GPU."""
    found = NAME.fullmatch(way)
    assert found is not None
    alike = "".join(f"_{each}" for each in found["how"].split("_")[1:] if each in ("b8", "a4"))
    return f"{found['model']}_1{alike}"


def efficiency(row: dict[str, Any], rows: list[dict[str, Any]]) -> float | None:
    """Tokens a second as a share of so many times those of one GPU; None: one was not measured."""
    alone = next((each for each in rows if each["way"] == partner(row["way"])), None)
    return None if alone is None else row["tokens_per_s"] / (row["world"] * alone["tokens_per_s"])
