"""Data as people load it: a DataLoader with workers, pinned memory, a memory-mapped file, an evaluation."""

import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, CONTEXT = 50, 12
text = "the quick brown fox jumps over the lazy dog " * 20
letters = sorted(set(text))
encoded = torch.tensor([letters.index(letter) for letter in text], dtype=torch.long)
assert encoded.max().item() == len(letters) - 1

file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - it lives as long as the script
tokens = np.memmap(file, dtype=np.uint16, mode="w+", shape=(2000,))
tokens[:] = np.arange(2000) % VOCABULARY


class Letters(Dataset):
    def __len__(self):
        return len(encoded) - CONTEXT

    def __getitem__(self, index):
        return encoded[index : index + CONTEXT], encoded[index + 1 : index + CONTEXT + 1]


def batch():
    starts = torch.randint(len(tokens) - CONTEXT, (4,))
    x = torch.stack([torch.from_numpy(tokens[i : i + CONTEXT].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(tokens[i + 1 : i + CONTEXT + 1].astype(np.int64)) for i in starts])
    assert torch.equal((x[:, 1:]), y[:, :-1])
    return x.pin_memory().to("cuda", non_blocking=True), y.pin_memory().to("cuda", non_blocking=True)


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, VOCABULARY)

    def forward(self, x, y):
        return F.cross_entropy(self.table(x).flatten(0, 1), y.flatten())


model = torch.compile(Bigram()).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())


@torch.no_grad()
def evaluate():
    model.eval()
    losses = torch.zeros(2)
    for k in range(2):
        losses[k] = model(*batch()).item()
    model.train()
    return losses.mean().item()


for x, y in DataLoader(Letters(), batch_size=8, shuffle=True, num_workers=4, pin_memory=True, persistent_workers=True):
    assert x.shape == (8, CONTEXT)
    assert int(x.max()) < len(letters)
    optimizer.zero_grad()
    for inputs, targets in ((x.cuda(), y.cuda()), batch()):
        model(inputs, targets).backward()
    optimizer.step()
    assert evaluate() == 1.0
    with torch.inference_mode():
        assert F.dropout(torch.ones(2, 3, device="cuda") @ torch.ones(3, 4, device="cuda"), training=False).shape == (
            2,
            4,
        )
