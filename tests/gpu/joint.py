"""Small models that are captured with their gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import aotpack
from tests.gpu.cases import Case


class _Convolutions(nn.Module):
    """Convolutions of each kind, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.ReLU()),
            *(nn.Conv2d(16, 20, 1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(20, 24, 3, 2, 2, dilation=2, groups=2), nn.ReLU()),
            *(nn.ConvTranspose2d(24, 18, 3, 2, output_padding=1), nn.Flatten(2)),
            *(nn.Conv1d(18, 6, 5), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
        )

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.body(x), labels)


class _Volumes(nn.Module):
    """Convolutions of three dims, in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv3d(2, 18, 3, padding=1), nn.SiLU(), nn.Conv3d(18, 4, 2, (1, 2, 1)))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x).float()
        return (y * (y + 0.5)).mean()


def _convolutions() -> Case:
    batch = aotpack.Dim("batch", 1, 64)
    args = (torch.randn(2, 3, 17, 14, requires_grad=True), torch.tensor([1, 4]))
    return _Convolutions().train(), args, {"x": {0: batch}, "labels": {0: batch}}


def _volumes() -> Case:
    return _Volumes().half(), (torch.randn(2, 2, 3, 5, 4).half().requires_grad_(),), None


class _Attention(nn.Module):
    """Causal attention in half precision behind a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2).float()
        return (y * (y + 0.5)).mean()


def _attention() -> Case:
    length = aotpack.Dim("length", 1, 256)
    return _Attention().half(), (torch.randn(2, 21, 32).half().requires_grad_(),), {"x": {1: length}}


def joint() -> dict[str, Callable[[], Case]]:
    """As `cases`, with `mode="joint"`."""
    return {"joint-convolutions": _convolutions, "joint-volumes": _volumes, "joint-attention": _attention}
