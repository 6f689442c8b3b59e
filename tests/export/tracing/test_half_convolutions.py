"""Example calls of float16 models with convolutions: in single precision, which is fast on every processor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aotpack.export.tracing import eager

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("layer", "sizes"),
    [
        (nn.Conv1d(4, 6, 3), (2, 4, 9)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 8)),
        (nn.Conv2d(4, 6, 3, groups=2, bias=False), (1, 4, 5, 5)),
        (nn.ConvTranspose2d(4, 6, 3, output_padding=1, stride=2), (2, 4, 5, 4)),
        (nn.Conv3d(4, 6, 2), (1, 4, 3, 3, 3)),
    ],
    ids=["1d", "2d", "grouped", "transposed", "3d"],
)
def test_convolutions(layer: nn.Module, sizes: tuple[int, ...], channels_last: bool) -> None:
    layer, x = layer.half(), torch.randn(sizes).half()
    if channels_last and len(sizes) == 4:
        x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = layer(x)
    result = eager.run(layer, (x,), {})
    assert (result.dtype, result.stride()) == (expected.dtype, expected.stride())
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
    if len(sizes) < 5:
        with torch.no_grad():
            assert torch.equal(result, layer.float()(x.float()).half())


class _Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y.float().square().mean()


def test_gradients() -> None:
    model, x = _Loss().half(), torch.randn(2, 4, 7, 7).half().requires_grad_()
    answer = eager.run_joint(model, (x,), {})
    expected = torch.autograd.grad(model(x), [*model.parameters(), x])
    found = [*answer.parameters.values(), *answer.inputs.values()]
    for ours, eagers in zip(found, expected, strict=True):
        assert ours is not None
        torch.testing.assert_close(ours, eagers, rtol=5e-3, atol=2e-3)
