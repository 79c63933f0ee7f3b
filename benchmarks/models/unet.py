"""The U-Net of Stable Diffusion 1 (Rombach et al. 2021, "High-Resolution Image Synthesis with Latent Diffusion").

python benchmarks/models/unet.py [--batch 16] [--image 512] [--width 320] [--layers 2] [--steps 3]

It learns which noise was added to a latent (4×64×64 for an image of 512×512), given the time and an embedded caption.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LATENT, SHRINK = 4, 8
CAPTION, TEXT = 77, 768
"""Tokens of a caption and features of each, from the text encoder of CLIP ViT-L/14."""
TIMES = 1000
MULTIPLES = (1, 2, 4, 4)
WITH_ATTENTION = (True, True, True, False)
HEADS = 8


class Residual(nn.Module):
    def __init__(self, channels: int, out: int, embedded: int):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, channels)
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(embedded, out)
        self.norm2 = nn.GroupNorm(32, out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        y = self.conv2(F.silu(self.norm2(y)))
        return self.shortcut(x) + y


class Attention(nn.Module):
    def __init__(self, width: int, context: int):
        super().__init__()
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(context, width, bias=False)
        self.v = nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (self.q(x), self.k(context), self.v(context)))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class GEGLU(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(width, 8 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.up(x).chunk(2, dim=-1)
        return self.down(value * F.gelu(gate))


class Transformer(nn.Module):
    """Pixels attend to each other, then to the caption."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.into = nn.Conv2d(width, width, 1)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.pixels = Attention(width, width)
        self.caption = Attention(width, TEXT)
        self.mlp = GEGLU(width)
        self.back = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        y = self.into(self.norm(x)).flatten(2).transpose(1, 2)
        normed = self.norm1(y)
        y = y + self.pixels(normed, normed)
        y = y + self.caption(self.norm2(y), text)
        y = y + self.mlp(self.norm3(y))
        return x + self.back(y.transpose(1, 2).reshape(x.shape))


class Downsample(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        return self.conv(x)


class Upsample(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Stage(nn.ModuleList):
    """One after another, each given the time and the caption."""

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        for layer in self:
            x = layer(x, time, text)
        return x


class UNet(nn.Module):
    def __init__(self, width: int = 320, layers: int = 2):
        super().__init__()
        self.width = width
        embedded = 4 * width
        self.time = nn.Sequential(nn.Linear(width, embedded), nn.SiLU(), nn.Linear(embedded, embedded))
        self.first = nn.Conv2d(LATENT, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        channels, skips = width, [width]
        for level, multiple in enumerate(MULTIPLES):
            for _ in range(layers):
                out = multiple * width
                self.down.append(self.stage(level, channels, out, embedded))
                channels = out
                skips.append(channels)
            if level + 1 < len(MULTIPLES):
                self.down.append(Stage([Downsample(channels)]))
                skips.append(channels)
        self.middle = Stage(
            [Residual(channels, channels, embedded), Transformer(channels), Residual(channels, channels, embedded)]
        )
        for level, multiple in reversed(list(enumerate(MULTIPLES))):
            for layer in range(layers + 1):
                out = multiple * width
                stage = self.stage(level, channels + skips.pop(), out, embedded)
                channels = out
                if layer == layers and level > 0:
                    stage.append(Upsample(channels))
                self.up.append(stage)
        self.norm = nn.GroupNorm(32, channels)
        self.last = nn.Conv2d(channels, LATENT, 3, padding=1)

    def stage(self, level: int, channels: int, out: int, embedded: int) -> Stage:
        stage = Stage([Residual(channels, out, embedded)])
        if WITH_ATTENTION[level]:
            stage.append(Transformer(out))
        return stage

    def forward(self, x: Tensor, times: Tensor, text: Tensor) -> Tensor:
        time = self.time(waves(times, self.width))
        x = self.first(x)
        skips = [x]
        for stage in self.down:
            x = stage(x, time, text)
            skips.append(x)
        x = self.middle(x, time, text)
        for stage in self.up:
            x = stage(torch.cat([x, skips.pop()], dim=1), time, text)
        return self.last(F.silu(self.norm(x)))


def waves(times: Tensor, width: int) -> Tensor:
    """Cosines and sines of each time."""
    frequencies = torch.exp(-math.log(10_000) * torch.arange(width // 2, device=times.device) / (width // 2))
    angles = times[:, None].float() * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def train(batch: int, image: int, width: int, layers: int, steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = UNet(width, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-2)
    kept = torch.cumprod(1 - torch.linspace(0.00085**0.5, 0.012**0.5, TIMES, device=device) ** 2, dim=0)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")
    for _ in range(steps):
        latents = torch.randn(batch, LATENT, image // SHRINK, image // SHRINK, device=device)
        text = torch.randn(batch, CAPTION, TEXT, device=device)
        noise = torch.randn_like(latents)
        times = torch.randint(TIMES, (batch,), device=device)
        share = kept[times][:, None, None, None]
        noisy = share.sqrt() * latents + (1 - share).sqrt() * noise
        with torch.autocast(device, dtype=torch.bfloat16):
            guess = model(noisy, times, text)
        loss = F.mse_loss(guess.float(), noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains Stable Diffusion's U-Net on random latents.")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--image", type=int, default=512)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--layers", type=int, default=2, help="residual blocks a level")
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
