"""What a process of a group does, in a group of one: by gloo, on the CPU."""

import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from tiny_training import ALONE, some_text, tiny
from undertorch.ops import choose
from undertorch.train import loop, rehearsal
from undertorch.train.checkpoint import latest
from undertorch.train.config import preset
from undertorch.train.distributed import Group, shared, spares
from undertorch.train.distributed import group as joined
from undertorch.train.loader import Rows
from undertorch.train.loop import CHECKPOINTS, Ended
from undertorch.train.model import made
from undertorch.train.report import Report
from undertorch.train.step import Step, own_stream
from undertorch.train.update import Update
from undertorch.train.update_graphs import SETTLED, UpdateGraphs

CPU = torch.device("cpu")


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Group(rank=0, world=1, device=CPU, grouped=True)
    dist.destroy_process_group()


def untied(settings):
    """A last layer with a weight of its own, which FSDP has in another group than the embedding."""
    return replace(settings, shape=replace(settings.shape, tied=False))


def rows(settings, count, seed):
    shape = (count, settings.batch, settings.shape.context + 1)
    drawn = torch.randint(settings.shape.vocabulary, shape, generator=torch.Generator().manual_seed(seed))
    return [Rows(tokens=each.numpy(), places=(0,) * settings.batch, epoch=0) for each in drawn]


def trained(settings, one, dtype=torch.float32, steps=2, look=lambda *_: None):
    """Losses, norms and the weights afterwards."""
    model = made(settings, CPU, dtype)
    called = shared(model, settings, one)
    look(called)
    found = []
    with Step(called, Update(model, settings), settings, one, own_stream(settings, one)) as step:
        for number in range(steps):
            found.append(step.gradients(rows(settings, settings.accumulate, number)))
            step.update(1e-3)
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return found, [p.detach().clone() for p in whole]


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize(("parallel", "sparing"), [("ddp", None), ("fsdp", None), ("fsdp", True)])
def test_a_group_of_one_trains_as_a_process_alone_bit_for_bit(group, parallel, sparing, accumulate):
    settings = untied(tiny(preset="nano-llama", layers=1, accumulate=accumulate))
    numbers, weights = trained(settings, ALONE)
    others, theirs = trained(replace(settings, parallel=parallel, sparing=sparing), group)
    assert others == numbers
    assert all(torch.equal(one, other) for one, other in zip(weights, theirs, strict=True))


def test_gradients_of_fewer_bits_are_summed_in_float32_over_microbatches_and_processes(group, monkeypatch):
    settings, summed, reduce = tiny(layers=1, accumulate=3), [], dist.all_reduce
    numbers, weights = trained(settings, ALONE, torch.bfloat16)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: (summed.append(tensor), reduce(tensor))[1])
    others, theirs = trained(settings, group, torch.bfloat16)
    assert others == numbers
    assert all(torch.equal(one, other) for one, other in zip(weights, theirs, strict=True))
    large = [tensor for tensor in summed if tensor.numel() > 2]
    assert len(large) == 2  # one a step
    assert {tensor.dtype for tensor in summed} == {torch.float32}
    assert large[0].numel() >= settings.shape.parameters


@pytest.mark.parametrize("accumulate", [1, 4])
def test_ddp_sums_over_processes_once_a_step(group, accumulate):
    settings, buckets = tiny(layers=1, accumulate=accumulate), []

    def look(called):
        assert isinstance(called, DistributedDataParallel)

        def hook(_, bucket):
            buckets.append(bucket.is_last())
            done = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        called.register_comm_hook(None, hook)

    trained(settings, group, look=look)
    assert buckets.count(True) == 2


@pytest.mark.parametrize(("sparing", "left"), [(None, [False, False, True]), (True, [True, True, True])])
def test_fsdp_sums_over_processes_at_the_last_microbatch_unless_it_spares_memory(group, sparing, left, monkeypatch):
    """What is summed stands in the shares' gradients."""
    settings, there = tiny(layers=1, accumulate=3, parallel="fsdp", sparing=sparing), []
    microbatch = Step._microbatch

    def then_look(step):
        microbatch(step)
        there.append(all(p.grad is not None for p in step.named.values()))

    monkeypatch.setattr(Step, "_microbatch", then_look)
    trained(settings, group, steps=1)
    assert there == left


def test_fsdp_spares_memory_where_a_gpu_has_no_room(monkeypatch):
    """llama-1b: 1.24e9 parameters, of 2 bytes gathered; with several microbatches 4 more of each gradient."""

    class Of:
        total_memory = 24 * 10**9

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Of)
    one = Group(rank=0, world=4, device=torch.device("cuda", 0), grouped=True)
    settings = replace(preset("llama-1b"), parallel="fsdp")
    assert not spares(settings, one)
    assert spares(replace(settings, accumulate=2), one)
    assert not spares(replace(settings, accumulate=2, sparing=False), one)
    assert spares(replace(settings, sparing=True), one)


@pytest.mark.parametrize(("fails", "ended"), [(False, "destroyed"), (True, "aborted")])
def test_a_group_of_gpus_that_fails_is_aborted(monkeypatch, fails, ended):
    """ncclCommDestroy waits for all processes of a host (NCCL's manual), and the others may wait in a sum."""
    ends = []
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(dist, "barrier", lambda: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: ends.append("destroyed"))
    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=SimpleNamespace(abort=lambda: ends.append("aborted"))))
    with pytest.raises(KeyError) if fails else nullcontext(), joined("cuda") as one:
        assert (one.rank, one.world, one.grouped) == (1, 2, True)
        if fails:
            raise KeyError
    assert ends == [ended]


def test_a_group_stops_after_the_step_that_one_of_it_had_been_asked_before(group, tmp_path):
    """All know of the same step: what each was asked goes over the processes with the loss."""
    settings = tiny(layers=1, steps=6)
    report = Report(folder=tmp_path, settings=settings, world=1, peak=None, speaks=True)
    run = loop.build(settings, some_text(tmp_path, settings), group, report)
    load = run.step.load

    def asked_then_load(rows):  # while a step computes
        if run.done == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        load(rows)

    run.step.load = asked_then_load
    assert loop.train(run) is Ended.TERMINATED
    assert run.done == 4
    assert latest(tmp_path / CHECKPOINTS)[0].progress.step == 4


class Products(TorchDispatchMode):
    """Notes which products are called, of which shapes."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function._schema.name in ("aten::mm", "aten::addmm", "aten::bmm"):
            given = tuple((tuple(a.shape), a.stride()) for a in args if isinstance(a, torch.Tensor))
            self.found.add((function._schema.name, given))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["nano", "nano-llama"])
def test_the_rehearsal_calls_every_product_of_the_run(name):
    settings = tiny(preset=name, layers=3)
    model = made(settings, CPU, torch.float32)
    tokens = torch.from_numpy(rows(settings, 1, 0)[0].tokens)
    with Products() as of_the_run:
        model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()).backward()
    with Products() as of_the_rehearsal:
        rehearsal.rehearsed(settings, CPU)
    assert of_the_rehearsal.found == of_the_run.found
    assert len(of_the_run.found) > 4


def test_a_process_of_a_group_measures_only_where_it_tells_the_others(group, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # as on a GPU
    assert not choose.may_measure()
    with choose.measuring():
        assert choose.may_measure()
    assert not choose.may_measure()


class Graph:
    """In the place of a CUDA graph."""

    def __init__(self):
        self.replays = self.resets = 0

    def replay(self):
        self.replays += 1

    def reset(self):
        self.resets += 1


@pytest.mark.parametrize("fails", [False, True])
def test_graphs_are_let_go_however_a_step_ends(fails):
    """NCCL's communicator ends when the graphs that hold it are gone."""
    settings = tiny()
    model = made(settings, CPU, torch.float32)
    graph = Graph()
    step = Step(model, Update(model, settings), settings, ALONE)
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext(), step:
        step.graphs = {"microbatch": graph}
        if fails:
            raise KeyboardInterrupt
    assert graph.resets == 1
    assert step.graphs is None


def test_an_update_is_replayed_where_its_gradients_lie_as_they_did(monkeypatch):
    eager, captured = [], []

    class Some:
        def step(self, gradients, norm):
            eager.append(gradients)

    def capture(self, gradients, norm):
        captured.append(Graph())
        return captured[-1]

    monkeypatch.setattr(UpdateGraphs, "_captured", capture)
    replays, here, there = UpdateGraphs(Some()), torch.zeros(3), torch.zeros(3)
    for _ in range(SETTLED + 3):
        replays.look({"a": here})
        replays(torch.zeros(()))
    assert (len(eager), captured[0].replays) == (SETTLED, 3)
    replays.look({"a": there})
    replays(torch.zeros(()))
    assert (len(eager), len(captured), captured[0].replays) == (SETTLED + 1, 1, 3)
    replays.let_go()
    assert captured[0].resets == 1
    assert not replays.graphs
