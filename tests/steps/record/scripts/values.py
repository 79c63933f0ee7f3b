"""Everything a loop asks of its tensors: numbers, truths, lists, arrays, text, shapes that hang on values."""

import math

import torch
from torch import nn

model = nn.Linear(10, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = math.inf

for step in range(3):
    x = torch.randn(6, 10, device="cuda")
    out = model(x)
    loss = out.square().mean()
    if loss > 2.0:
        loss = loss * torch.sin(loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    value = loss.item()
    assert math.isfinite(value)
    best = min(best, value)
    if torch.isnan(loss).any() or not torch.isfinite(out).all():
        raise RuntimeError("the loss is not finite")
    print(f"step {step}: loss {loss:.3f}")
    print(f"of {out}")
    rows = out.argmax(-1).tolist()
    assert len(rows) == 6
    assert len(out.argmax(0)[:1].tolist()) == 1
    array = out.detach().cpu().numpy()
    assert array.shape == (6, 4)
    kept = out[out > 0]
    places = torch.nonzero(out[:, 0])
    assert places.shape[1] == 1
    totals = torch.zeros(2)
    totals[0] = loss
    zeros = torch.zeros(3, device="cuda")
    assert zeros.sum().item() >= 0
    assert zeros[0].item() == 0
    assert torch.tensor(2.5, device="cuda").item() == 2.5
