"""A step that takes all the advice there is, in float16 or bfloat16, as its first argument says."""

import sys
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import undertorch.ops

HALF = getattr(torch, sys.argv[1])
VOCABULARY = 576  # padded to a multiple of 64
WIDTH, HEADS = 64, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).split(WIDTH, dim=2))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if HALF is torch.bfloat16 else nullcontext():  # none on a V100
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.norm(x + self.out(y.transpose(1, 2).flatten(2)))


torch.set_float32_matmul_precision("high")
scaler = torch.amp.GradScaler(enabled=HALF is torch.float16)
tokens = torch.randint(0, VOCABULARY, (4, 32), device="cuda")
embedding = nn.Embedding(VOCABULARY, WIDTH, device="cuda")
blocks = [Block().cuda() for _ in range(3)]
head = nn.Linear(WIDTH, VOCABULARY, bias=False, device="cuda")
masters = nn.Linear(WIDTH, WIDTH, device="cuda")
for model in (embedding, *blocks, head, masters):
    if HALF is torch.bfloat16:
        model.to(torch.bfloat16)
optimizers = [
    torch.optim.AdamW(embedding.parameters(), fused=True),
    torch.optim.Adam(blocks[0].parameters(), fused=True),
    torch.optim.SGD(blocks[1].parameters(), lr=0.1, momentum=0.9, fused=True),
    torch.optim.Adagrad(blocks[2].parameters(), fused=True),
    torch.optim.RMSprop(head.parameters(), foreach=True),
    undertorch.ops.AdamW(masters.parameters()) if HALF is torch.bfloat16 else torch.optim.NAdam(masters.parameters()),
]
optimizers[-1].step = torch.compile(optimizers[-1].step)
first = torch.compile(blocks[0], mode="reduce-overhead")
second = torch.cuda.make_graphed_callables(blocks[1], (torch.randn(4, 32, WIDTH, device="cuda"),))
average = AveragedModel(head, multi_avg_fn=get_ema_multi_avg_fn(0.9))
emas, total = [p.detach().clone() for p in embedding.parameters()], torch.zeros((), device="cuda")


@torch.compile
def loss_of(x):
    whole = F.cross_entropy(head(x).flatten(0, 1), tokens.flatten())
    if HALF is torch.float16:
        return whole
    return whole + undertorch.ops.linear_cross_entropy(x.flatten(0, 1), head.weight, tokens.flatten())


for number in range(3):
    with torch.autocast("cuda", HALF):
        x = blocks[2](second(first(embedding(tokens))))
        loss = loss_of(masters(x))
    scaler.scale(loss).backward()
    total += torch.where(loss.detach() > 9, 9.0, loss.detach())
    for optimizer in optimizers[1:]:
        optimizer.step()
        optimizer.zero_grad()
    optimizer = optimizers[0]
    if HALF is torch.float16:
        scaler.step(optimizer)
        scaler.update()
    else:
        norm, limit = torch.nn.utils.get_total_norm([p.grad for p in embedding.parameters()]), 1.0
        optimizer.grad_scale = (norm / limit).clamp(min=1)
        optimizer.step()
    optimizer.zero_grad()
    average.update_parameters(head)
    torch._foreach_mul_(emas, 0.9)
    torch._foreach_add_(emas, list(embedding.parameters()), alpha=0.1)
    if number % 100 == 99:
        print(total.item())
        torch.save(head.state_dict(), "head.pt")
