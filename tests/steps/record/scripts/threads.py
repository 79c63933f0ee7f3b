"""Training with threads of its own, as its first argument says."""

import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

how = sys.argv[1]
model = nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = queue.Queue(2)


def load():
    for _ in range(6):
        batches.put(torch.ones(4, 8).cuda() * torch.tensor(2.0, device="cuda"))  # loading
    batches.put(None)


def train():
    for _ in range(3):
        model(torch.ones(4, 8, device="cuda")).sum().backward()
        optimizer.step()


if how == "prefetches":
    threading.Thread(target=load, daemon=True).start()
    while (batch := batches.get()) is not None:
        model(batch).sum().backward()
        optimizer.step()
elif how == "trains":
    threading.Thread(target=train).start()  # nobody joins it: Python waits for it at the end
elif how == "pool":
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            rows = list(pool.map(lambda row: torch.ones(4, 8).cuda() + row, range(16)))
            model(torch.cat(rows)).sum().backward()
            stepping = threading.Thread(target=optimizer.step)
            stepping.start()  # the update
            stepping.join()
else:
    train()
