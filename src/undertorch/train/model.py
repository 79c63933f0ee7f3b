"""GPT-2 and Llama in one file, on undertorch.ops.

Both are a stream of rows to which each block adds twice: what attention found, and what the MLP made of it. The
addition and the norm that follows it are one kernel here, so a branch is handed on beside the stream, and added where
it is normalised. The last layer and the loss are one op as well, in which the logits never exist whole.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from undertorch import ops
from undertorch.train.config import Settings, Shape
from undertorch.train.layers import Tie, heads, linear, linear_gelu

NO_TARGET = -1
"""A target that the loss leaves out."""
STD = 0.02
"""Of the weights at the beginning (Radford et al. 2019); of those that write into the stream over √(2 · layers)."""
ROPE_BASE = {"llama": 500_000.0}
"""Llama 3's config.json, `rope_theta`."""


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q @ kᵀ / √width, each row seeing those before it) @ v, of (batch, heads, context, width)."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


class Norm(nn.Module):
    """LayerNorm (gpt2) or RMSNorm (llama) of branch + stream, and that sum."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.bias = nn.Parameter(torch.zeros(shape.width)) if shape.family == "gpt2" else None

    def forward(self, branch: Tensor | None, stream: Tensor) -> tuple[Tensor, Tensor]:
        """The norm, and the stream from here on; both (batch, context, width)."""
        if branch is None:
            if self.bias is None:
                return ops.rms_norm(stream, self.weight, eps=1e-5), stream
            return ops.layer_norm(stream, self.weight, self.bias), stream
        if self.bias is None:
            return ops.add_rms_norm(branch, stream, self.weight, eps=1e-5)
        return ops.add_layer_norm(branch, stream, self.weight, self.bias)


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width = shape.heads, shape.kv_heads, shape.head_width
        biased = shape.family == "gpt2"
        self.qkv = nn.Linear(shape.width, (shape.heads + 2 * shape.kv_heads) * shape.head_width, bias=biased)
        self.out = nn.Linear(shape.width, shape.width, bias=biased)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor] | None) -> Tensor:
        """x: (batch, context, width). `turns`: cosines and sines of RoPE, where places have no embedding."""
        batch, context, width = x.shape
        q, k, v = heads(x, self.qkv.weight, self.qkv.bias, self.heads, self.kv_heads)
        if turns is not None:
            q, turned = ops.rope(q, k, *turns)
            k = k if turned is None else turned
        found = attention(q, k, v)
        return linear(found.transpose(1, 2).reshape(batch, context, width), self.out.weight, self.out.bias)


class GeluMlp(nn.Module):
    """Of gpt2."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, shape.hidden)
        self.down = nn.Linear(shape.hidden, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, context, width)."""
        raised = linear_gelu(x, self.up.weight, self.up.bias)
        return linear(raised, self.down.weight, self.down.bias)


class SwigluMlp(nn.Module):
    """Of llama."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, context, width)."""
        raised = ops.swiglu(linear(x, self.gate.weight, None), linear(x, self.up.weight, None))
        return linear(raised, self.down.weight, None)


class Block(nn.Module):
    """Takes the stream and what is still to be added to it; answers the same two."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1 = Norm(shape)
        self.attention = Attention(shape)
        self.norm2 = Norm(shape)
        self.mlp = GeluMlp(shape) if shape.family == "gpt2" else SwigluMlp(shape)

    def forward(
        self, branch: Tensor | None, stream: Tensor, turns: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Branch and stream: (batch, context, width); a branch that is None is 0."""
        normed, stream = self.norm1(branch, stream)
        branch = self.attention(normed, turns)
        normed, stream = self.norm2(branch, stream)
        return self.mlp(normed), stream


def last_layer(normed: Tensor, weight: Tensor, targets: Tensor | None, fused: bool) -> Tensor:
    """The mean loss, or without targets the logits, (batch, context, padded vocabulary)."""
    if targets is not None and fused:
        return ops.linear_cross_entropy(normed, weight, targets, ignore_index=NO_TARGET)
    logits = linear(normed, weight, None)
    return logits if targets is None else ops.cross_entropy(logits, targets, ignore_index=NO_TARGET)


class Head(nn.Module):
    """A last layer with a weight of its own. A module that is called, so that FSDP knows when its weight is wanted."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape.padded, shape.width))

    def forward(self, normed: Tensor, targets: Tensor | None, fused: bool) -> Tensor:
        """As `last_layer`."""
        return last_layer(normed, self.weight, targets, fused)


class GPT(nn.Module):
    """The whole model; with targets it answers the mean loss, without them the logits of every place."""

    cos: Tensor
    sin: Tensor

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        shape = settings.shape
        self.shape, self.recompute, self.fused_loss = shape, settings.recompute, settings.fused_loss
        self.tokens = nn.Embedding(shape.padded, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width) if shape.family == "gpt2" else None
        self.blocks = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.norm = Norm(shape)
        self.head = None if shape.tied else Head(shape)
        if self.positions is None:
            for name in ("cos", "sin"):
                self.register_buffer(name, torch.empty(shape.context, shape.head_width // 2), persistent=False)

    @torch.no_grad()
    def begin(self, generator: torch.Generator | None = None) -> None:
        """Gives all weights their values at the beginning."""
        for name, p in self.named_parameters():
            if p.dim() < 2:
                p.fill_(1.0 if name.endswith("weight") else 0.0)
            else:
                into_stream = name.endswith(("out.weight", "down.weight"))
                std = STD / math.sqrt(2 * self.shape.layers) if into_stream else STD
                p.normal_(std=std, generator=generator)
        if self.positions is None:
            place, pair = torch.arange(self.shape.context), torch.arange(0, self.shape.head_width, 2)
            base = ROPE_BASE[self.shape.family]
            angles = torch.outer(place.double(), base ** (-pair.double() / self.shape.head_width))
            self.cos.copy_(angles.cos())
            self.sin.copy_(angles.sin())

    @property
    def head_weight(self) -> Tensor:
        """(padded vocabulary, width)."""
        return self.tokens.weight if self.head is None else self.head.weight

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """tokens and targets: (batch, context), int64."""
        tie = None if self.head is not None else Tie(self.tokens.weight)
        stream = self.tokens(tokens) if tie is None else tie.embedded(tokens)
        branch: Tensor | None = None
        turns = None
        if self.positions is None:
            turns = (self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]])
        else:
            branch = self.positions.weight[: tokens.shape[1]].expand_as(stream)
        for block in self.blocks:
            if self.recompute and self.training:
                branch, stream = checkpoint(block, branch, stream, turns, use_reentrant=False, preserve_rng_state=False)
            else:
                branch, stream = block(branch, stream, turns)
        normed, _ = self.norm(branch, stream)
        if tie is not None:
            return last_layer(normed, tie.last(), targets, self.fused_loss)
        assert self.head is not None
        answer: Tensor = self.head(normed, targets, self.fused_loss)
        return answer


def made(settings: Settings, device: torch.device, dtype: torch.dtype) -> GPT:
    """A model with its weights as they are at the beginning: drawn in float32 on the device, then rounded."""
    with torch.device("meta"):  # without values that would be drawn only to be drawn again
        model = GPT(settings)
    model.to_empty(device=device)
    torch.manual_seed(settings.seed)
    model.begin()
    for p in model.parameters():
        p.data = p.data.to(dtype)  # not `model.to`: the rotations of RoPE stay float32
    return model


def decayed(name: str, parameter: Tensor) -> bool:
    """Whether weight decay is for a parameter: matrices have it, biases and the weights of norms do not."""
    return parameter.dim() >= 2
