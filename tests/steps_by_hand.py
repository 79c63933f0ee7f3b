"""A small, plausible Step written out by hand, for tests of what reads Steps. Its figures sum up in the head.

One linear model: norm, head, loss, backward, clip, update, a print. One launch has unknown bytes, one (a memset)
belongs to an Op without a line, one belongs to no Op at all.

    busy 1890 us = forward 400 + loss 100 + backward 950 + clip 20 + update 400 + other 20
    step 2000 us = busy 1890 + idle 110 (launch 10, sync 100)
    model.py:3 (norm) 300, model.py:4 (head) 900,
    train.py:9 (loss) 250, train.py:11 (clip) 20, train.py:12 (update) 400, no line 20
"""

from dataclasses import replace

from undertorch.records import (
    Accounting,
    Argument,
    Assumption,
    Bound,
    Dim3,
    Environment,
    Idle,
    IdleCause,
    Kernel,
    Kind,
    Launch,
    Limiter,
    Math,
    Memory,
    MemorySample,
    Op,
    Origin,
    Phase,
    Step,
    TensorRef,
    Where,
)

MODEL_PY = """\
class Model(nn.Module):
    def forward(self, x):
        h = self.norm(x)
        return self.head(h)
"""

TRAIN_PY = """\
import torch
from model import Model

model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)

for x, y in batches:
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(loss.item())
"""

NORM = Where(file="model.py", line=3, function="forward")
HEAD = Where(file="model.py", line=4, function="forward")
LOSS = Where(file="train.py", line=9, function="<module>")
CLIP = Where(file="train.py", line=11, function="<module>")
UPDATE = Where(file="train.py", line=12, function="<module>")
PRINT = Where(file="train.py", line=13, function="<module>")


def tensor(*shape: int, dtype: str = "bfloat16", storage: int = 0) -> TensorRef:
    """A contiguous tensor at the start of its storage."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return TensorRef(
        shape=shape,
        strides=tuple(reversed(strides)),
        dtype=dtype,
        device="cuda:0",
        storage=storage,
        offset=0,
        version=0,
    )


def op(number: int, name: str, where: Where | None, phase: Phase, forward: int | None = None) -> Op:
    """An Op with one input and one output of 1024 × 1024 bfloat16."""
    return Op(
        id=number,
        name=name,
        overload="default",
        where=where,
        phase=phase,
        microbatch=0,
        arguments=(Argument(name="input", value=tensor(1024, 1024, storage=number)),),
        outputs=(tensor(1024, 1024, storage=number + 100),),
        forward=forward,
    )


def kernel(
    name: str,
    kind: Kind = Kind.ELEMENTWISE,
    grid: Dim3 | None = (1024, 1, 1),
    block: Dim3 | None = (256, 1, 1),
    read: int | None = 0,
    written: int | None = 0,
    flops: int | None = 0,
    math: Math | None = None,
    library: str = "PyTorch",
    geometry: Origin = Origin.COMPUTED,
) -> Kernel:
    """A kernel whose geometry has an origin where it has a geometry."""
    return Kernel(
        name=name,
        kind=kind,
        library=library,
        grid=grid,
        block=block,
        geometry_origin=None if grid is None else geometry,
        registers=None if grid is None else 32,
        shared_bytes=None if grid is None else 0,
        resources_origin=None if grid is None else Origin.PREDICTED,
        min_bytes_read=read,
        min_bytes_written=written,
        flops=flops,
        bytes_origin=None if read is None else Origin.COMPUTED,
        math=math,
    )


def launch(
    run: Kernel,
    ops: tuple[int, ...],
    phase: Phase,
    start: float,
    time: float,
    bound: Bound | None = Bound.MEMORY,
    occupancy: float | None = 1.0,
    limiter: Limiter | None = Limiter.THREADS,
    stream: int = 7,
    device: int = 0,
) -> Launch:
    """A predicted launch; memory-bound at full occupancy unless said otherwise."""
    return Launch(
        kernel=run,
        ops=ops,
        phase=phase,
        device=device,
        stream=stream,
        start_us=start,
        time_us=time,
        time_origin=Origin.PREDICTED,
        bound=bound,
        occupancy=occupancy,
        limiter=limiter,
        occupancy_origin=None if occupancy is None else Origin.PREDICTED,
    )


def matmul(name: str) -> Kernel:
    """60 GFLOP in bfloat16 on tensor cores; its tile is a guess."""
    return kernel(
        name,
        Kind.MATMUL,
        grid=(132, 1, 1),
        block=(384, 1, 1),
        read=60_000_000,
        written=30_000_000,
        flops=60_000_000_000,
        math=Math.TENSOR_BF16,
        library="cuBLAS",
        geometry=Origin.PREDICTED,
    )


OPS = (
    op(0, "aten::native_layer_norm", NORM, Phase.FORWARD),
    op(1, "aten::addmm", HEAD, Phase.FORWARD),
    op(2, "aten::_log_softmax", LOSS, Phase.LOSS),
    op(3, "aten::_log_softmax_backward_data", LOSS, Phase.BACKWARD, forward=2),
    op(4, "aten::mm", HEAD, Phase.BACKWARD, forward=1),
    op(5, "aten::mm", HEAD, Phase.BACKWARD, forward=1),
    op(6, "aten::native_layer_norm_backward", NORM, Phase.BACKWARD, forward=0),
    op(7, "aten::_foreach_norm", CLIP, Phase.CLIP),
    op(8, "aten::_fused_adamw_", UPDATE, Phase.UPDATE),
    op(9, "aten::zero_", None, Phase.OTHER),
    op(10, "mylib::mystery", HEAD, Phase.FORWARD),
)

LAUNCHES = (
    launch(
        kernel("vectorized_layer_norm_kernel", Kind.NORM, read=200_000_000, written=200_000_000, flops=700_000_000),
        (0,),
        Phase.FORWARD,
        0,
        100,
    ),
    launch(
        matmul("nvjet_forward"),
        (1,),
        Phase.FORWARD,
        100,
        300,
        bound=Bound.COMPUTE,
        occupancy=0.1875,
        limiter=Limiter.SHARED,
    ),
    launch(
        kernel("cunn_SoftMaxForward<4>", Kind.SOFTMAX, read=150_000_000, written=150_000_000, flops=50_000_000),
        (2,),
        Phase.LOSS,
        400,
        100,
    ),
    launch(
        kernel("cunn_SoftMaxBackward<4>", Kind.SOFTMAX, read=300_000_000, written=150_000_000, flops=50_000_000),
        (3,),
        Phase.BACKWARD,
        500,
        150,
    ),
    launch(matmul("nvjet_backward"), (4,), Phase.BACKWARD, 650, 300, bound=Bound.COMPUTE, occupancy=0.1875),
    launch(matmul("nvjet_backward"), (5,), Phase.BACKWARD, 950, 300, bound=Bound.COMPUTE, occupancy=0.1875),
    launch(
        kernel("layer_norm_grad_input_kernel_vectorized", Kind.NORM, read=None, written=None, flops=None),
        (6,),
        Phase.BACKWARD,
        1250,
        200,
    ),
    launch(
        kernel("multi_tensor_apply_kernel", Kind.REDUCTION, grid=(8, 1, 1), read=1_000_000, written=100, flops=500_000),
        (7,),
        Phase.CLIP,
        1460,
        20,
        bound=Bound.LATENCY,
    ),
    launch(
        kernel("FusedAdamW", Kind.OPTIMIZER, block=(512, 1, 1), read=1_000_000_000, written=750_000_000, flops=10**9),
        (8,),
        Phase.UPDATE,
        1480,
        400,
    ),
    launch(
        kernel("Memset", Kind.MEMSET, grid=None, block=None, written=30_000_000, library="driver"),
        (9,),
        Phase.OTHER,
        1880,
        10,
        bound=None,
        occupancy=None,
        limiter=None,
    ),
    launch(
        kernel("somebodys_kernel", Kind.CUSTOM, grid=(1, 1, 1), read=None, written=None, flops=None, library="unknown"),
        (),
        Phase.OTHER,
        1890,
        10,
        bound=None,
        occupancy=None,
        limiter=None,
    ),
)

STEP = Step(
    gpu="H200",
    step_us=2000,
    time_origin=Origin.PREDICTED,
    samples=32,
    ops=OPS,
    launches=LAUNCHES,
    idle=(
        Idle(start_us=1450, time_us=10, cause=IdleCause.LAUNCH),
        Idle(start_us=1900, time_us=100, cause=IdleCause.SYNC, where=PRINT),
    ),
    memory=Memory(
        peak_bytes=30_400_000_000,
        peak_op=3,
        start_bytes=1_500_000_000,
        samples=(
            MemorySample(op=1, live_bytes=20_000_000_000),
            MemorySample(op=3, live_bytes=30_400_000_000),
        ),
        origin=Origin.COMPUTED,
    ),
    accounting=Accounting(
        launches=len(LAUNCHES),
        time_with_line=1870 / 1890,
        ops_without_cost=("mylib::mystery",),
        ops_without_cost_count=1,
        assumed=(
            Assumption(
                where=PRINT,
                what="`.item()` was answered with 1.0: no value was computed; pass --assume 13=VALUE for another.",
                count=3,
            ),
        ),
    ),
    environment=Environment(
        versions={"undertorch": "0.1.0", "python": "3.11.7", "torch": "2.13.0+cpu"},
        script="train.py",
        arguments=("--batch", "32"),
        step=2,
        sources={"model.py": MODEL_PY, "train.py": TRAIN_PY},
    ),
)
"""The step of the file's docstring."""

NOTHING = Step(
    gpu="H200",
    step_us=None,
    time_origin=Origin.PREDICTED,
    samples=None,
    ops=(),
    launches=(),
    memory=Memory(peak_bytes=None, peak_op=None, start_bytes=None, origin=Origin.COMPUTED),
    accounting=Accounting(launches=0, time_with_line=None),
    environment=Environment(script="train.py", step=1),
)
"""A step that launched nothing, of which nothing is known."""


def with_launches(*launches: Launch) -> Step:
    """STEP with other launches, and the accounting's count to match."""
    return replace(STEP, launches=launches, accounting=replace(STEP.accounting, launches=len(launches)))
