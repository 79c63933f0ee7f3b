"""torch.compile in all its forms: of a model, a part, a function, a step; TorchScript beside it."""

import torch
import torch.nn.functional as F
from torch import nn

torch._dynamo.config.suppress_errors = True


@torch.compile
def gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x**3)))


@torch.compile(mode="max-autotune", fullgraph=True, dynamic=False)
def loss_of(y, target):
    return F.mse_loss(y, target)


@torch.jit.script
def scaled(x, by: float):
    return x * by


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 128)
        self.down = nn.Linear(128, 64)
        self.down.compile()

    def forward(self, x):
        return self.down(gelu(self.up(x)))


plain = Net().cuda()
model = torch.compile(plain, mode="max-autotune", fullgraph=True)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
assert model._orig_mod is plain
assert next(iter(model.state_dict())) == "_orig_mod.up.weight"
assert isinstance(model, torch._dynamo.eval_frame.OptimizedModule)


@torch.compile(fullgraph=False)
def update():
    optimizer.step()


for _ in range(3):
    torch.compiler.cudagraph_mark_step_begin()
    x = torch.randn(8, 64, device="cuda")
    torch._dynamo.maybe_mark_dynamic(x, 0)
    loss = loss_of(scaled(model(x), 2.0), x)
    loss.backward()
    update()
    optimizer.zero_grad()
torch._dynamo.reset()
