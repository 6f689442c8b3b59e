"""Classic vision models as plain modules: VGG-16, DenseNet-121, ShuffleNetV2 1.0x, MNASNet 1.0, ResNeXt-50 32x4d and a
U-Net.

Layer by layer the networks of the papers; classifiers map [batch, 3, 224, 224] to the logits of 1000 classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution without bias and the batch norm behind it."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Vgg16(nn.Module):
    """K. Simonyan and A. Zisserman 2014, configuration D, with batch norm."""

    WIDTHS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)

    def __init__(self, hidden: int = 4096) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for width in self.WIDTHS:
            if width == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            inputs = width
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, 1000),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


class DenseLayer(nn.Module):
    """A bottleneck and a 3x3 convolution, each behind norm and ReLU; the result is joined to the input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x), inplace=True))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y), inplace=True))], 1)


class DenseNet121(nn.Module):
    """G. Huang et al. 2017, growth 32."""

    def __init__(self, depths: tuple[int, ...] = (6, 12, 24, 16)) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_bn(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        width = 64
        for block, depth in enumerate(depths):
            for _ in range(depth):
                layers.append(DenseLayer(width, 32))
                width += 32
            layers.append(nn.BatchNorm2d(width))
            layers.append(nn.ReLU(inplace=True))
            if block < 3:
                layers += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
                width //= 2
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


class ShuffleUnit(nn.Module):
    """Half of the channels pass, the other half is transformed, then both are interleaved; stride 2 transforms both."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.stride = stride
        if stride == 2:
            self.left = nn.Sequential(
                *conv_bn(inputs, inputs, 3, 2, groups=inputs), *conv_bn(inputs, half, 1), nn.ReLU(inplace=True)
            )
        self.right = nn.Sequential(
            *conv_bn(inputs if stride == 2 else half, half, 1),
            nn.ReLU(inplace=True),
            *conv_bn(half, half, 3, stride, groups=half),
            *conv_bn(half, half, 1),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 2:
            y = torch.cat([self.left(x), self.right(x)], 1)
        else:
            passed, transformed = x.chunk(2, 1)
            y = torch.cat([passed, self.right(transformed)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ShuffleNetV2(nn.Module):
    """N. Ma et al. 2018, width 1.0."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_bn(3, 24, 3, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        width = 24
        for outputs, depth in ((116, 4), (232, 8), (464, 4)):
            layers.append(ShuffleUnit(width, outputs, 2))
            layers += [ShuffleUnit(outputs, outputs, 1) for _ in range(depth - 1)]
            width = outputs
        layers += [*conv_bn(width, 1024, 1), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(1024, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


class InvertedResidual(nn.Module):
    """Expand, depthwise, project; a residual where sizes allow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        middle = inputs * expansion
        self.residual = inputs == outputs and stride == 1
        self.layers = nn.Sequential(
            *conv_bn(inputs, middle, 1),
            nn.ReLU(inplace=True),
            *conv_bn(middle, middle, kernel, stride, groups=middle),
            nn.ReLU(inplace=True),
            *conv_bn(middle, outputs, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return y + x if self.residual else y


class MnasNet(nn.Module):
    """M. Tan et al. 2019, B1, width 1.0."""

    STAGES = (
        (24, 3, 2, 3, 3),
        (40, 5, 2, 3, 3),
        (80, 5, 2, 6, 3),
        (96, 3, 1, 6, 2),
        (192, 5, 2, 6, 4),
        (320, 3, 1, 6, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_bn(3, 32, 3, 2), nn.ReLU(inplace=True), *conv_bn(32, 32, 3, groups=32)]
        layers += [nn.ReLU(inplace=True), *conv_bn(32, 16, 1)]
        width = 16
        for outputs, kernel, stride, expansion, depth in self.STAGES:
            for index in range(depth):
                layers.append(InvertedResidual(width, outputs, kernel, stride if index == 0 else 1, expansion))
                width = outputs
        layers += [*conv_bn(width, 1280, 1), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


class ResNeXtBlock(nn.Module):
    """A bottleneck whose 3x3 convolution has 32 groups."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        middle = outputs // 2
        self.layers = nn.Sequential(
            *conv_bn(inputs, middle, 1),
            nn.ReLU(inplace=True),
            *conv_bn(middle, middle, 3, stride, groups=32),
            nn.ReLU(inplace=True),
            *conv_bn(middle, outputs, 1),
        )
        self.shortcut = conv_bn(inputs, outputs, 1, stride) if inputs != outputs or stride != 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.layers(x) + self.shortcut(x), inplace=True)


class ResNeXt50(nn.Module):
    """S. Xie et al. 2017, 32x4d."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_bn(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        width = 64
        for stage, (outputs, depth) in enumerate(((256, 3), (512, 4), (1024, 6), (2048, 3))):
            for index in range(depth):
                layers.append(ResNeXtBlock(width, outputs, 2 if index == 0 and stage > 0 else 1))
                width = outputs
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(self.features(x), 1), 1))


class UNet(nn.Module):
    """After Ronneberger et al. 2015, with batch norms: image [batch, 3, height, width] -> [batch, 2, height, width]."""

    def __init__(self, width: int = 64, levels: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(_pair(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(_pair(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skipped: list[Tensor] = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            skipped.append(x)
        for up, join, other in zip(self.up, self.join, reversed(skipped[:-1]), strict=True):
            x = join(torch.cat((other, up(x)), 1))
        return self.head(x)


def _pair(channels: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for count in (channels, width):
        layers += [nn.Conv2d(count, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers)
