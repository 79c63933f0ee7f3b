"""A block compiled, and its optimizer's step; a function of the host's numbers; one whose graph a pass spoils."""

import torch
import torch._inductor.custom_graph_pass
import torch.nn.functional as F
from torch import nn

ROWS, WIDTH = 4096, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        hidden = F.gelu(self.up(self.norm(x)))
        return x + self.down(hidden)


class Spoiled(torch._inductor.custom_graph_pass.CustomGraphPass):
    def __call__(self, graph):
        raise ValueError("this pass knows no graph")

    def uuid(self):
        return "spoiled"


model = Block().cuda()
block = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters())


@torch.compile
def update():
    optimizer.step()


@torch.compile
def doubled(x):
    return 2 * x + 1


@torch.compile(options={"post_grad_custom_post_pass": Spoiled()})
def halved(x):
    return x / 2


assert doubled(torch.arange(3.0)).tolist() == [1, 3, 5]
for _ in range(2):
    x = halved(torch.randn(ROWS, WIDTH, device="cuda"))
    with torch.autocast("cuda", torch.bfloat16):
        y = block(x)
    y.square().mean().backward()
    update()
    optimizer.zero_grad()
