"""What docs/machine.md shows is what happens."""

import re
from pathlib import Path

import pytest
import torch

from undertorch.simt import Fault

PAGE = (Path(__file__).parents[2] / "docs" / "machine.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names():
    """What the page's pieces of Python define, run one after the other."""
    found: dict = {}
    for piece in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(piece, "docs/machine.md", "exec"), found)
    return found


def test_the_first_kernel_scales(names):
    assert torch.equal(names["y"], 3 * torch.arange(1000.0))


def test_the_fault_reads_as_shown(names):
    with pytest.raises(Fault) as fault:
        names["scale"][8, 128](names["y"], names["x"], 3.0, 1010)
    shown = " ".join(re.search(r"```\nFault: (.*?)```", PAGE, re.DOTALL)[1].split())
    said = re.sub(r"0x[0-9a-f]+", "…", str(fault.value))
    assert " ".join(said.split()) == shown


def test_counters_have_what_is_said(names):
    """1000 reads and 1000 writes of 4 bytes: 32 warps, the last with 8 lanes, in 125 sectors each."""
    accesses = names["counters"].accesses
    assert [(a.requests, a.bytes, a.sectors) for a in accesses] == [(32, 4000, 125)] * 2
    assert any(line.thread_instructions for line in names["counters"].lines)


def test_the_operator_is_torchs(names):
    assert torch.equal(torch.ops.mine.scale(torch.arange(5.0), 2.0), 2 * torch.arange(5.0))
    assert torch.equal(names["scaled"](torch.arange(5.0), 2.0), 2 * torch.arange(5.0))
