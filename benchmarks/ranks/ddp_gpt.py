"""GPT-2 124M on several GPUs with DistributedDataParallel.

torchrun --nproc-per-node 2 benchmarks/ranks/ddp_gpt.py [--batch 8] [--sequence 1024] [--layers 12] [--steps 3]
"""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from gpt2 import GPT2, VOCABULARY


def train(batch: int, sequence: int, layers: int, steps: int) -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(GPT2(layers=layers, context=sequence).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    try:
        for _ in range(steps):
            window = torch.randint(VOCABULARY, (batch, sequence + 1), device=device)
            tokens, targets = window[:, :-1], window[:, 1:]
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(tokens).view(-1, VOCABULARY), targets.reshape(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    finally:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains GPT-2 124M on random tokens, on several GPUs.")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
