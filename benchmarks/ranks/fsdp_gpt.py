"""GPT-2 124M on several GPUs, its parameters sharded (FSDP2, `fully_shard`).

torchrun --nproc-per-node 2 benchmarks/ranks/fsdp_gpt.py [--batch 8] [--sequence 1024] [--layers 12] [--steps 3]
"""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from gpt2 import GPT2, VOCABULARY


def train(batch: int, sequence: int, layers: int, steps: int) -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)  # every rank keeps its shard of the same model
    model = GPT2(layers=layers, context=sequence).to(device)
    model.head.weight = nn.Parameter(model.head.weight.detach().clone())  # a tied weight would lie in two groups
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    try:
        for _ in range(steps):
            window = torch.randint(VOCABULARY, (batch, sequence + 1), device=device)
            tokens, targets = window[:, :-1], window[:, 1:]
            loss = F.cross_entropy(model(tokens).view(-1, VOCABULARY).float(), targets.reshape(-1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains GPT-2 124M on random tokens, sharded over several GPUs.")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
