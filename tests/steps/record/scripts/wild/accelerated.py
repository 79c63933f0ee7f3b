"""A loop on accelerate: mixed precision, accumulation, clipping."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
data = DataLoader(TensorDataset(torch.randn(64, 16), torch.randint(4, (64,))), batch_size=8, shuffle=True)
model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)
assert accelerator.device.type == "cuda"
for inputs, targets in data:
    with accelerator.accumulate(model):
        loss = F.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
accelerator.wait_for_everyone()
accelerator.print(accelerator.gather(loss.detach()).mean().item())
