"""The archive of a layer that most tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack import Dim
from aotpack.export import BuildOptions, aot_export, build_archive

F = nn.functional


class Layer(nn.Module):
    """A convolution, a batch norm in training mode, a dropout whose mask shows in a result, tied weights, and an input
    that is written to.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(16, 16)
        self.again = self.head
        self.frozen = nn.Linear(16, 3).requires_grad_(False)
        self.unused = nn.Linear(2, 2)
        self.probability = 0.5

    def forward(self, image: Tensor, shift: Tensor, seen: Tensor, *, mask: Tensor | None = None) -> dict[str, Any]:
        """`mask`: what the dropout leaves; None in the archive, which draws it."""
        seen.add_(image.shape[0])
        hidden = F.max_pool2d(F.relu(self.norm(self.convolution(image))), 2).flatten(1).sigmoid()
        dropped = F.dropout(hidden, self.probability) if mask is None else hidden * mask / (1 - self.probability)
        hidden = torch.tanh(self.again(torch.tanh(self.head(dropped)))) + shift
        return {"logits": self.frozen(hidden), "dropped": dropped, "label": hidden.argmax(1), "size": image.shape[0]}


@pytest.fixture(scope="package")
def layer_path(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    example = torch.randn(3, 1, 4, 4), torch.randn(3, 16, requires_grad=True), torch.tensor(0)
    shapes = {"image": {0: Dim("batch", 1, 32)}, "shift": {0: "batch"}}
    program = aot_export(Layer(), example, mode="forward_backward", dynamic_shapes=shapes)
    path = tmp_path_factory.mktemp("layer") / "layer.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    return path


@pytest.fixture(scope="package")
def layer(layer_path: Path) -> aotpack.Model:
    return aotpack.load(layer_path, verify="full", num_threads=2)
