"""Training that does something out of the ordinary, as its first argument says."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

how = sys.argv[1]
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = torch.ones(4, 8, device="cuda")


class Named(torch.Tensor):
    """A tensor by another name."""


class Wrapped(torch.Tensor):
    """A tensor that holds another, and has its own word on every op."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(arg.held if isinstance(arg, cls) else arg for arg in args), **(kwargs or {}))


class Flaky(torch.optim.SGD):
    """Its first step fails; the others are those of the class below."""

    steps = 0

    def step(self, closure=None):
        Flaky.steps += 1
        if Flaky.steps == 1:
            raise RuntimeError("flaky")
        return super().step(closure)


def train(forward, steps=3):
    for _ in range(steps):
        forward().backward()
        optimizer.step()
        optimizer.zero_grad()


if how == "subclass":

    def forward():
        named = batch.as_subclass(Named)
        assert isinstance(named, Named)
        assert isinstance(named * 2, Named)
        return model(named).sum()

    train(forward)
elif how == "wrapper":
    train(lambda: model(Wrapped(batch) * 3).sum())  # the wrapped op
elif how == "lazy":
    model = nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.LazyLinear(2)).cuda().double()
    model(batch.double())
    assert {(p.device.type, p.dtype, tuple(p.shape)) for p in model[2].parameters()} == {
        ("cuda", torch.float64, (2, 16)),
        ("cuda", torch.float64, (2,)),
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(lambda: model(batch.double()).sum())
elif how == "skip-init":
    model = nn.utils.skip_init(nn.Linear, 8, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(lambda: model(batch).sum())
elif how == "jvp":
    train(lambda: torch.func.jvp(model, (batch,), (batch,))[1].log_softmax(-1).sum())
elif how == "sparse":
    table = nn.Embedding(100, 10, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(table.parameters())
    train(lambda: table(torch.zeros(4, 2, dtype=torch.long, device="cuda")).sum())
elif how == "flex":
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    optimizer = torch.optim.SGD([projection := nn.Parameter(torch.ones(1, 2, 128, 16, device="cuda"))], lr=0.1)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 128, 128, device="cuda")
    train(lambda: flex_attention(projection, projection, projection, block_mask=mask).sum())
elif how == "ctc":
    lengths = torch.full((3,), 7), torch.full((3,), 2)
    targets = torch.ones(3, 2, dtype=torch.long, device="cuda")
    train(lambda: F.ctc_loss(model(torch.ones(7, 3, 8, device="cuda")).log_softmax(-1), targets, *lengths))
elif how == "memory":
    before = torch.cuda.memory_stats()
    small, large = torch.empty(3, device="cuda"), torch.empty(1 << 20, device="cuda")
    after = torch.cuda.memory_stats()

    def change(name):
        return after[name] - before[name]

    assert change("allocated_bytes.all.current") == 512 + (4 << 20)
    assert change("allocated_bytes.small_pool.current") == 512
    assert change("allocation.large_pool.current") == change("allocation.small_pool.current") == 1
    del large
    assert torch.cuda.memory_stats()["allocated_bytes.large_pool.freed"] == 4 << 20
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated()
    torch.cuda.memory._record_memory_history()
    assert torch.cuda.memory._snapshot()["segments"] == []
    torch.cuda.set_sync_debug_mode("warn")
    torch.cuda.profiler.start()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    try:
        torch.empty(1 << 40, device="cuda")
    except torch.OutOfMemoryError:
        train(lambda: model(batch).sum())
elif how == "too-large":
    torch.empty(1 << 40, device="cuda")
elif how == "types":
    torch.set_default_tensor_type(torch.cuda.FloatTensor)
    assert torch.ones(2).is_cuda
    assert torch.cuda.LongTensor([[1, 2]]).dtype is torch.int64
    assert torch.cuda.HalfTensor(2, 3).shape == (2, 3)
    assert isinstance(batch, torch.cuda.FloatTensor)
    assert not isinstance(batch, torch.cuda.LongTensor)
    assert batch.type("torch.cuda.DoubleTensor").dtype is batch.type(torch.cuda.DoubleTensor).dtype is torch.float64
    train(lambda: model(torch.cuda.FloatTensor(4, 8)).sum())
elif how == "checkpoints":
    train(lambda: checkpoint(model[2], checkpoint(model[0], batch, use_reentrant=False), use_reentrant=True).sum())
elif how == "saves-on-the-cpu":
    with torch.autograd.graph.save_on_cpu():
        train(lambda: model(batch).sum())
elif how == "second-gpu":
    model.to("cuda:1")
elif how == "nested":
    torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)], layout=torch.jagged, device="cuda")
elif how == "no-rule":
    torch.histc(batch).histogram(4)
elif how == "endless":
    loss = model(batch).sum()
    while loss > 0.5:  # the loop
        loss = loss * 0.9
    train(lambda: model(batch).sum())
elif how == "flaky":
    optimizer = Flaky(model.parameters(), lr=0.1)
    for _ in range(4):
        try:
            train(lambda: model(batch).sum(), steps=1)
        except RuntimeError:
            print("caught")
elif how == "raises-base":
    raise GeneratorExit
elif how == "status-70":
    os._exit(70)
elif how == "closes":
    sys.stdout.close()
    train(lambda: model(batch).sum())
elif how == "limits":
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    train(lambda: model(batch).sum())
elif how == "on-the-cpu":
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(lambda: model(torch.ones(4, 8)).sum())
else:
    train(lambda: model(batch).sum())
