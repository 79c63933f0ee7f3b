"""float16 autocast with a GradScaler, an RNG seed, and questions to torch.cuda on the way."""

import torch
import torch.nn.functional as F
from torch import nn

assert torch.cuda.is_available()
assert torch.cuda.device_count() == 1
torch.cuda.set_device(0)
torch.cuda.manual_seed(7)
properties = torch.cuda.get_device_properties(0)
print(torch.cuda.get_device_name(), properties.multi_processor_count, torch.cuda.get_device_capability())
assert torch.version.cuda is not None
assert torch.cuda.is_bf16_supported()
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.benchmark = True

model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 5)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
side = torch.cuda.Stream()

for _ in range(3):
    begin.record()
    x = torch.randn(9, 20, device="cuda")
    y = torch.zeros(9, dtype=torch.long, device="cuda")
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.current_stream())
    end.record()
    torch.cuda.synchronize()
    begin.elapsed_time(end)
    used, free = torch.cuda.max_memory_allocated(), torch.cuda.mem_get_info()[0]
    assert 0 < used < free < properties.total_memory
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.empty_cache()
