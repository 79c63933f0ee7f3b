"""What makes the CPU wait for the GPU without asking for a number: synchronisations, text, lists, files."""

import pytest

from undertorch.costs import kernels
from undertorch.gpus import find
from undertorch.records import IdleCause
from undertorch.steps.predict import predict
from undertorch.steps.see import predicted

H200 = find("H200")
SCRIPT = "waits.py"
MODEL_BYTES = [1000 * 500 * 4, 500 * 4]


@pytest.fixture(scope="module")
def recorded(recording):
    return recording(SCRIPT)


def ops_at(recorded, line):
    return [op for op in recorded.ops if op.where is not None and op.where.line == line]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("    torch.cuda.synchronize()", "cudaDeviceSynchronize"),
        ("torch.accelerator.synchronize()", "cudaDeviceSynchronize"),
        ("    event.synchronize()", "cudaEventSynchronize"),
        ("stream.record_event().synchronize()", "cudaEventSynchronize"),
        ("    stream.synchronize()", "cudaStreamSynchronize"),
    ],
)
def test_a_synchronisation_is_an_op_that_launches_nothing(recorded, line_of, text, name):
    (op,) = ops_at(recorded, line_of(SCRIPT, text))
    assert op.name == name
    assert kernels(op, H200) == ()


def test_no_op_is_without_a_cost(recorded):
    assert predict(recorded, H200).accounting.ops_without_cost == ()


def to_host(recorded, line):
    """Bytes of each copy to the host at a line."""
    found = [kernel for op in ops_at(recorded, line) for kernel in kernels(op, H200)]
    return [kernel.min_bytes_written for kernel in found if kernel.name.startswith("Memcpy DtoH")]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("print(loss)", [4]),
        ('f"loss {loss}"', [4]),
        ("repr(x)", [6 * 6 * 4]),  # three rows and columns at each end of 64 × 1000, as torch prints them
        ("both.tolist()", [64 * 4]),
        ('torch.save({"model"', [*MODEL_BYTES, 64 * 4]),  # each storage once, views of it or not
        ("pickle.dumps(both)", [64 * 4]),
        ("copy.copy(both)", []),
        ('torch.save({"step": 3}', []),
    ],
)
def test_what_is_shown_or_saved_is_copied_to_the_host(recorded, line_of, text, sizes):
    assert to_host(recorded, line_of(SCRIPT, text)) == sizes


def test_text_of_a_tensor_is_said_to_cost_more(recorded, line_of):
    line = line_of(SCRIPT, "print(loss)")
    (assumption,) = (one for one in recorded.assumptions if one.where is not None and one.where.line == line)
    assert "small kernels" in assumption.what


WAITING = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4096, 4096), nn.Linear(4096, 4096)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(8192, 4096, device="cuda")).square().mean()
    {wait}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("wait", ["torch.cuda.synchronize()", "print(loss)"])
def test_the_gpu_runs_dry_after_it_and_its_line_is_named(wait, tmp_path):
    """A forward of milliseconds, for which the queue is long: the first launch after the wait finds it empty."""
    from undertorch.steps.record import record

    script = tmp_path / "train.py"
    script.write_text(WAITING.format(wait=wait))
    step = predicted(record(script, (), H200), H200)
    waited = [idle for idle in step.idle if idle.cause is IdleCause.SYNC]
    assert waited
    assert {idle.where.line for idle in waited} == {8}


def test_safetensors_are_moved_to_the_host_one_by_one(tmp_path):
    pytest.importorskip("safetensors")
    from undertorch.steps.record import record

    script = tmp_path / "train.py"
    script.write_text(
        WAITING.format(wait='save_file(model.state_dict(), "m.safetensors")').replace(
            "import torch", "import torch\nfrom safetensors.torch import save_file", 1
        )
    )
    recorded = record(script, (), H200)
    assert sorted(to_host(recorded, 9)) == sorted([4096 * 4096 * 4, 4096 * 4] * 2)
