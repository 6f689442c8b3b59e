"""Models that are built in another way than by default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import aotpack
from aotpack.export import BuildOptions
from tests.gpu.cases import Case
from tests.gpu.updatable import network


@dataclass(frozen=True)
class Way:
    """How a model is built.

    Attributes:
        make: the model, its example inputs and its dynamic shapes.
        options: of the build.
        cpus: targets beside those for GPUs.
    """

    make: Callable[[], Case]
    options: BuildOptions = field(default_factory=BuildOptions)
    cpus: tuple[str, ...] = ()


class _Products(nn.Module):
    """A convolution, a product and attention, each of which TF32 makes less exact."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3, padding=1)
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.conv(x)
        z = self.linear(y.flatten(2).mT)
        return y, z, nn.functional.scaled_dot_product_attention(z[:, None], z[:, None], z[:, None])[:, 0]


def _products() -> Case:
    return _Products().eval(), (torch.randn(2, 64, 14, 14),), None


def _updatable() -> Case:
    return network(0), (torch.randn(3, 6, 10),), {"x": {0: aotpack.Dim("batch", 1, 64)}}


def _everywhere() -> Case:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).eval()
    return model, (torch.randn(8, 64),), {"input": {0: aotpack.Dim("batch", 1, 512)}}


def ways() -> dict[str, Way]:
    """Models and how they are built, by the name of the archive."""
    return {
        "updatable": Way(_updatable, BuildOptions(updatable=True)),
        "tf32": Way(_products, BuildOptions(float32_products="tf32")),
        "not-tf32": Way(_products),
        "everywhere": Way(_everywhere, cpus=("x86-64-v3",)),
        # 64 MiB of weights.
        "large": Way(lambda: (nn.Linear(4096, 4096).eval(), (torch.randn(2, 4096),), None)),
    }
