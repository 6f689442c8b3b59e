"""`nn.TransformerEncoder` with padding: eager's fast path leaves padding out, and gives zeros for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.building import assert_close

pytestmark = pytest.mark.torch


class Encoders(nn.Module):
    """Encoders of all kinds over one input."""

    def __init__(self) -> None:
        super().__init__()

        def layer(**options: Any) -> nn.TransformerEncoderLayer:
            return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)

        self.fast = nn.TransformerEncoder(layer(), 1)
        self.normed = nn.TransformerEncoder(layer(activation="gelu"), 1, nn.LayerNorm(8))
        self.slow = nn.TransformerEncoder(layer(), 1, enable_nested_tensor=False)
        with torch.no_grad():
            assert self.normed.norm is not None
            self.normed.norm.bias.fill_(0.5)

    def forward(self, x: Tensor, padding: Tensor) -> list[Tensor]:
        encoders = (self.fast, self.normed, self.slow)
        results = [encoder(x, src_key_padding_mask=padding) for encoder in encoders]
        added = torch.zeros(padding.shape).masked_fill(padding, -torch.inf)
        return [*results, self.fast(x, src_key_padding_mask=added)]


def test_padding_is_zero_where_eagers_is(tmp_path: Path, cache_dir: Path) -> None:
    model = Encoders().eval()
    x = torch.randn(3, 5, 8)
    lengths = torch.tensor([3, 5, 1])
    padding = torch.arange(5) >= lengths[:, None]
    with torch.no_grad():
        assert model(x, padding)[0][0, 3:].eq(0).all(), "eager does not leave padding out any more"
    dims = {"x": {0: aotpack.Dim("b", 1, 8), 1: aotpack.Dim("n", 2, 9)}, "padding": {0: "b", 1: "n"}}
    program = aot_export(model, (x, padding), dynamic_shapes=dims)
    report = build_archive(program, tmp_path / "a.aotpack", options=BuildOptions(cache_dir=cache_dir))
    assert report.check.outputs == 4
    archive = aotpack.load(report.path)
    inside = padding.clone()
    inside[0, 0] = True
    first = torch.arange(7)[None] >= 4
    for values, mask in (
        (x + 1, padding),
        (x, torch.zeros_like(padding)),
        (x, inside),  # not at the end of its row: eager takes the slow path for all
        (torch.randn(1, 7, 8), first),
        (torch.randn(2, 2, 8), torch.tensor([[False, True], [False, False]])),
    ):
        with torch.no_grad():
            assert_close(archive(values, mask), model(values, mask))


def test_without_the_check_of_the_mask(tmp_path: Path, cache_dir: Path) -> None:
    """torch.export does not trace this one."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, mask_check=False).eval()
    x, padding = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True], [False] * 4])
    program = aot_export(model, (x,), {"src_key_padding_mask": padding})
    report = build_archive(program, tmp_path / "a.aotpack", options=BuildOptions(cache_dir=cache_dir))
    assert (report.check.outputs, report.check.unchecked) == (1, ())


def test_in_training_nothing_is_left_out(tmp_path: Path, cache_dir: Path) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 1)
    x, padding = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True], [False] * 4])
    with torch.no_grad():
        assert not model(x, src_key_padding_mask=padding)[0, 2:].eq(0).any()
    program = aot_export(model, (x,), {"src_key_padding_mask": padding})
    report = build_archive(program, tmp_path / "a.aotpack", options=BuildOptions(cache_dir=cache_dir))
    assert report.check.outputs == 1


def test_a_mask_that_torch_would_look_at(tmp_path: Path, cache_dir: Path) -> None:
    """Given as an input, whether it is causal or not."""
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    call = (torch.randn(1, 4, 8), torch.randn(1, 3, 8), None, causal)
    report = build_archive(aot_export(model, call), tmp_path / "a.aotpack", options=BuildOptions(cache_dir=cache_dir))
    assert report.check.outputs == 1
    other = torch.zeros(3, 3).masked_fill(torch.eye(3).bool(), -torch.inf)
    with torch.no_grad():
        assert_close(aotpack.load(report.path)(*call[:3], other), model(*call[:3], other))
