"""Remedies that depend on what a line does: to follow the wrong one would make another fault."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import undertorch
from undertorch.checks.check import merged
from undertorch.compilers.nvrtc import nvrtc_version
from undertorch.records import FindingKind, Scope, Severity

pytestmark = pytest.mark.skipif(nvrtc_version() is None, reason="needs NVRTC: undertorch[cuda]")


def checked(body, *arguments, grid=2, block=32, parameters="float* x, float* y", **options):
    source = f"#include <assert.h>\n__global__ void k({parameters}) {{\n{body}\n}}"
    return undertorch.check(undertorch.cuda(source)["k"], grid, block, *arguments, **options)


def floats(count=64):
    return np.arange(count, dtype=np.float32)


def test_an_update_of_what_all_share_becomes_atomic():
    (finding,) = checked("x[0] += y[threadIdx.x];", floats(), floats()).findings
    assert "make the update of line 3 one atomic operation" in finding.remedy


def test_a_shift_in_place_is_no_update_to_be_made_atomic():
    """Each element has one writer; an atomic write would leave its neighbour's read where it is."""
    (finding,) = checked(
        "int i = blockIdx.x * 32 + threadIdx.x;\nif (i < 63) x[i] = x[i + 1];", floats(), floats()
    ).findings
    assert (finding.kind, finding.severity) == (FindingKind.RACE_GLOBAL, Severity.ERROR)
    assert not finding.remedy.startswith("make the update")


def test_blocks_that_all_write_one_result_are_not_told_to_add_it_up():
    """atomicAdd would sum what is meant to be stored."""
    (note,) = checked("y[threadIdx.x] = x[threadIdx.x];", floats(), floats()).findings
    assert note.severity is Severity.NOTE
    assert note.remedy == "let one block alone write in line 3, or give each block its own element"


def test_two_statements_of_one_line_want_a_barrier_between():
    body = "extern __shared__ float s[]; s[threadIdx.x] = x[threadIdx.x]; y[threadIdx.x] = s[63 - threadIdx.x];"
    (finding,) = checked(body, floats(), floats(), grid=1, block=64, dynamic_shared=256).findings
    assert finding.remedy.startswith("put __syncthreads() behind line 3")
    assert finding.remedy.endswith("between what it reads and writes")


def test_shared_memory_that_was_not_asked_for_wants_no_guard():
    body = "extern __shared__ float s[];\ns[threadIdx.x] = 1;\ny[threadIdx.x] = s[threadIdx.x];"
    (finding,) = checked(body, floats(), floats()).findings
    assert finding.kind is FindingKind.OUT_OF_BOUNDS
    assert "--shared BYTES" in finding.remedy


def test_a_tree_of_sums_without_barriers_wants_the_one_that_orders_its_warps_too():
    """s = 128 … 32 meet between warps, s = 16 … 1 inside one: __syncwarp() would order the last alone."""
    body = """__shared__ float s[256];
s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
for (int n = 128; n > 0; n >>= 1)
if (threadIdx.x < n) s[threadIdx.x] += s[threadIdx.x + n];
if (threadIdx.x == 0) y[0] = s[0];"""
    (finding,) = checked(body, floats(256), floats(1), grid=1, block=256).findings
    assert finding.scope is Scope.BLOCK
    assert "by warps of one block" in finding.message
    assert finding.remedy.startswith("put __syncthreads()")
    narrow = replace(finding, scope=Scope.WARP, remedy="put __syncwarp()")
    for met in ([finding, narrow], [narrow, finding]):  # whichever was met first
        (told,) = merged(met)
        assert (told.scope, told.remedy, told.count) == (Scope.BLOCK, finding.remedy, 2 * finding.count)


def test_lines_that_meet_between_blocks_and_inside_one_are_told_of_blocks():
    """__syncthreads() orders no block with another."""
    body = "x[blockIdx.x * 32 + threadIdx.x] = 1;\ny[blockIdx.x * 64 + threadIdx.x] = x[63 - threadIdx.x];"
    (finding,) = checked(body, floats(128), floats(128), grid=2, block=64).at_least(Severity.ERROR)
    assert finding.scope is Scope.GRID
    assert "by blocks" in finding.message
    assert "__syncthreads" not in finding.remedy


def test_what_was_found_prints_as_text_and_not_as_a_record():
    found = checked("x[0] += y[threadIdx.x];", floats(), floats())
    assert repr(found) == "<k (2, 1, 1) × (32, 1, 1): 1 error (sm_80 code as on A100-80GB)>"
    text = str(found)
    assert "error: race-global: race in global memory" in text
    assert "remedy: make the update of line 3 one atomic operation" in text
    assert "#include" not in text


def test_an_argument_that_is_none_wants_memory():
    (finding,) = checked("x[threadIdx.x] = 1;", None, floats()).findings
    assert finding.remedy.startswith("give memory for that argument")


def test_an_assertion_is_quoted_without_the_instruction_that_tells_of_it():
    (finding,) = checked("assert(threadIdx.x < 16);", floats(), floats()).findings
    assert finding.message == "an assertion does not hold; the launch ended here."
    assert "(16, 0, 0)" in finding.evidence
    assert "`threadIdx.x < 16`" in finding.evidence
    assert "__assertfail" not in finding.evidence


TEMPLATES = """
namespace ns {
template <typename T> __global__ void put(T* x) { x[0] = threadIdx.x; }
template __global__ void put<float>(float*);
template __global__ void put<int>(int*);
}
"""


def test_kernels_of_one_template_are_told_apart_and_their_arguments_have_names():
    found = undertorch.check(undertorch.cuda(TEMPLATES)["ns::put<int>"], 1, 32, np.zeros(1, np.int32))
    assert found.kernel == "ns::put<int>"
    assert " x[0] " in found.findings[0].evidence


def test_a_source_that_is_a_text_of_a_program_is_found_in_it():
    """The template above stands in this file: its third line is the one that races."""
    found = undertorch.check(undertorch.cuda(TEMPLATES)["ns::put<int>"], 1, 32, np.zeros(1, np.int32))
    place = found.standing(found.findings[0].place)
    assert place.file == __file__
    assert (
        Path(__file__).read_text().split("\n")[place.line - 1].startswith("template <typename T> __global__ void put")
    )


def test_a_source_that_is_put_together_is_found_where_it_is_compiled():
    kernels = undertorch.cuda(TEMPLATES.replace("put", "set"))
    found = undertorch.check(kernels["ns::set<int>"], 1, 32, np.zeros(1, np.int32))
    place = found.standing(found.findings[0].place)
    assert 'TEMPLATES.replace("put", "set")' in Path(__file__).read_text().split("\n")[place.line - 1]
