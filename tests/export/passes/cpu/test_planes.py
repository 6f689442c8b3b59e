"""Convolutions of few channels read contiguous inputs without a copy in between."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.export import ops
from aotpack.export.driver.pipeline import PASSES
from tests.export.conftest import Build, check
from tests.export.pass_checks import calls, run


class _Padded(nn.Module):
    """As networks that were trained elsewhere begin: more padding behind than in front."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(self.conv(F.pad(input, (0, 1, 0, 1))))


READ = [
    (nn.Conv2d(3, 8, 3, stride=2, padding=1), (2, 3, 13, 12)),
    (nn.Conv2d(16, 40, 3), (1, 16, 7, 9)),
    (nn.Conv2d(1, 8, 5, padding=2), (1, 1, 28, 28)),
    (nn.Conv2d(3, 24, 4, stride=4), (2, 3, 16, 16)),
    (nn.Conv1d(2, 8, 4, padding=1), (3, 2, 50)),
    (nn.Conv3d(2, 8, 2), (1, 2, 4, 5, 6)),
    (nn.Conv2d(3, 8, (1, 3)), (1, 3, 6, 6)),
    (_Padded(nn.Conv2d(3, 8, 3, stride=2)), (1, 3, 12, 12)),
]
CONVERTED = [
    (nn.Conv2d(17, 8, 3), (1, 17, 7, 7)),
    (nn.Conv2d(3, 8, 1), (1, 3, 7, 7)),
    (nn.Conv2d(3, 8, (3, 1)), (1, 3, 7, 7)),
    (nn.Conv2d(4, 8, 3, groups=2), (1, 4, 7, 7)),
    (nn.Conv2d(4, 4, 3, groups=4), (1, 4, 7, 7)),
    (nn.Conv2d(3, 8, 3, dilation=2), (1, 3, 9, 9)),
    (nn.ConvTranspose2d(3, 8, 3), (1, 3, 7, 7)),
]


def conversions(model: nn.Module, sizes: tuple[int, ...], **options: Any) -> list[tuple[int, ...]]:
    program = run(model.eval(), (torch.randn(sizes),), *PASSES, **options)
    return [tuple(node.meta["val"].shape) for node in calls(program, ops.to_layout)]


@pytest.mark.parametrize(("model", "sizes"), READ)
def test_the_input_is_read_as_it_is(model: nn.Module, sizes: tuple[int, ...]) -> None:
    assert sizes not in conversions(model, sizes)


@pytest.mark.parametrize(("model", "sizes"), CONVERTED)
def test_others_convert_it(model: nn.Module, sizes: tuple[int, ...]) -> None:
    assert sizes in conversions(model, sizes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_archives(build: Build, dtype: torch.dtype) -> None:
    """Contiguous, channels-last and strided inputs."""

    class Stems(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stems = nn.ModuleList(model for model, sizes in READ if len(sizes) == 4 and sizes[1] == 3)

        def forward(self, input: Tensor) -> tuple[Tensor, ...]:
            inputs = (input, input.to(memory_format=torch.channels_last), input.transpose(2, 3), input[..., ::2])
            return tuple(stem(x) for stem in self.stems for x in inputs)

    model, x = Stems().eval().to(dtype), torch.randn(2, 3, 20, 24).to(dtype)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    check(build(model, (x,)), model, (x,), (torch.randn(2, 3, 20, 24).to(dtype),), tolerance=tolerance)
