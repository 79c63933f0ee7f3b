"""Kernels in CUDA C++ and PTX that a script launches by undertorch: launches at their lines, in operators too."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings", reason="CUDA C++ is compiled by NVRTC")

from undertorch.compilers.ptxas import programs, resources
from undertorch.costs import kernels
from undertorch.gpus import find
from undertorch.records import Kind, Phase
from undertorch.steps.predict import predict
from undertorch.steps.record import ScriptFailed, record

H200 = find("H200")
SCRIPT = "own_kernels.py"
HAS_PTXAS = bool(programs())


@pytest.fixture(scope="module")
def recorded(recording):
    return recording(SCRIPT)


def launches(recorded, name):
    return [op for op in recorded.ops if op.name == f"undertorch::{name}"]


def test_each_launch_is_an_op_at_its_line_in_its_phase(recorded, line_of):
    """The operator's backward runs it a second time, for the line that called the operator."""
    (by_hand,) = launches(recorded, "twice")
    forward, backward = launches(recorded, "scale")
    assert (by_hand.where.line, by_hand.phase) == (line_of(SCRIPT, "twice[(3, 5)"), Phase.OTHER)
    assert (forward.where.line, forward.phase) == (line_of(SCRIPT, "scale[-(-x.numel()"), Phase.FORWARD)
    assert [where.line for where in forward.chain] == [line_of(SCRIPT, "out = scaled(")]
    assert (backward.where.line, backward.phase) == (line_of(SCRIPT, "out = scaled("), Phase.BACKWARD)
    assert backward.forward is not None


def test_grid_block_and_shared_memory_are_those_of_the_call(recorded):
    """300 × 7 elements by 128; of `twice` 4,096 bytes are declared and 2,048 asked for at the launch."""
    (by_hand,) = kernels(launches(recorded, "twice")[0], H200)
    (scale,) = kernels(launches(recorded, "scale")[0], H200)
    assert (by_hand.grid, by_hand.block) == ((3, 5, 1), (32, 4, 1))
    assert (scale.grid, scale.block) == ((-(-300 * 7 // 128), 1, 1), (128, 1, 1))
    assert (scale.kind, scale.library, scale.name) == (Kind.CUSTOM, "undertorch", "scale")
    assert launches(recorded, "twice")[0].arg("<dynamic_shared_bytes>") == 2048
    assert by_hand.shared_bytes == (4096 + 2048 if HAS_PTXAS else None)
    assert scale.shared_bytes == (0 if HAS_PTXAS else None)


def test_bytes_are_unknown_and_said_to_be(recorded):
    step = predict(recorded, H200)
    found = [launch for launch in step.launches if launch.kernel.library == "undertorch"]
    assert len(found) == 3
    for launch in found:
        kernel = launch.kernel
        assert (kernel.min_bytes_read, kernel.min_bytes_written, kernel.flops, kernel.bytes_origin) == (None,) * 4
        assert launch.time_us > 0
        assert (launch.occupancy is not None) == HAS_PTXAS
    assert step.accounting.ops_without_cost == ()
    for name in ("twice", "scale"):
        assert any(f"kernel {name} " in a.what and "not known" in a.what for a in recorded.assumptions)


@pytest.mark.skipif(not HAS_PTXAS, reason="there is no ptxas")
def test_registers_are_those_in_the_cubin_that_ptxas_writes(tmp_path):
    from undertorch.compilers.cubin import registers
    from undertorch.compilers.nvrtc import compile_cuda

    ptx = compile_cuda(
        'extern "C" __global__ void one(int* y) { y[0] = 1; }\n'
        'extern "C" __global__ void many(float* y) { float k[24];\n'
        "  for (int i = 0; i < 24; i++) k[i] = y[i]; __syncthreads();\n"
        "  for (int i = 0; i < 24; i++) y[i] = k[23 - i]; }"
    )
    source, found = tmp_path / "kernel.ptx", {}
    source.write_text(ptx)
    for name in ("one", "many"):
        cubin = tmp_path / f"{name}.cubin"
        told = ("-arch=sm_90", "--entry", name, "-o", cubin, source)
        # Triton's two know other versions of PTX each.
        assert any(not subprocess.run([program, *told], check=False).returncode for program in programs())
        found[name] = registers(cubin.read_bytes())
        assert resources(ptx, name, (9, 0)).registers == found[name]
    assert found["many"] > 24 > found["one"]
    assert resources(ptx, "one", (7, 5)) is None  # the PTX is for 8.0 and later


REFUSED = """
import torch, undertorch
kernel = undertorch.cuda("__global__ void fill(float* y, float by) {{ y[threadIdx.x] = by; }}")["fill"]
y, host = torch.empty(64, device="cuda"), torch.empty(64)
{launch}
"""


@pytest.mark.parametrize(
    ("launch", "why"),
    [
        ("kernel[1, 64](y)", "The kernel takes 2 arguments, and 1 were given"),
        ("kernel[1, 2048](y, 1.0)", "2048 threads a block"),
    ],
)
def test_what_a_gpu_would_refuse_is_refused(launch, why, tmp_path, capfd):
    script = tmp_path / "train.py"
    script.write_text(REFUSED.format(launch=launch))
    with pytest.raises(ScriptFailed, match="BadLaunch"):
        record(script, (), H200)
    assert why in capfd.readouterr().err


SEEING = """
import io, json, torch, undertorch
kernel = undertorch.cuda("__global__ void fill(float* y, float by) { y[threadIdx.x] = by; }")["fill"]
head = torch.nn.Linear(8, 2)
def train():
    with undertorch.seeing(gpu="H200") as seen:
        head.cuda()
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(5):
            x = torch.randn(4, 8, device="cuda")
            kernel[1, 32](x, 2.0)
            head(x).sum().backward()
            torch.save(head.state_dict(), io.BytesIO())
            torch.cuda.synchronize()
            optimizer.step()
    print(json.dumps([[launch.kernel.name, launch.kernel.min_bytes] for launch in seen.step.launches]
                     + [[op.name, None] for op in seen.step.ops]))
train()
"""


def test_a_loop_in_its_own_process_is_seen_alike(tmp_path):
    """8 × 2 weights and 2 biases of 4 bytes go to the host."""
    script = Path(tmp_path / "loop.py")
    script.write_text(SEEING)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    found = [tuple(one) for one in json.loads(done.stdout.splitlines()[-1])]
    assert ("fill", None) in found
    assert [size for name, size in found if name.startswith("Memcpy DtoH")] == [8 * 2 * 4, 2 * 4]
    assert ("cudaDeviceSynchronize", None) in found
