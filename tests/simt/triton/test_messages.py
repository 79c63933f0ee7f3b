"""What Triton's kernels print, and what is said where they fail: with the line of this file."""

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import undertorch
from undertorch.simt import BadLaunch, Fault

pytestmark = pytest.mark.usefixtures("machine")
HERE = Path(__file__)


def line_of(mark):
    """The line that has a comment."""
    lines = HERE.read_text().split("\n")
    return next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


@triton.jit
def beyond_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(y + at, values)  # beyond


@triton.jit
def checked_kernel(x, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.device_assert(values >= 0, "a negative one")  # asserted
    tl.store(x + tl.arange(0, BLOCK), values + 1)


@triton.jit
def static_kernel(x, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 64, "too large a block")
    tl.store(x, BLOCK)


@triton.jit
def talking_kernel(x):
    block = tl.program_id(0)
    tl.device_print("value", tl.load(x + block))


def test_an_access_out_of_bounds_names_line_thread_and_parameter():
    with pytest.raises(Fault) as fault:
        beyond_kernel[(1,)](torch.ones(100), torch.ones(100), 100, BLOCK=128)
    assert (fault.value.kind, fault.value.file, fault.value.line) == ("out-of-bounds", str(HERE), line_of("beyond"))
    assert "just past the end of argument y (float32, 100 elements)" in str(fault.value)
    assert str(fault.value).endswith("tl.store(y + at, values)  # beyond")


def test_an_assertion_that_fails_is_a_fault_of_its_line():
    """Triton compiles assertions for `debug=True` (or TRITON_DEBUG=1) only."""
    x = torch.ones(64)
    checked_kernel[(1,)](x, BLOCK=64, debug=True)
    x[37] = -1
    with pytest.raises(Fault, match="a negative one") as fault:
        checked_kernel[(1,)](x, BLOCK=64, debug=True)
    assert (fault.value.kind, fault.value.line) == ("assert", line_of("asserted"))
    checked_kernel[(1,)](x, BLOCK=64)
    assert x[37] == 0


def test_a_static_assertion_is_tritons_own_error():
    static_kernel[(1,)](torch.ones(1), BLOCK=64)
    with pytest.raises(triton.CompilationError, match="too large a block"):
        static_kernel[(1,)](torch.ones(1), BLOCK=128)


def test_prints_come_in_the_order_of_blocks(capsys):
    talking_kernel[(3,)](torch.tensor([5.0, 6.0, 7.0]), num_warps=1)
    lines = capsys.readouterr().out.splitlines()
    firsts = list(dict.fromkeys(lines))  # each thread prints what it holds; here all hold the same
    assert [line.split("value: ")[1] for line in firsts] == ["5.000000", "6.000000", "7.000000"]
    assert [line.split(")")[0] for line in firsts] == [f"pid ({n}, 0, 0" for n in range(3)]


def test_a_kernel_of_the_machine_asks_for_it_outside(monkeypatch):
    x = torch.ones(4)
    compiled = talking_kernel[(1,)](x)
    with undertorch.machine():
        pass
    monkeypatch.setattr(triton.runtime.driver, "_active", _OtherDriver())
    with pytest.raises(BadLaunch, match=r"with undertorch\.machine\(\):"):
        compiled.run(1, 1, 1, 0, compiled.function, compiled.packed_metadata, None, None, None, x)


class _OtherDriver:
    """Stands for that of a real GPU."""
