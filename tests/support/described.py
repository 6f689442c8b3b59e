"""Archives with descriptions and hooks for profiles, for the tests of `inspect`, reports and profiles."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from aotpack import Dim
from aotpack.export import BuildOptions, Device, aot_export, build_archive, partition

HOSTILE = "</script><script>window['broken'] = 1</script><img src=x>&amp;"
B = Dim("batch", 1, 16)


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        # Not the sum, which is zero behind a layer norm: rounding would choose the branch.
        return torch.cond(x.amax() > 0, lambda y: self.line(y).relu(), lambda y: y - 1, (x,))


class Described(nn.Module):
    """A convolution with a norm, a layer that is used twice, a branch, and a module with a hostile name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.add_module(HOSTILE, nn.LayerNorm(8))
        self.branch = Doubled()
        self.head = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        y = self.get_submodule(HOSTILE)(y)
        y = self.head(self.head(self.branch(y)))
        return torch.softmax(y, -1), y.amax()


class Staged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


def build_described(path: Path, cache: Path) -> None:
    """An archive of `Described` with hooks."""
    torch.manual_seed(0)
    model = Described().eval()
    program = aot_export(model, (torch.randn(4, 3, 8, 8),), dynamic_shapes={"x": {0: B}})
    build_archive(program, path, name=HOSTILE, options=BuildOptions(cache_dir=cache, profile=True))


def build_staged(path: Path, cache: Path, *, profile: bool) -> None:
    """An archive of `Staged` in two stages."""
    torch.manual_seed(0)
    program = aot_export(Staged().eval(), (torch.randn(4, 8),), dynamic_shapes={"x": {0: B}})
    devices = [Device("near", 1 << 20), Device("far", 1 << 20)]
    stages = partition(program, devices, "mapping", mapping={"first": "near", "": "far"})
    build_archive(program, path, options=BuildOptions(cache_dir=cache, profile=profile), partitioning=stages)
