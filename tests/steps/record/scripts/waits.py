"""All that makes the CPU wait for the GPU, besides asking for a value; and what saving copies to the host."""

import copy
import io
import pickle

import torch
from torch import nn

model = nn.Linear(1000, 500).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
event, stream = torch.cuda.Event(), torch.cuda.current_stream()
both = torch.zeros(64, device="cuda")

for _ in range(3):
    x = torch.randn(64, 1000, device="cuda")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    event.record()
    event.synchronize()
    stream.synchronize()
    torch.accelerator.synchronize()
    stream.record_event().synchronize()
    print(loss)
    text = f"loss {loss}"
    shown = repr(x)
    rows = both.tolist()
    torch.save({"model": model.state_dict(), "again": [model.weight], "halves": (both[:32], both[32:])}, io.BytesIO())
    pickle.dumps(both)
    again = copy.copy(both)
    torch.save({"step": 3}, io.BytesIO())
