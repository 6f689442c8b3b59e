"""Channel shuffles: which ones become one call, and that answers stay eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aotpack.export import ops
from aotpack.export.driver.pipeline import PASSES
from tests.export.conftest import Build, check
from tests.export.pass_checks import calls, run
from tests.export.wrapper_layouts import traffic

BATCH = torch.export.Dim("batch", min=1, max=64)


def shuffled(x: torch.Tensor, groups: int) -> torch.Tensor:
    """As torchvision has it."""
    batch, channels, height, width = x.size()
    x = x.view(batch, groups, channels // groups, height, width)
    return torch.transpose(x, 1, 2).contiguous().view(batch, channels, height, width)


class Block(nn.Module):
    """A block of ShuffleNet V2: half of the channels pass, and both halves are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.a = nn.Conv2d(half, half, 1)
        self.b = nn.Conv2d(half, half, 3, padding=1, groups=half)
        self.c = nn.Conv2d(half, half, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, x = x.chunk(2, 1)
        return shuffled(torch.cat((kept, F.relu(self.c(self.b(F.relu(self.a(x)))))), 1), 2)


class Shuffles(nn.Module):
    """Two blocks, and a shuffle of what is no concatenation."""

    def __init__(self, groups: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(20, 36, 3)
        self.blocks = nn.Sequential(Block(36), Block(36))
        self.grouped = nn.Conv2d(36, 36, 1, groups=3)
        self.shuffle = nn.ChannelShuffle(groups)
        self.last = nn.Conv2d(36, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.shuffle(self.grouped(self.blocks(self.first(x))))).mean((2, 3))


def test_shuffles_between_convolutions_are_calls_and_nothing_else_moves() -> None:
    program = run(Shuffles().eval(), (torch.randn(2, 20, 9, 8),), *PASSES)
    parts: list[Any] = [node.args[0] for node in calls(program, ops.interleave)]
    assert [len(part) for part in parts] == [2, 2, 3]
    assert not calls(program, torch.ops.aten.cat.default)
    found = traffic(program)
    assert found.copies == 1 and found.implicit == []  # the input


@pytest.mark.parametrize(
    "shuffle",
    [
        lambda x: F.channel_shuffle(x, 4),
        lambda x: x.unflatten(1, (4, 2)).swapaxes(1, 2).flatten(1, 2),
        lambda x: x.view(x.shape[0], 4, 2, *x.shape[2:]).permute(0, 2, 1, 3, 4).reshape(x.shape),
    ],
)
def test_a_shuffle_is_found_however_it_is_written(shuffle: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Conv2d(3, 8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return shuffle(self.a(x))

    program = run(Model().eval(), (torch.randn(2, 3, 4, 5),), *PASSES, dynamic_shapes=({0: BATCH},))
    (call,) = calls(program, ops.interleave)
    assert len(call.args[0]) == 4


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.view(2, 4, 2, 4, 5).transpose(1, 3).reshape(2, 8, 4, 5),
        lambda x: x.view(2, 4, 2, 4, 5).transpose(1, 2).reshape(2, 4, 8, 5),
        lambda x: x.view(2, 2, 2, 2, 4, 5).transpose(1, 2).reshape(2, 8, 4, 5),
        lambda x: F.pixel_shuffle(x, 2),
    ],
)
def test_what_is_no_shuffle_of_channels_stays(other: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Conv2d(3, 8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return other(self.a(x))

    program = run(Model().eval(), (torch.randn(2, 3, 4, 5),), *PASSES)
    assert not calls(program, ops.interleave)


def test_a_program_without_convolutions_is_left_alone() -> None:
    program = run(lambda x: F.channel_shuffle(x, 4), (torch.randn(2, 8, 4, 5),), *PASSES)
    assert not calls(program, ops.interleave)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_archives_answer_as_eager(build: Build, dtype: torch.dtype) -> None:
    eager = Shuffles().eval().to(dtype)
    x, other = torch.randn(2, 20, 9, 8, dtype=dtype), torch.randn(5, 20, 9, 8, dtype=dtype)
    archive = build(eager, (x,), dynamic_shapes=({0: BATCH},))
    check(archive, eager, (x,), (other,), tolerance=1e-4 if dtype is torch.float32 else 3e-2)
