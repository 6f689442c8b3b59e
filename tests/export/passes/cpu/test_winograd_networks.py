"""Whole networks in which every convolution that can be has tiles of 4 x 4 outputs, which round most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.costs.costs import ModelCosts, Times
from aotpack.costs.shapes import ConvShape, Shape
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.passes.cpu import winograd
from bench import models, vision
from tests.support.building import assert_close

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SIZE = 96


class _AlwaysFour(ModelCosts):
    def times(self, shapes: Sequence[Shape], *, weights: int) -> list[Times]:
        found = super().times(shapes, weights=weights)
        for index, shape in enumerate(shapes):
            if isinstance(shape, ConvShape):
                found[index] = Times({"direct": 1.0, "winograd_2x2": 1.0, "winograd_4x4": 0.1})
        return found


def _vgg16() -> nn.Module:
    torch.manual_seed(0)
    module = vision.Vgg16(128)
    models.settle_batch_norms(module)
    return module.eval()


@pytest.mark.parametrize(("name", "convolutions"), [("resnet50", 13), ("vgg16", 13)])
def test_a_tenth_of_what_the_bench_allows(
    name: str, convolutions: int, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "_GROWTH", 10.0)
    monkeypatch.setattr(winograd, "current_costs", lambda: _AlwaysFour(["x86-64-v4"]))
    module = _vgg16() if name == "vgg16" else models.build(name)[0]
    path = tmp_path / "model.aotpack"
    program = aot_export(module, (torch.randn(1, 3, SIZE, SIZE),))
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, goldens=False))
    with ArchiveReader(path) as reader:
        packed = [c.shape for c in reader.manifest.constants if c.role == "packed" and len(c.shape) == 5]
    assert sum(shape[2] == 36 for shape in packed) == convolutions
    x = torch.randn(2, 1, 3, SIZE, SIZE)
    model = aotpack.load(path, num_threads=2)
    results = [model(image) for image in x]
    double = module.double()
    for image, result in zip(x, results, strict=True):
        with torch.no_grad():
            assert_close(result, double(image.double()), 1e-5)
