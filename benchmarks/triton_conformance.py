"""Whole Triton kernels on a GPU and on the machine: the same PTX, compiled for sm_80, the same inputs.

python benchmarks/triton_conformance.py --compile [FILE]        the kernels' PTX and launches (needs Triton, no GPU)
python benchmarks/triton_conformance.py FOLDER                  record on this GPU, into FOLDER/h200_triton.json.gz
python benchmarks/triton_conformance.py FOLDER --on machine     the same with the machine in the GPU's place
python benchmarks/triton_conformance.py --check [FILE]          the machine against a recording (tests/golden's)

--compile runs tests/simt/triton/whole_kernels.py on the machine, checks its results against float64, and keeps what
Triton compiled and how it was launched in tests/golden/triton_kernels.json.gz. Recording hands that PTX to CUDA's
driver, which assembles it for its GPU; it needs torch and cuda-bindings, not Triton. After each case the file is
written again; --limit ends it in time. Each case runs twice; what differs between its runs is free.

--check says of each result, with tensor cores that add as this GPU's (mma="exact") and in float32 (mma="fast"), whether
its bits are the GPU's, and else how far it lies from them and the bound that its rule derives
(tests/simt/conformance/triton_bounds.py).
"""

import argparse
import base64
import dataclasses
import hashlib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from simt.conformance import launched, replay
from simt.conformance.launched import Addresses, Exactly, Launched, OnMachine, Sequence


class OnGpu:
    """Hands launches to CUDA's driver; memory is a torch tensor of bytes."""

    def __init__(self) -> None:
        from undertorch.simt.frontends.gpu import Modules

        self.modules = Modules()
        self.kept: list[Any] = []

    def memory(self, array: np.ndarray[Any, Any]) -> Any:
        import torch

        tensor = torch.from_numpy(array.reshape(-1).view(np.uint8)).cuda()
        self.kept.append((tensor, array))
        return tensor

    @staticmethod
    def address(tensor: Any) -> int:
        return int(tensor.data_ptr())

    @staticmethod
    def part(tensor: Any, offset: int) -> Any:
        return tensor[offset:]

    def read(self, tensor: Any) -> np.ndarray[Any, Any]:
        array = next(array for other, array in self.kept if other is tensor)
        return tensor.cpu().numpy().view(array.dtype).reshape(array.shape)  # type: ignore[no-any-return]

    def __call__(self, ptx: str, kernel: str, grid: Any, block: Any, arguments: Any, shared: int, _: Any) -> None:
        import torch

        from undertorch.simt.frontends.gpu import launch_on_gpu

        launch_on_gpu(ptx, kernel, grid, block, shared, arguments, device=0, modules=self.modules)
        torch.cuda.synchronize()


def launcher(where: str, mma: str = "exact") -> Any:
    from undertorch.gpus import find

    return OnGpu() if where == "gpu" else OnMachine(find("H200"), mma)


# -- compiling


def compile_all(path: Path) -> int:
    """Runs every case on the machine and keeps its PTX and launches."""
    import os

    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    import torch
    import triton

    import undertorch
    from simt.triton import whole_kernels

    texts: dict[str, str] = {}
    cases = []
    wrong = 0
    for one in whole_kernels.CASES:
        with undertorch.machine(gpu="H200", mma="exact"):
            sequence, tensors, before = listened(one, texts)
        right = one.right({name: numbers(t, before.get(name)) for name, t in tensors.items()})
        for name, wanted in right.items():
            got = tensors[name].double()
            apart = float((got - wanted.double()).abs().max() / wanted.double().abs().max())
            bad = not apart <= one.tolerance
            wrong += bad
            print(f"{one.name}.{name}: {apart:.1e} of the largest value{' WRONG' if bad else ''}")
        cases.append(sequence)
    content = {
        "what": "PTX of whole kernels as Triton wrote it for sm_80, and their launches; made by "
        "benchmarks/triton_conformance.py --compile",
        "triton": triton.__version__,
        "torch": torch.__version__,
        **launched.content_of(cases, texts),
    }
    replay.write(path, content)
    print(f"{path}: {len(cases)} cases, {len(texts)} kernels, {path.stat().st_size} bytes; {wrong} wrong")
    return int(wrong > 0)


def numbers(tensor: Any, before: Any) -> Any:
    """An input as it was, an output as it is; in float64 where it is a float."""
    value = tensor if before is None else before
    return value.double() if value.is_floating_point() else value.clone()


def listened(one: Any, texts: dict[str, str]) -> tuple[Sequence, dict[str, Any], dict[str, Any]]:
    """A case's launches, and its tensors: as they are now, and inputs as they were."""
    from triton.runtime import driver

    from undertorch.simt import launch

    fills: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    launches: list[Launched] = []
    before: dict[str, Any] = {}

    def new(name: str, fill: Any) -> Any:
        fills[name] = fill
        addresses = {other: tensor.data_ptr() for other, tensor in tensors.items()}
        tensors[name] = as_tensor(launched.filled(fill, addresses), getattr(fill, "dtype", "int64"))
        return tensors[name]

    def heard(ptx: str, kernel: str, grid: Any, block: Any, arguments: Any, **more: Any) -> Any:
        if not launches:
            note_inputs(fills, tensors)
            inputs = [name for name, fill in fills.items() if not isinstance(fill, launched.Filled)]
            before.update({name: tensors[name].clone() for name in inputs})
        digest = hashlib.sha256(ptx.encode()).hexdigest()[: replay.DIGITS]
        texts[digest] = ptx
        given = tuple(tuple(as_argument(a, tensors)) for a in arguments)
        launches.append(Launched(digest, kernel, tuple(grid), block[0], more["dynamic_shared"], given))
        return launch(ptx, kernel, grid, block, arguments, **more)

    driver.active.setting = dataclasses.replace(driver.active.setting, launched_by=heard)
    one.run(new)
    return Sequence(one.name, fills, tuple(launches)), tensors, before


def as_tensor(array: np.ndarray[Any, Any], dtype: str) -> Any:
    import torch

    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


def note_inputs(fills: dict[str, Any], tensors: dict[str, Any]) -> None:
    """What a case changed by hand before its first launch is kept as bytes."""
    import torch

    for name, fill in list(fills.items()):
        if isinstance(fill, Addresses):
            continue
        bits = tensors[name].view(torch.uint16) if fill.dtype == "bfloat16" else tensors[name]
        data = bits.contiguous().numpy().tobytes()
        if data != launched.filled(fill, {}).tobytes():
            fills[name] = Exactly(fill.shape, fill.dtype, base64.b64encode(data).decode())


def as_argument(value: Any, tensors: dict[str, Any]) -> list[Any]:
    if not hasattr(value, "untyped_storage"):
        return launched.described(value)
    start = value.untyped_storage().data_ptr()
    name = next(name for name, t in tensors.items() if t.untyped_storage().data_ptr() == start)
    return ["buffer", name, value.data_ptr() - start]


# -- recording


def record(where: str, folder: Path, limit: float) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    cases, texts, kernels = launched.sequences()
    path = folder / launched.GOLDEN.name
    results: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for one in cases:
        if time.monotonic() - began > limit:
            errors[one.name] = f"not run: {limit} s were over"
            continue
        try:
            first, second = (launched.ran(one, texts, launcher(where)) for _ in range(2))
        except Exception as error:  # the driver refused it, or the context is gone: told, and the others are tried
            errors[one.name] = f"{type(error).__name__}: {error}"[:400]
            continue
        results[one.name] = {
            "digest": one.digest(texts),
            "buffers": {n: base64.b64encode(a.tobytes()).decode() for n, a in first.items() if written(one, n, a)},
            "differs_between_runs": sorted(n for n in first if first[n].tobytes() != second[n].tobytes()),
        }
        content = {
            "what": "what whole Triton kernels (triton_kernels.json.gz) wrote; made by "
            "benchmarks/triton_conformance.py",
            **about(where),
            "triton": kernels["triton"],
            "seconds": round(time.monotonic() - began, 1),
            "results": results,
            "errors": errors,
        }
        replay.write(path, content)
        print(f"{time.monotonic() - began:6.1f} s  {one.name}", flush=True)
    for name, error in errors.items():
        print(f"FAILED {name}: {error}")
    print(f"{len(results)} of {len(cases)} cases; {path} has {path.stat().st_size if path.exists() else 0} bytes")
    return int(bool(errors))


def written(one: Sequence, name: str, array: np.ndarray[Any, Any]) -> bool:
    return array.tobytes() != launched.filled(one.buffers[name], {}).tobytes()


def about(where: str) -> dict[str, str]:
    from conformance import about as about_gpu

    return about_gpu(where)


# -- checking


def check(path: Path) -> int:
    """Every recorded result against the machine's; tests/golden's also into benchmarks/results/."""
    from results_file import Aim, write
    from simt.conformance.triton_bounds import verdicts

    golden = replay.read(path)
    cases, texts, kernels = launched.sequences()
    about = f"{golden['gpu']}, driver {golden['driver']}, {golden['date']}"
    print(f"{about}, PTX of Triton {golden['triton']}")
    found = [verdict for one in cases for verdict in verdicts(one, texts, golden)]
    for verdict in found:
        print(verdict.line())
    wrong = sum(not verdict.holds for verdict in found)
    same = sum(verdict.differ == 0 for verdict in found)
    print(f"{len(found)} results of {len(cases)} cases: {same} bit for bit, {len(found) - same - wrong} within their "
          f"bounds, {wrong} wrong")  # fmt: skip
    if path == launched.GOLDEN:
        rows: list[dict[str, object]] = [dataclasses.asdict(verdict) | {"holds": verdict.holds} for verdict in found]
        aim = Aim(what="results of whole Triton kernels that are the GPU's, or within a derived bound", aim="all",
                  got=f"{len(found) - wrong} of {len(found)}, {same} bit for bit", holds=wrong == 0)  # fmt: skip
        versions = {"triton": kernels["triton"], "numpy": np.__version__}
        write("triton_conformance", rows, [aim], versions, machine=about)
    return int(wrong > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--on", choices=("gpu", "machine"), default="gpu")
    parser.add_argument("--limit", type=float, default=110.0, help="seconds after which no other case is begun")
    parser.add_argument("--compile", nargs="?", const=launched.KERNELS, type=Path)
    parser.add_argument("--check", nargs="?", const=launched.GOLDEN, type=Path)
    given = parser.parse_args()
    if given.compile:
        return compile_all(given.compile)
    if given.check:
        if not given.check.exists():
            print(f"{given.check} is not there: no goldens are recorded yet. Record them on a GPU: see --help.")
            return 2
        return check(given.check)
    if given.folder is None:
        parser.error("a FOLDER is needed to record into")
    return record(given.on, given.folder, given.limit)


if __name__ == "__main__":
    sys.exit(main())
