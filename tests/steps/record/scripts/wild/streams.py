"""A batch brought to the GPU on a side stream, and events that time the step."""

import torch
import torch.nn.functional as F
from torch import nn

features = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
model = nn.Sequential(*features, nn.Linear(16, 10))
model = model.cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Prefetcher:
    def __init__(self):
        self.stream = torch.cuda.Stream(priority=-1)
        self.preload()

    def preload(self):
        with torch.cuda.stream(self.stream):
            self.images = torch.randn(8, 3, 32, 32).pin_memory().cuda(non_blocking=True)
            self.labels = torch.randint(10, (8,)).cuda(non_blocking=True)
            self.images = self.images.float().div_(255.0)

    def following(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        images, labels = self.images, self.labels
        images.record_stream(torch.cuda.current_stream())
        self.preload()
        return images, labels


batches = Prefetcher()
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
side = torch.cuda.Stream()
for _ in range(3):
    images, labels = batches.following()
    start.record()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    end.record()
    with torch.cuda.stream(side), torch.cuda.device(0):
        torch.cuda.current_stream().wait_event(side.record_event())
    end.synchronize()
    torch.cuda.synchronize()
    assert f"{8 / start.elapsed_time(end):.1f} images/ms" == "8.0 images/ms"
    assert torch.cuda.max_memory_allocated() > 0
