"""Two optimizers that take turns, as in a GAN: a generator steps after the discriminator."""

import torch
import torch.nn.functional as F
from torch import nn

generator = nn.Linear(8, 16).cuda()
discriminator = nn.Linear(16, 1).cuda()
of_generator = torch.optim.Adam(generator.parameters())
of_discriminator = torch.optim.Adam(discriminator.parameters())
for _ in range(4):
    fake = generator(torch.randn(5, 8, device="cuda"))
    of_discriminator.zero_grad()
    F.softplus(discriminator(fake.detach())).mean().backward()
    of_discriminator.step()
    of_generator.zero_grad()
    F.softplus(-discriminator(fake)).mean().backward()
    of_generator.step()
