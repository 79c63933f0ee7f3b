"""GPT-2 124M whose forward and backward are captured as one CUDA graph and replayed (torch's notes on CUDA graphs).

python benchmarks/captured_step.py [--batch 8] [--sequence 1024] [--layers 12] [--steps 3]          (needs CUDA)
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent / "models"))
from gpt2 import GPT2, VOCABULARY


def train(batch: int, sequence: int, layers: int, steps: int) -> None:
    model = GPT2(layers=layers, context=sequence).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    tokens = torch.randint(VOCABULARY, (batch, sequence), device="cuda")
    targets = torch.randint(VOCABULARY, (batch, sequence), device="cuda")

    def forward_backward() -> torch.Tensor:
        # A graph holds no cast that autocast keeps for the next run.
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            loss = F.cross_entropy(model(tokens).view(-1, VOCABULARY), targets.view(-1))
        loss.backward()
        return loss

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            forward_backward()
    torch.cuda.current_stream().wait_stream(aside)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = forward_backward()
    for _ in range(steps):
        tokens.copy_(torch.randint(VOCABULARY, (batch, sequence), device="cuda"))
        targets.copy_(torch.randint(VOCABULARY, (batch, sequence), device="cuda"))
        graph.replay()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains GPT-2 124M, captured as a CUDA graph, on random tokens.")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
