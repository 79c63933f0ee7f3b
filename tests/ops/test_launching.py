"""Launches past Triton's bookkeeping are those that Triton would have made."""

from itertools import combinations

import pytest
import torch

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from undertorch.compilers.triton_driver import Driver, put_in_place  # noqa: E402
from undertorch.gpus import find  # noqa: E402
from undertorch.ops import launching  # noqa: E402
from undertorch.ops.launching import described, launch  # noqa: E402


@triton.jit
def moved(x, y, rows, stride, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """y = x, of some rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(x + row[:, None] * stride + column[None, :], mask=inside)
    tl.store(y + row[:, None] * width + column[None, :], value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def scaled(x, residual, y, rows, factor, RESIDUAL: tl.constexpr, BLOCK: tl.constexpr):
    """y = (x + residual) * factor."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < rows)
    if RESIDUAL:
        value += tl.load(residual + at, mask=at < rows)
    tl.store(y + at, value * factor, mask=at < rows)


CONSTANTS = {"ROWS": 1, "BLOCK": 64, "num_warps": 1}


def odd(tensor):
    """The same at an address that is no multiple of 16."""
    return torch.empty(tensor.numel() + 1, dtype=tensor.dtype)[1:].view(tensor.shape)


X = torch.zeros(4, 64)
CALLS = {
    "as usual": ((X, X, 4, 64, 64), CONSTANTS),
    "the same in other memory": ((X.clone(), X.clone(), 4, 64, 64), CONSTANTS),
    "other numbers of the same kinds": ((X, X, 5, 80, 48), CONSTANTS),
    "rows a multiple of 16": ((X, X, 32, 64, 64), CONSTANTS),
    "one row": ((X, X, 1, 64, 64), CONSTANTS),
    "no rows": ((X, X, 0, 64, 64), CONSTANTS),
    "more than 31 bits": ((X, X, 2**31 + 1, 64, 64), CONSTANTS),
    "fewer than none": ((X, X, -100, 64, 64), CONSTANTS),
    "fewer than none, a multiple of 16": ((X, X, -48, 64, 64), CONSTANTS),
    "minus one": ((X, X, -1, 64, 64), CONSTANTS),
    "an odd stride": ((X, X, 4, 65, 64), CONSTANTS),
    "bfloat16": ((X.bfloat16(), X.bfloat16(), 4, 64, 64), CONSTANTS),
    "into bfloat16": ((X, X.bfloat16(), 4, 64, 64), CONSTANTS),
    "from an odd address": ((odd(X), X, 4, 64, 64), CONSTANTS),
    "to an odd address": ((X, odd(X), 4, 64, 64), CONSTANTS),
    "another block": ((X, X, 4, 64, 64), CONSTANTS | {"BLOCK": 128}),
    "more warps": ((X, X, 4, 64, 64), CONSTANTS | {"num_warps": 2}),
    "constants in another order": ((X, X, 4, 64, 64), {"BLOCK": 1, "ROWS": 64, "num_warps": 1}),
}
"""Of moved."""


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """What Triton launches, on a driver without a GPU; tensors on the host say that they are on the first one."""
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(launching, "_COMPILED", {})
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: 0)
    for kernel in (moved, scaled):
        kernel.device_caches.clear()
    made = []
    undo = put_in_place(Driver(find("H200"), made.append, lambda name, count: None))
    yield made
    undo()
    for kernel in (moved, scaled):
        kernel.device_caches.clear()


def test_what_triton_compiles_apart_has_different_keys(launched):
    """Triton's own choice of kernel is the truth: under one key there may be one kernel only."""
    compiled = {name: moved[(1,)](*given, **constants) for name, (given, constants) in CALLS.items()}
    keys = {name: described(moved, given, constants)[0] for name, (given, constants) in CALLS.items()}
    for one, other in combinations(CALLS, 2):
        assert compiled[one] is compiled[other] or keys[one] != keys[other], (one, other)
    assert keys["as usual"] == keys["the same in other memory"] == keys["other numbers of the same kinds"]
    assert described(scaled, *CALLS["as usual"])[0] != keys["as usual"]


@pytest.mark.parametrize("residual", [X, None], ids=["with a residual", "without"])
def test_the_second_launch_is_as_triton_would_make_it(launched, residual):
    """The same kernel, grid, numbers and constants; addresses in the place of tensors."""
    given = (X, residual, X.clone(), 256, 1e-5)
    for _ in range(2):
        launch(scaled, (7, 2), *given, RESIDUAL=residual is not None, BLOCK=64, num_warps=2)
    first, second = launched
    for field in ("name", "grid", "block", "registers", "shared_bytes"):
        assert getattr(first, field) == getattr(second, field)
    assert list(first.arguments) == list(second.arguments)
    for name, before in first.arguments.items():
        now = second.arguments[name]
        assert now == (before.data_ptr() if isinstance(before, torch.Tensor) else before), name
    assert isinstance(second.arguments["x"], int)


def test_memory_of_the_host_is_known_by_its_address(launched, monkeypatch):
    """Triton asks the driver whether a GPU reaches it: so must each address that it has not been asked about."""
    ours, other = torch.zeros(4), torch.zeros(4)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: -1 if tensor.numel() == 4 else 0)
    key = described(moved, (X, ours, 4, 64, 64), CONSTANTS)[0]
    assert key == described(moved, (X.clone(), ours, 4, 64, 64), CONSTANTS)[0]
    assert key != described(moved, (X, other, 4, 64, 64), CONSTANTS)[0]
    assert described(moved, (ours, other, 4, 64, 64), CONSTANTS) is None


def test_hooks_see_every_launch(launched):
    """Profilers hang on them."""
    seen = []
    hooks = triton.knobs.runtime.launch_enter_hook
    given, constants = CALLS["as usual"]
    launch(moved, (4,), *given, **constants)
    hooks.add(seen.append)
    try:
        assert launching.is_watched()
        launch(moved, (4,), *given, **constants)
    finally:
        hooks.remove(seen.append)
    assert isinstance(launched[1].arguments["x"], torch.Tensor)  # by Triton's way, where its own launcher calls them
    assert not launching.is_watched()


def test_what_takes_the_place_of_tritons_run_sees_every_launch(launched, monkeypatch):
    """As `undertorch see` does on a GPU, to mark each line's launches."""
    run, marked = triton.runtime.jit.JITFunction.run, []

    def ranged(*given, **named):
        marked.append(given[0])
        return run(*given, **named)

    given, constants = CALLS["as usual"]
    launch(moved, (4,), *given, **constants)
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", ranged)
    launch(moved, (4,), *given, **constants)
    assert marked == [moved]


def test_tensors_on_the_host_are_left_to_triton(launched, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "get_device", lambda tensor: -1)
    given, constants = CALLS["as usual"]
    for _ in range(2):
        launch(moved, (4,), *given, **constants)
    assert all(isinstance(one.arguments["x"], torch.Tensor) for one in launched)
