"""Data- or tensor-parallel training of one process, as its first argument says."""

import os
import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

how = sys.argv[1]
if how != "bare":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="2" if how == "two" else "1")
if how != "plain":
    distributed.init_process_group("nccl", device_id=torch.device("cuda", 0) if how == "ddp" else None)
    assert distributed.get_backend() == "nccl"
    assert distributed.get_world_size() == 1
    distributed.barrier()
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).cuda()
if how == "ddp":
    model = DistributedDataParallel(model, device_ids=[0])
elif how == "fsdp":
    from torch.distributed.fsdp import fully_shard

    fully_shard(model)
elif how == "tensors":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    parallelize_module(model, init_device_mesh("cuda", (1,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if how != "plain":
    distributed.destroy_process_group()
