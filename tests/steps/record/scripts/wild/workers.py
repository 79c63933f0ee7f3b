"""A stream of texts, sharded over workers that stay, collated by hand, into pinned memory."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WORKERS = 4


class Texts(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        assert worker.num_workers == WORKERS
        assert self.opened, "worker_init_fn was not called"
        for number in range(worker.id, 64, worker.num_workers):
            yield [number] * (number % 7 + 1), number % 10


def collate(rows):
    tokens = torch.zeros(len(rows), max(len(row) for row, _ in rows), dtype=torch.long)
    for number, (row, _) in enumerate(rows):
        tokens[number, : len(row)] = torch.tensor(row)
    return {"tokens": tokens, "label": torch.tensor([label for _, label in rows])}


def open_files(worker):
    np.random.seed(torch.initial_seed() % 2**32)
    get_worker_info().dataset.opened = True


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.head = nn.Linear(32, 10)

    def forward(self, tokens):
        return self.head(self.embed(tokens).mean(1))


def main():
    loader = DataLoader(
        Texts(),
        batch_size=8,
        num_workers=WORKERS,
        pin_memory=True,
        persistent_workers=True,
        prefetch_factor=4,
        multiprocessing_context="spawn",
        timeout=30,
        collate_fn=collate,
        worker_init_fn=open_files,
    )
    assert loader.num_workers == WORKERS
    model = Classifier().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        batches = 0
        for batch in loader:
            assert batch["tokens"].is_pinned()
            assert not batch["tokens"].clone().is_pinned()
            assert sorted(batch["tokens"][:, 0].tolist()) == list(range(batches * 32, batches * 32 + 32, WORKERS))
            batches += 1
            tokens, label = (value.cuda(non_blocking=True) for value in batch.values())
            loss = F.cross_entropy(model(tokens), label)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        assert batches == 2, "a second epoch of persistent workers begins again"


if __name__ == "__main__":
    main()
