"""What `--arg` says, as a launch's arguments: `f32[1024]`, `i32[8,8]=arange`, `f32[n]=x.npy`, `1024`, `0.5`, `none`."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from undertorch.simt.frontends.kernels import Kernel

DTYPES = {
    "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool",
}  # fmt: skip
ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:=(.*))?")
MOST_BYTES = 1 << 36


SPECS = {
    "bool": "bool", "char": "i8", "signed char": "i8", "unsigned char": "u8", "short": "i16", "unsigned short": "u16",
    "int": "i32", "unsigned int": "u32", "long": "i64", "unsigned long": "u64", "long long": "i64",
    "unsigned long long": "u64", "__half": "f16", "__nv_bfloat16": "bf16", "float": "f32", "double": "f64",
}  # fmt: skip
"""What a pointer to a C++ type is given."""


class BadArgument(Exception):
    """What is wrong with one, and what to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Of a launch."""

    values: tuple[object, ...]
    empty: tuple[int, ...]
    """Numbers of those that hold nothing at first."""


def arguments(specs: Sequence[str], seed: int = 0) -> Arguments:
    """Each spec's value; random contents by `seed`. Raises BadArgument."""
    random = np.random.default_rng(seed)
    values = tuple(argument(spec, random) for spec in specs)
    return Arguments(values=values, empty=tuple(n for n, spec in enumerate(specs) if spec.endswith("=empty")))


def named_arguments(specs: Sequence[str], seed: int = 0) -> tuple[list[object], dict[str, object]]:
    """Values of specs of which some name their parameter: `f32[64]`, `BLOCK=128`, `x=f32[64]=ones`.

    Raises BadArgument.
    """
    random = np.random.default_rng(seed)
    given: list[object] = []
    named: dict[str, object] = {}
    for spec in specs:
        found = re.fullmatch(r"([A-Za-z_]\w*)=(.+)", spec)
        if found is not None:
            named[found[1]] = argument(found[2], random)
        elif named:
            raise BadArgument(f"--arg {spec}: it stands behind one with a name; give those without first.")
        else:
            given.append(argument(spec, random))
    return given, named


def specs(kernel: "Kernel") -> tuple[str, ...]:
    """What could be given for each parameter of a kernel: `f32[N]`, `f32[N]=empty` of what it only writes, `N`, `1.0`.

    Where its name tells no C++ types a pointer is any integer of 64 bits, and is taken for one to float32.
    """
    from undertorch.simt.frontends.mangled import parameters
    from undertorch.simt.program import prepare
    from undertorch.simt.runtime.scalars import is_struct, takes_address

    program = prepare(kernel.file.text, kernel.name, "none")
    variables = program.flow.function.parameters
    types = parameters(kernel.name) or ()
    out = []
    for number, variable in enumerate(variables):
        type = types[number] if len(types) == len(variables) else None
        pointer = takes_address(variable) if type is None else type.pointee is not None
        if pointer:
            name = type.pointee.name if type is not None and type.pointee is not None else "float"
            only_written = number in program.written and number not in program.read
            out.append(f"{SPECS.get(name, 'u8')}[N]" + ("=empty" if only_written else ""))
        elif is_struct(variable):
            out.append("STRUCT")
        else:
            out.append("1.0" if variable.type is not None and variable.type.floating else "N")
    return tuple(out)


def fitted(kernel: "Kernel", values: Sequence[object]) -> tuple[object, ...]:
    """Where the kernel takes an integer, `1e3` is meant as one."""
    from undertorch.simt.program import prepare

    variables = prepare(kernel.file.text, kernel.name, "none").flow.function.parameters
    whole = [v.type is not None and v.type.kind in {"signed", "unsigned"} for v in variables]
    return tuple(
        int(value) if is_whole and isinstance(value, float) and value.is_integer() else value
        for value, is_whole in zip(values, whole, strict=True)
    )


def argument(spec: str, random: np.random.Generator) -> object:
    """One argument. Raises BadArgument."""
    if spec.lower() in {"none", "null"}:
        return None
    if spec.lower() in {"true", "false"}:
        return spec.lower() == "true"
    found = ARRAY.fullmatch(spec)
    if found is not None:
        return _array(spec, found[1], found[2], found[3], random)
    for kind in (lambda text: int(text, 0), float):
        try:
            number: int | float = kind(spec)
        except ValueError:
            continue
        return number
    if spec.startswith(("struct", "{")):
        raise BadArgument(
            f"--arg {spec}: structs by value cannot be written here; use undertorch.check() in Python and pass "
            "struct.pack(…)."
        )
    raise BadArgument(f"--arg {spec}: it is no array (f32[1024], i32[8,8]=arange, f32[64]=x.npy), number or none.")


def _array(spec: str, dtype: str, sizes: str, contents: str | None, random: np.random.Generator) -> object:
    if dtype != "bf16" and dtype not in DTYPES:
        raise BadArgument(f"--arg {spec}: there is no type {dtype}; types are {', '.join([*DTYPES, 'bf16'])}.")
    try:
        shape = tuple(int(size, 0) for size in sizes.split(","))
    except ValueError:
        shape = (-1,)
    if any(size < 0 for size in shape):
        raise BadArgument(f"--arg {spec}: [{sizes}] is no shape; give sizes with commas, such as [64,32].")
    if math.prod(shape) * 8 > MOST_BYTES:
        raise BadArgument(f"--arg {spec}: that is more than this machine's memory should hold; give a smaller shape.")
    if dtype == "bf16":
        return _bfloat16(spec, shape, contents, random)
    return _filled(spec, np.dtype(DTYPES[dtype]), shape, contents, random)


def _filled(
    spec: str, dtype: "np.dtype[Any]", shape: tuple[int, ...], contents: str | None, random: np.random.Generator
) -> "np.ndarray[Any, Any]":
    if contents in {"zeros", "empty"}:
        return np.zeros(shape, dtype)
    if contents == "ones":
        return np.ones(shape, dtype)
    if contents == "arange":
        return np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    if contents is not None and contents.endswith(".npy"):
        return _from_file(spec, dtype, shape, contents)
    if contents not in {None, "random"}:
        raise BadArgument(f"--arg {spec}: ={contents} is none of random, zeros, ones, arange, empty, file.npy.")
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    return random.integers(0, 100, shape).astype(dtype)


def _from_file(spec: str, dtype: "np.dtype[Any]", shape: tuple[int, ...], path: str) -> "np.ndarray[Any, Any]":
    try:
        found: np.ndarray[Any, Any] = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise BadArgument(f"--arg {spec}: {path} cannot be read as .npy: {error}.") from error
    if found.dtype != dtype or found.size != math.prod(shape):
        raise BadArgument(f"--arg {spec}: {path} holds {found.dtype}{list(found.shape)}; say so, or give another file.")
    return np.ascontiguousarray(found).reshape(shape)


def _bfloat16(spec: str, shape: tuple[int, ...], contents: str | None, random: np.random.Generator) -> object:
    try:
        import torch
    except ImportError:
        raise BadArgument(f"--arg {spec}: bf16 needs torch: pip install 'undertorch[torch]'.") from None
    return torch.from_numpy(_filled(spec, np.dtype(np.float32), shape, contents, random)).to(torch.bfloat16)
