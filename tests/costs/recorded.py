"""What an H200 launched for single Ops and for one GPT-2 step, as pairs of Ops and kernels to hold costs against.

`single_ops()` and `edge_ops()` read h200_ops.json.gz and h200_edge_ops.json.gz under tests/golden, whose Ops were
written down with their arguments. `gpt2_step()` reads the profiler's trace h200_gpt2_train.json.gz: it has sizes,
strides, dtypes and numbers of arguments, but neither their names nor the results; those come from ATen's schemas and
from meta tensors. Ops over lists whose tensors the profiler did not describe (foreach, fused) are left out;
`gpt2_lists` has what they launched.
"""

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from undertorch.records import Argument, Dim3, Gpu, Kernel, Math, Op, Phase, TensorRef, Value

GOLDEN = Path(__file__).parent.parent / "golden"
RECORDED_TORCH = "2.11.0+cu130"
"""Of the GPT-2 step."""

H200 = Gpu(
    name="H200",
    full_name="NVIDIA H200",
    vendor="NVIDIA",
    architecture="Hopper",
    compute_capability=(9, 0),
    verified=True,
    sms=132,
    cuda_cores_per_sm=128,
    boost_clock_mhz=1980,
    base_clock_mhz=None,
    memory_bytes=150109880320,
    l2_bytes=50 << 20,
    memory_bandwidth=4.8e12,
    peaks={
        Math.FP64: 33.5e12,
        Math.FP32: 67e12,
        Math.TENSOR_FP64: 66.9e12,
        Math.TENSOR_TF32: 494.7e12,
        Math.TENSOR_FP16: 989.4e12,
        Math.TENSOR_BF16: 989.4e12,
        Math.TENSOR_FP8: 1978.9e12,
        Math.TENSOR_INT8: 1978.9e12,
    },
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    registers_per_sm=65536,
    registers_per_block=65536,
    shared_per_sm=233472,
    shared_per_block=49152,
    shared_per_block_optin=232448,
    shared_reserved_per_block=1024,
)
"""What decides geometry as the recorded trace's `deviceProperties` say; bandwidth and peak from NVIDIA's data sheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKernel:
    """One thing that the GPU did."""

    name: str
    """As the profiler prints it, up to 400 characters."""
    category: str
    """`kernel`, `gpu_memcpy` or `gpu_memset`."""
    grid: Dim3 | None
    block: Dim3 | None
    registers: int | None
    shared: int | None
    """Bytes of a block, static and dynamic."""
    bytes: int | None
    """Of a memcpy or memset."""
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Ops that ran one after the other, and what the GPU did for them together, in order."""

    name: str
    family: str
    ops: tuple[Op, ...]
    kernels: tuple[RecordedKernel, ...]


@cache
def single_ops() -> tuple[Case, ...]:
    """Every case of the sweep over single Ops."""
    return _cases("h200_ops.json.gz")


@cache
def edge_ops() -> tuple[Case, ...]:
    """Rarer dtypes, strides, alignments and sizes of element-by-element Ops, copies, reductions and lists."""
    return _cases("h200_edge_ops.json.gz")


def _cases(file_name: str) -> tuple[Case, ...]:
    with gzip.open(GOLDEN / file_name) as file:
        content = json.load(file)
    torch = content["machine"]["torch"]
    cases = (msgspec.convert(case, Case) for case in content["cases"])
    return tuple(replace(case, ops=tuple(_as_called(op, torch) for op in case.ops)) for case in cases)


def _as_called(op: Op, torch: str) -> Op:
    """The sweep ran with torch's defaults: TF32 in cuDNN's convolutions, not in matmuls."""
    return replace(op, torch=torch, tf32="conv" in op.name)


def named(names: Iterable[str], cases: Iterable[Case] | None = None) -> tuple[Case, ...]:
    """The cases all of whose Ops have one of these names (`aten::sum`), or begin with one that ends in `*`."""
    exact = {name for name in names if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    chosen = single_ops() if cases is None else cases
    return tuple(
        case
        for case in chosen
        if all(op.name in exact or (bool(prefixes) and op.name.startswith(prefixes)) for op in case.ops)
    )


def stem(name: str) -> tuple[str, tuple[str, ...]]:
    """A kernel's bare name and the whole numbers that its template arguments begin with.

    `void at::native::reduce_kernel<512, 1, …>(…)` and `reduce_kernel<512, 1, sum>` both are `reduce_kernel`, 512, 1.
    """
    bare = re.sub(r"^void ", "", name.replace("(anonymous namespace)::", ""))
    found = re.match(r"[\w:]+", bare)
    if found is None:
        return bare, ()
    numbers = re.match(r"<((?:\d+(?:, |(?=>)))*)", bare[found.end() :])
    leading = tuple(n for n in numbers.group(1).split(", ") if n) if numbers else ()
    return found.group().rsplit("::", 1)[-1], leading


def differences(predicted: Iterable[Kernel], recorded: Iterable[RecordedKernel]) -> list[str]:
    """Where predicted kernels differ from recorded ones: number, name, grid, block, shared memory, memset bytes."""
    ours, theirs = list(predicted), list(recorded)
    if len(ours) != len(theirs):
        return [f"{len(ours)} kernels {[k.name for k in ours]} for {len(theirs)} {[stem(k.name)[0] for k in theirs]}"]
    return [line for a, b in zip(ours, theirs, strict=True) for line in _differences(a, b)]


def _differences(ours: Kernel, theirs: RecordedKernel) -> Iterator[str]:
    if theirs.category != "kernel":
        kind = "Memset" if theirs.category == "gpu_memset" else " ".join(theirs.name.split()[:2])
        if " ".join(ours.name.split()[:2]) != kind:
            yield f"{ours.name} for {kind}"
        if ours.min_bytes_written != theirs.bytes:
            yield f"{ours.name}: {ours.min_bytes_written} bytes for {theirs.bytes}"
        return
    (name, numbers), (their_name, their_numbers) = stem(ours.name), stem(theirs.name)
    if name != their_name or (numbers and their_numbers and numbers != their_numbers):
        yield f"{ours.name} for {their_name}{their_numbers}"
    for what, a, b in (
        ("grid", ours.grid, theirs.grid),
        ("block", ours.block, theirs.block),
        ("shared memory", ours.shared_bytes, theirs.shared),
    ):
        if a != b:
            yield f"{ours.name}: {what} {a} for {b}"


PROFILER_DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "bool": "bool",
    "unsigned char": "uint8",
}


@cache
def gpt2_step() -> tuple[Case, ...]:
    """One Op a case: each call that a dispatch mode sees (the outermost that is no composite) and that launched."""
    cases = []
    for call, kernels in _gpt2_work():
        op = _op(call)
        if op is not None:
            cases.append(Case(name=f"{op.name} {op.id}", family="gpt2", ops=(op,), kernels=kernels))
    return tuple(cases)


def gpt2_lists(name: str) -> tuple[RecordedKernel, ...]:
    """What the step's calls of an Op over lists launched, in order; the profiler did not describe their tensors."""
    return tuple(kernel for call, kernels in _gpt2_work() if call["name"] == name for kernel in kernels)


@cache
def _gpt2_work() -> tuple[tuple[dict[str, Any], tuple[RecordedKernel, ...]], ...]:
    """The calls in order, each with what it launched."""
    with gzip.open(GOLDEN / "h200_gpt2_train.json.gz") as file:
        events = json.load(file)["traceEvents"]
    outer = _outermost([event for event in events if event.get("cat") == "cpu_op"])
    calls: dict[int, dict[str, Any]] = {}
    work: dict[int, list[RecordedKernel]] = {}
    for event in sorted(events, key=lambda event: event["ts"]):
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            call = outer[event["args"]["External id"]]
            number = call["args"]["External id"]
            calls[number] = call
            work.setdefault(number, []).append(_kernel(event))
    return tuple((calls[number], tuple(work[number])) for number in sorted(work))


def _outermost(calls: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """By its number, for each call the outermost around it (or itself) that a dispatch mode sees."""
    found = {}
    stacks: dict[int, list[dict[str, Any]]] = {}
    for call in sorted(calls, key=lambda event: (event["ts"], -event["dur"])):
        stack = stacks.setdefault(call["tid"], [])
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= call["ts"]:
            stack.pop()
        stack.append(call)
        seen = next(
            (each for each in stack if each["name"].startswith("aten::") and not _composite(each["name"])), call
        )
        found[call["args"]["External id"]] = seen
    return found


@cache
def _composite(name: str) -> bool:
    """Whether autograd takes the Op apart before a dispatch mode sees it."""
    import torch

    packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
    overload = f"{name}.{packet.overloads()[0]}".removesuffix(".default")
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload, "CompositeImplicitAutograd")


def _kernel(event: dict[str, Any]) -> RecordedKernel:
    args = event["args"]
    return RecordedKernel(
        name=event["name"],
        category=event["cat"],
        grid=tuple(args["grid"]) if "grid" in args else None,
        block=tuple(args["block"]) if "block" in args else None,
        registers=args.get("registers per thread"),
        shared=args.get("shared memory"),
        bytes=args.get("bytes"),
        us=event["dur"],
    )


def _op(event: dict[str, Any]) -> Op | None:
    """The call as an Op; None where the profiler did not describe its tensors."""
    args = event["args"]
    columns = (args["Input type"], args["Input Dims"], args["Input Strides"], args["Concrete Inputs"])
    values = [_value(index, *described) for index, described in enumerate(zip(*columns, strict=True))]
    if any(value is ... for value in values):
        return None
    overload, declared = _schema(event["name"], values)
    arguments = tuple(
        # The profiler leaves strings out.
        Argument(name=one.name, value=one.default_value if value is None and one.has_default_value() else value)
        for one, value in zip(declared, values, strict=True)
    )
    return Op(
        id=args["External id"],
        name=event["name"],
        overload=overload,
        where=None,
        phase=Phase.OTHER,
        arguments=arguments,
        outputs=_results(event["name"], overload, arguments),
        torch=RECORDED_TORCH,
    )


def _value(index: int, kind: str, shape: Any, strides: Any, concrete: str) -> Any:
    """One argument; `...` for a list of tensors that the profiler did not describe."""
    if kind == "TensorList":
        if not shape:
            return ...
        described = enumerate(zip(shape, strides, strict=True))
        return tuple(_tensor(100 * index + i, "c10::BFloat16", *one) for i, one in described)
    # A number that stands for a tensor travels as a double of no dimensions; the step has no other doubles.
    if kind == "double" and not shape:
        return 1.0
    if kind in PROFILER_DTYPES:
        return _tensor(index, kind, shape, strides)
    if concrete == "":
        return None
    if concrete in ("True", "False"):
        return concrete == "True"
    if concrete.startswith("["):
        return tuple(json.loads(concrete.lower()))
    return float(concrete) if "." in concrete or "e" in concrete else int(concrete)


def _tensor(storage: int, kind: str, shape: list[int], strides: list[int]) -> TensorRef:
    return TensorRef(
        shape=tuple(shape),
        strides=tuple(strides),
        dtype=PROFILER_DTYPES[kind],
        device="cuda:0",
        storage=storage,
        offset=0,
        version=0,
    )


def _schema(name: str, values: list[Value]) -> tuple[str, list[Any]]:
    """The overload that takes such arguments, and how it declares them."""
    import torch

    for schema in torch._C._jit_get_schemas_for_operator(name):
        if len(schema.arguments) == len(values) and all(
            _fits(argument, value) for argument, value in zip(schema.arguments, values, strict=True)
        ):
            return schema.overload_name or "default", schema.arguments
    raise LookupError(f"no overload of {name} takes {values}")


def _fits(argument: Any, value: Value) -> bool:
    kind = str(argument.type)
    if value is None:
        # An undefined tensor is described as nothing.
        return "Optional" in kind or argument.has_default_value() or kind in ("str", "Generator", "Tensor")
    if isinstance(value, TensorRef):
        return "Tensor" in kind and "List" not in kind
    if isinstance(value, tuple):
        return "List" in kind
    return "List" not in kind and (kind != "Tensor" or isinstance(value, float))


def _results(name: str, overload: str, arguments: tuple[Argument, ...]) -> tuple[TensorRef | None, ...]:
    """What the Op answers: the tensor that it writes, or what torch answers for meta tensors."""
    import torch

    packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
    operator = getattr(packet, overload)
    for given, declared in zip(arguments, operator._schema.arguments, strict=True):
        if declared.alias_info is not None and declared.alias_info.is_write and isinstance(given.value, TensorRef):
            return (given.value,)
    declared = operator._schema.arguments
    positional = [
        torch.empty(0, device="meta") if given.value is None and str(one.type) == "Tensor" else _meta(given.value)
        for given, one in zip(arguments, declared, strict=True)
        if not one.kwarg_only
    ]
    by_name = {given.name: _meta(given.value) for given, one in zip(arguments, declared, strict=True) if one.kwarg_only}
    made = operator(*positional, **by_name)
    flat = made if isinstance(made, tuple | list) else (made,)
    return tuple(_from_meta(1000 + i, t) if isinstance(t, torch.Tensor) else None for i, t in enumerate(flat))


def _meta(value: Value) -> Any:
    import torch

    if isinstance(value, TensorRef):
        return torch.empty_strided(value.shape, value.strides, dtype=getattr(torch, value.dtype), device="meta")
    return [_meta(v) for v in value] if isinstance(value, tuple) else value


def _from_meta(storage: int, tensor: Any) -> TensorRef:
    return TensorRef(
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device="cuda:0",
        storage=storage,
        offset=0,
        version=0,
    )
