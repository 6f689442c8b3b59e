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


class _Block(nn.Module):
    """A block as GPT-2 has it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(y.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.between(x)), approximate="tanh"))


class _Gpt(nn.Module):
    """GPT-2 of one block, with tied embeddings, and its loss."""

    def __init__(self, width: int = 64, heads: int = 2) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, width), nn.Embedding(256, width)
        self.block = nn.Sequential(_Block(width, heads), nn.LayerNorm(width))

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        logits = self.block(x) @ self.words.weight.T
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def _gpt() -> Case:
    batch, length = aotpack.Dim("batch", 1, 64), aotpack.Dim("length", 2, 256)
    return _Gpt(), (torch.randint(0, 50, (2, 37)),), {"words": {0: batch, 1: length}}


class _Grouped(nn.Module):
    """Heads that share keys, and masks: of booleans with rows without keys, and added."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 8 * 80)

    def forward(self, x: Tensor, shown: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (8, 80)).transpose(1, 2).split([4, 2, 2], 1)
        first = F.scaled_dot_product_attention(q, k, v, shown, enable_gqa=True)
        bias = torch.where(shown, 0.5, torch.finfo(q.dtype).min).to(q.dtype)
        second = F.scaled_dot_product_attention(q, k, v, bias[:, :, :1], scale=0.2, enable_gqa=True)
        # The gradient of the second is expanded from one number.
        return (first * (first + 0.5)).float().mean() + second.float().mean()


def _grouped() -> Case:
    length = aotpack.Dim("length", 1, 256)
    shown = torch.rand(2, 1, 35, 35) < 0.5
    shown[:, :, 3] = False
    shown[:, :, 0, 0] = True
    args = (torch.randn(2, 35, 32).half().requires_grad_(), shown)
    return _Grouped().half(), args, {"x": {1: length}, "shown": {2: length, 3: length}}


def joint() -> dict[str, Callable[[], Case]]:
    """As `cases`, with `mode="joint"`."""
    return {
        "joint-convolutions": _convolutions,
        "joint-volumes": _volumes,
        "joint-attention": _attention,
        "joint-gpt": _gpt,
        "joint-grouped": _grouped,
    }
