"""Triton kernels of a script's own: launches by their compilation, without a driver."""

import math
import subprocess

import pytest

pytest.importorskip("triton", reason="a Triton kernel is compiled by Triton")

from undertorch.costs import kernels
from undertorch.gpus import find
from undertorch.records import Kind, Phase
from undertorch.steps.predict import predict

H200 = find("H200")
SCRIPT = "wild/triton_kernels.py"


@pytest.fixture(scope="module")
def recorded(recording):
    return recording(SCRIPT)


def launches(recorded):
    return {op.name: op for op in recorded.ops if op.name.startswith("triton::")}


def kernel(recorded, name):
    (found,) = kernels(launches(recorded)[f"triton::{name}"], H200)
    return found


def test_each_launch_is_an_op_at_its_line(recorded, line_of):
    found = launches(recorded)
    assert {name: op.where.line for name, op in found.items() if op.phase is not Phase.BACKWARD} == {
        "triton::add_kernel": line_of(SCRIPT, "add_kernel[lambda"),
        "triton::row_sum_kernel": line_of(SCRIPT, "row_sum_kernel[(100,)]"),
    }
    assert found["triton::add_kernel"].phase is Phase.FORWARD
    assert found["triton::copy_kernel"].phase is Phase.BACKWARD
    assert found["triton::copy_kernel"].node == "AddBackward"
    assert found["triton::copy_kernel"].where.line == line_of(SCRIPT, "Add.apply(model(x), x)")


def test_grid_and_block_are_those_of_the_call(recorded):
    """6,400 elements by 1,024 with Triton's four warps; 100 rows with the one warp that the call asks for."""
    add, rows = kernel(recorded, "add_kernel"), kernel(recorded, "row_sum_kernel")
    assert (add.grid, add.block) == ((math.ceil(6400 / 1024), 1, 1), (4 * 32, 1, 1))
    assert (rows.grid, rows.block) == ((100, 1, 1), (32, 1, 1))
    assert add.kind is Kind.CUSTOM


def test_an_autotuner_takes_the_first_configuration_that_fits(recorded):
    """64 warps are more threads than a block may have."""
    copy = kernel(recorded, "copy_kernel")
    assert (copy.grid, copy.block) == ((6400 // 256, 1, 1), (2 * 32, 1, 1))
    assert any("of 3 configurations of the Triton kernel copy_kernel" in a.what for a in recorded.assumptions)


def test_bytes_are_unknown_and_said_to_be(recorded):
    add = kernel(recorded, "add_kernel")
    assert (add.min_bytes_read, add.min_bytes_written, add.flops, add.bytes_origin) == (None, None, None, None)
    assert any("add_kernel" in a.what and "not known" in a.what for a in recorded.assumptions)


def test_a_launch_has_the_occupancy_of_its_compilation(recorded):
    step = predict(recorded, H200)
    (launch,) = (one for one in step.launches if one.kernel.name == "add_kernel")
    assert launch.kernel.registers is not None
    assert launch.occupancy is not None
    assert launch.time_us > 0


def test_registers_are_those_that_cuobjdump_reads(tmp_path):
    """The disassembler that Triton ships reads the same cubin."""
    import triton.backends.nvidia
    from triton.backends.compiler import GPUTarget
    from triton.compiler import compile as compiled
    from triton.compiler.compiler import ASTSource

    from triton_sources import scan_kernel
    from undertorch.compilers.cubin import registers

    tool = next(iter((tmp_path.__class__(triton.backends.nvidia.__file__).parent / "bin").glob("cuobjdump")))
    for block, warps in ((128, 1), (2048, 4)):
        source = ASTSource(scan_kernel, {"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": block})
        cubin = compiled(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["cubin"]
        file = tmp_path / f"{block}.cubin"
        file.write_bytes(cubin)
        shown = subprocess.run([tool, "-res-usage", file], capture_output=True, text=True, check=True).stdout
        assert f"REG:{registers(cubin)} " in shown
