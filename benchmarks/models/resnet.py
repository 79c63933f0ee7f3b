"""ResNet-50 on ImageNet (He et al. 2015), with the stride in the 3×3 convolution as everybody trains it (version 1.5).

python benchmarks/models/resnet.py [--batch 256] [--image 224] [--layers 3 4 6 3] [--steps 3]

Images, weights and activations are channels_last, the layout that tensor cores want.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 1000
EXPANSION = 4


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, EXPANSION * width, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(EXPANSION * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != EXPANSION * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, EXPANSION * width, 1, stride=stride, bias=False),
                nn.BatchNorm2d(EXPANSION * width),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, layers: tuple[int, ...] = (3, 4, 6, 3)):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        channels, stages = 64, []
        for index, blocks in enumerate(layers):
            width = 64 << index
            for block in range(blocks):
                stride = 2 if block == 0 and index > 0 else 1
                stages.append(Bottleneck(channels, width, stride))
                channels = EXPANSION * width
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stages(self.stem(images))
        return self.head(torch.flatten(self.pool(x), 1))


def train(batch: int, image: int, layers: list[int], steps: int) -> None:
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = ResNet(tuple(layers)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters on {device}")
    for _ in range(steps):
        images = torch.randn(batch, 3, image, image, device=device).to(memory_format=torch.channels_last)
        labels = torch.randint(CLASSES, (batch,), device=device)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains ResNet-50 on random images.")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--layers", type=int, nargs="+", default=[3, 4, 6, 3], help="blocks a stage")
    parser.add_argument("--steps", type=int, default=3)
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
