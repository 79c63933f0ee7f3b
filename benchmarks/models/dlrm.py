"""DLRM (Naumov et al. 2019, "Deep Learning Recommendation Model"), with the tables and layers of its Criteo Kaggle run.

python benchmarks/models/dlrm.py [--batch 2048] [--rows MOST] [--steps 3]

26 tables of embeddings, 34 million rows of 16; two small MLPs; dot products between all pairs of vectors.
"""

import argparse
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
"""Of each categorical feature's table."""
DENSE = 13
WIDTH = 16
BOTTOM = (DENSE, 512, 256, 64, WIDTH)
TOP = (512, 256, 1)


def mlp(widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for into, out in pairwise(widths):
        layers += [nn.Linear(into, out), nn.ReLU()]
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self, rows: tuple[int, ...] = ROWS):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(size, WIDTH, mode="sum") for size in rows])
        self.bottom = mlp(BOTTOM)
        vectors = len(rows) + 1
        pairs = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", pairs, persistent=False)
        self.top = mlp((WIDTH + pairs.shape[1], *TOP))[:-1]

    def forward(self, dense: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
        """`indices` and `offsets`: a row each table."""
        x = self.bottom(dense)
        found = [table(indices[i], offsets[i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([x, *found], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        chosen = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, chosen], dim=1)).squeeze(1)


def train(batch: int, rows: int | None, steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = tuple(min(size, rows or size) for size in ROWS)
    with torch.device(device):
        model = DLRM(sizes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")
    for _ in range(steps):
        dense = torch.rand(batch, DENSE, device=device)
        indices = torch.stack([torch.randint(size, (batch,), device=device) for size in sizes])
        offsets = torch.arange(batch, device=device).expand(len(sizes), -1)
        clicked = torch.randint(2, (batch,), device=device).float()
        loss = F.binary_cross_entropy_with_logits(model(dense, indices, offsets), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a DLRM on random clicks.")
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rows", type=int, help="the most that a table has")
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
