"""Layers of all sorts: bags, recurrent ones, convolutions grouped and transposed, norms, resampling."""

import torch
import torch.nn.functional as F
from torch import nn


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(1000, 32, mode="mean")
        self.lstm = nn.LSTM(32, 64, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True)
        self.gru = nn.GRU(128, 64)
        self.cell = nn.LSTMCell(64, 64)

    def forward(self, tokens, offsets):
        bags = self.bag(tokens, offsets).view(4, 4, 32)
        packed = nn.utils.rnn.pack_padded_sequence(bags, [4, 3, 2, 1], batch_first=True)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        states, _ = self.gru(states.transpose(0, 1))
        return self.cell(states[-1])[0]


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1, bias=False)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.grouped = nn.Conv2d(32, 64, 3, padding=1, groups=4)
        self.norms = nn.Sequential(nn.GroupNorm(8, 64), nn.BatchNorm2d(64), nn.InstanceNorm2d(64))
        self.larger = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.back = nn.ConvTranspose2d(64, 16, 4, 2, 1)

    def forward(self, images):
        x = self.norms(self.grouped(self.depthwise(self.first(F.pad(images, (1, 1, 1, 1), mode="reflect")))))
        x = self.larger(F.max_pool2d(x, 2))
        x = F.interpolate(x, scale_factor=0.5, mode="nearest")
        return F.adaptive_avg_pool2d(self.back(x), 2).flatten(1)


sequences, images = Sequences().cuda(), Images().cuda()
head = nn.Linear(64 + 64, 10).cuda()
parameters = [*sequences.parameters(), *images.parameters(), *head.parameters()]
optimizer = torch.optim.RMSprop(parameters, lr=1e-3)
for _ in range(3):
    tokens = torch.randint(1000, (64,), device="cuda")
    offsets = torch.arange(0, 64, 4, device="cuda")
    seen = images(torch.randn(4, 3, 30, 30, device="cuda"))
    read = sequences(tokens, offsets)
    loss = F.cross_entropy(head(torch.cat((seen, read), 1)), torch.zeros(4, dtype=torch.long, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
