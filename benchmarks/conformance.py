"""The machine against a GPU, form by form: what an H200 answers to every instruction form, and the machine's answers.

python benchmarks/conformance.py FOLDER                record on this GPU, into FOLDER/h200_ptx.json.gz
python benchmarks/conformance.py FOLDER --on machine   the same with the machine in the GPU's place: tries the script
python benchmarks/conformance.py --check [FILE]        the machine against a recording (tests/golden's)
python benchmarks/conformance.py --assemble            every kernel by ptxas, for sm_90: what a GPU's driver will do
python benchmarks/conformance.py --count               the machine against the PTX ISA's definitions; writes results/

With --group tensor all of these are about tensor cores and their moves: FOLDER/h200_tensor.json.gz, which keeps the
bits of floating sums, since each generation of GPUs adds in its own way. --check tells how many of them the machine's
model of this GPU (mma="exact") gives bit for bit.

PTX is loaded by the driver (cuModuleLoadData), for sm_80 where a form exists there and else for sm_90. Recording runs
in a process of its own, which is started again behind a launch that kills it: a fault ends a CUDA context. FOLDER also
gets h200_ptx_bits.npz, all bits, for whoever has to find out why something differs; it is not kept.
"""

import argparse
import datetime
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from simt.conformance import replay

PATIENCE = 60
"""Seconds for one launch, its compilation included."""
MOST_DEATHS = 20


def gpu_launcher() -> Any:
    import torch

    from undertorch.simt.frontends.gpu import Modules, launch_on_gpu

    modules: dict[str, Modules] = {}

    def launch(ptx: str, kernel: str, grid: Any, block: Any, arguments: Any, shared: int) -> None:
        given = [
            torch.from_numpy(a.reshape(-1).view(np.uint8)).cuda() if isinstance(a, np.ndarray) else a for a in arguments
        ]
        modules.clear()
        keep = modules.setdefault(ptx, Modules())
        launch_on_gpu(ptx, kernel, grid, block, shared, given, device=0, modules=keep)
        torch.cuda.synchronize()
        for array, tensor in zip(arguments, given, strict=True):
            if isinstance(array, np.ndarray):
                array.reshape(-1).view(np.uint8)[:] = tensor.cpu().numpy()

    return launch


def launcher(where: str) -> Any:
    if where == "gpu":
        return gpu_launcher()
    from undertorch.gpus import find

    return replay.machine(find("H200"))


def record_part(where: str, folder: Path, done: set[str], group: str) -> None:
    """The child: a line for each item before it is launched, and its results behind it."""
    launch = launcher(where)
    everything: dict[str, np.ndarray[Any, Any]] = {}
    with (folder / "log.jsonl").open("a") as log:
        for name, item in replay.everything(group):
            if name in done:
                continue
            log.write(json.dumps({"starts": name}) + "\n")
            log.flush()
            found = {}
            try:
                for result in replay.results(item, launch):
                    found[result.name] = replay.summary(result)
                    everything[result.name] = result.bits
            except Exception as error:  # the driver refused it, or the context is gone: both are told
                log.write(json.dumps({"ends": name, "error": f"{type(error).__name__}: {error}"[:400]}) + "\n")
                log.flush()
                if where == "gpu" and not context_lives():
                    break
                continue
            log.write(json.dumps({"ends": name, "found": found, "kernel": replay.digest(item)}) + "\n")
            log.flush()
    part = len(list(folder.glob("bits*.npz")))
    np.savez_compressed(folder / f"bits{part}.npz", **{f"{n}": v for n, v in everything.items()})  # type: ignore[arg-type]


def context_lives() -> bool:
    import torch

    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").cpu()
    except RuntimeError:
        return False
    return True


def read_kernels(folder: Path) -> dict[str, str]:
    """The digest of each kernel that ran."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return {entry["ends"]: entry["kernel"] for entry in entries if "kernel" in entry}


def read_log(folder: Path) -> tuple[dict[str, Any], dict[str, str], str | None]:
    """Results, errors by item, and what was started and did not end."""
    found: dict[str, Any] = {}
    errors: dict[str, str] = {}
    open_: str | None = None
    path = folder / "log.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        entry = json.loads(line)
        if "starts" in entry:
            open_ = entry["starts"]
            continue
        open_ = None
        errors[entry["ends"]] = entry.get("error", "")
        found |= entry.get("found", {})
    return found, errors, open_


def record(where: str, folder: Path, group: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for old in (folder / "log.jsonl", *folder.glob("bits*.npz")):
        old.unlink(missing_ok=True)
    began, names = time.monotonic(), [name for name, _ in replay.everything(group)]
    for _ in range(MOST_DEATHS):
        _, ended, _ = read_log(folder)
        if len(ended) == len(names):
            break
        command = [sys.executable, __file__, str(folder), "--on", where, "--group", group, "--part"]
        child = subprocess.Popen(command)
        last, since = "", time.monotonic()
        while child.poll() is None:
            time.sleep(0.2)
            _, _, running = read_log(folder)
            if running != last:
                last, since = running or "", time.monotonic()
            elif running and time.monotonic() - since > PATIENCE:
                child.kill()
        _, ended, running = read_log(folder)
        if running is not None:
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps({"ends": running, "error": f"the process ended with {child.wait()}"}) + "\n")
    found, ended, _ = read_log(folder)
    errors = {name: error for name, error in ended.items() if error}
    content = {
        "what": "results of every PTX form and of whole kernels: hashes of bits (raw, and with NaN made one where "
        "that differs), and the bits of approximations; made by benchmarks/conformance.py",
        **about(where),
        "seconds": round(time.monotonic() - began, 1),
        "kernels": read_kernels(folder),
        "results": found,
        "errors": errors,
    }
    path = folder / replay.GOLDENS[group].name
    replay.write(path, content)
    arrays: dict[str, Any] = {}
    for part in folder.glob("bits*.npz"):
        with np.load(part) as loaded:
            arrays |= dict(loaded)
        part.unlink()
    np.savez_compressed(folder / f"h200_{group}_bits.npz", **arrays)
    (folder / "log.jsonl").unlink(missing_ok=True)
    print(f"{len(found)} results of {len(names)} launches in {content['seconds']} s")
    print(f"{path} has {path.stat().st_size} bytes")
    for name, error in errors.items():
        print(f"FAILED {name}: {error}")
    return int(bool(errors) or len(ended) < len(names))


def about(where: str) -> dict[str, str]:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    if where == "machine":
        return {"gpu": "none: undertorch's machine", "date": date, "driver": "none", "torch": "none"}
    import torch

    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {"gpu": torch.cuda.get_device_name(0), "date": date, "driver": driver, "torch": torch.__version__}


def check(path: Path, group: str) -> int:
    """Every recorded result against the machine's."""
    golden = replay.read(path)
    launch = launcher("machine")
    counts: Counter[str] = Counter()
    worst: dict[str, int] = {}
    for name, item in replay.everything(group):
        if golden["kernels"].get(name) != replay.digest(item):
            print(f"not recorded as it is now: {name}")
            counts["not recorded"] += 1
            continue
        for result in replay.results(item, launch):
            if result.name not in golden["results"]:
                counts["not recorded"] += 1
                continue
            if group == "tensor" and result.bounded:
                differs = replay.told_apart(result, golden["results"][result.name])
                kind = "layout differs" if name.startswith("fragment") else "differs"
                counts[kind if differs.any() else "exact"] += 1
                if differs.any():
                    tiles = "" if name.startswith("fragment") else f" ({replay.by_tile(differs)})"
                    print(f"{kind} in {differs.sum()} of {differs.size}: {result.name}{tiles}")
                continue
            verdict = replay.compared(result, golden["results"][result.name])
            counts[verdict.held] += 1
            if verdict.held == "bounded":
                worst[verdict.name] = verdict.ulps
            elif verdict.held != "exact":
                print(f"{verdict.held}: {verdict.name}")
    for name, far in sorted(worst.items(), key=lambda pair: -pair[1]):
        print(f"{far} ulp: {name}")
    print(f"{golden['gpu']}, driver {golden['driver']}, {golden['date']}: {dict(counts)}")
    return int(counts["differs"] > 0)


def assemble(group: str) -> int:
    """Whether NVIDIA's assembler takes every kernel."""
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        for name, item in replay.everything(group):
            file.write_text(item.ptx)
            command = ["ptxas", "-O1", "-arch=sm_90", "-o", f"{folder}/kernel.cubin", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                refused += 1
                print(f"{name}: {done.stderr.splitlines()[0]}")
    print(f"{refused} kernels refused")
    return int(refused > 0)


def count() -> int:
    """How many forms are held to their definitions."""
    import llvmlite

    from results_file import Aim, write
    from simt.conformance.against import held_forms

    held = held_forms()
    kinds = Counter(held.values())
    rows: list[dict[str, object]] = [
        {"row": pattern, "forms": sum(c.values()), **c} for pattern, c in sorted(by_row(held).items())
    ]
    left = sorted(opcode for opcode, how in held.items() if how == "not tried")
    wrong = sorted(opcode for opcode, how in held.items() if how == "wrong")
    total = len(held)
    aims = [
        Aim(what="forms of the table that ptxas takes, held against the PTX ISA's definitions", aim=f"all {total}",
            got=f"{kinds['exact']} bit for bit, {kinds['bounded']} within the stated error; "
            f"not tried: {', '.join(left) or 'none'}", holds=total == kinds["exact"] + kinds["bounded"]),
        Aim(what="forms with a wrong result", aim="none", got=", ".join(wrong[:20]) or "none", holds=not wrong),
    ]  # fmt: skip
    golden = replay.GOLDEN
    aims.append(
        Aim(what="forms held against a GPU's answers", aim="all", holds=golden.exists(),
            got=f"see --check ({replay.read()['gpu']})" if golden.exists() else "none recorded yet")
    )  # fmt: skip
    write("conformance", rows, aims, {"python": platform.python_version(), "numpy": np.__version__,
                                      "llvmlite": llvmlite.__version__, "ptxas": "13.0"})  # fmt: skip
    return 0


def by_row(held: dict[str, str]) -> dict[str, Counter[str]]:
    from undertorch.simt.ptx.opcodes import match

    rows: dict[str, Counter[str]] = {}
    for opcode, how in held.items():
        found = match(opcode)
        assert found is not None
        rows.setdefault(found.form.pattern, Counter())[how] += 1
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--on", choices=("gpu", "machine"), default="gpu")
    parser.add_argument("--group", choices=tuple(replay.GOLDENS), default="ptx")
    parser.add_argument("--check", nargs="?", const=Path(), type=Path)
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--assemble", action="store_true")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.check:
        path = replay.GOLDENS[given.group] if given.check == Path() else given.check
        if not path.exists():
            print(f"{path} is not there: no goldens are recorded yet. Record them on a GPU: see --help.")
            return 2
        return check(path, given.group)
    if given.assemble:
        return assemble(given.group)
    if given.count:
        return count()
    if given.folder is None:
        parser.error("a FOLDER is needed to record into")
    if given.part:
        record_part(given.on, given.folder, set(read_log(given.folder)[1]), given.group)
        return 0
    return record(given.on, given.folder, given.group)


if __name__ == "__main__":
    sys.exit(main())
