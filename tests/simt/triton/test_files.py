"""Triton's cache tells functions apart by text and line: what it kept of another folder's copy is found again, and
findings name the files that run now."""

import sys

import pytest
import torch
import triton

import undertorch

HELPERS = """
import triton
import triton.language as tl


@triton.jit
def add_to(out, value):
    tl.store(out, tl.load(out) + value)
"""
KERNELS = """
import helpers
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, mask=at < n, other=0.0))
    helpers.add_to(out, total)
    tl.store(out + 1, total)
"""


def places(folder, kernels, monkeypatch):
    """Files of the findings of a kernel that races in its own line and in that of a function of another file."""
    folder.mkdir()
    (folder / "helpers.py").write_text(HELPERS)
    (folder / f"{kernels}.py").write_text(KERNELS)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        for name in ("helpers", kernels):
            patch.delitem(sys.modules, name, raising=False)
        kernel = __import__(kernels).sum_kernel
        found = undertorch.check(kernel, (2,), torch.ones(64), torch.zeros(2), 64, BLOCK=32)
        for name in ("helpers", kernels):
            sys.modules.pop(name)
    return {finding.place.file for finding in found.findings}


@pytest.mark.parametrize("second", ["kernels", "renamed"])
def test_findings_name_the_files_that_run_not_those_that_were_compiled_before(second, tmp_path, monkeypatch):
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "cache"))
    for folder, kernels in (("first", "kernels"), ("second", second)):
        here = tmp_path / folder
        assert places(here, kernels, monkeypatch) == {str(here / "helpers.py"), str(here / f"{kernels}.py")}
    assert len(list((tmp_path / "cache").glob("*/sum_kernel.ptx"))) == 1, "compiled once"
