"""How float32 is multiplied is an option: on tensor cores three times or once, or without them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotpack.archive import ArchiveReader
from aotpack.cli.build import Float32Products
from aotpack.errors import BuildError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.ops.cuda import attention_rule, conv_rule, gemm_rule
from aotpack.export.ops.cuda.gpu import FLOAT32_PRODUCTS
from tests.support.building import manifest_of

pytestmark = pytest.mark.torch

SHARED = (99 << 10, 163 << 10, 227 << 10)


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 32, 3)
        self.linear = nn.Linear(32, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(self.conv(x).mT)
        return F.scaled_dot_product_attention(y, y, y)


@pytest.mark.parametrize("precision", FLOAT32_PRODUCTS)
def test_kernels_are_compiled_for_it(tmp_path: Path, precision: str) -> None:
    program = aot_export(Products().eval(), (torch.randn(2, 16, 40),))
    path = tmp_path / "model.aotpack"
    build_archive(program, path, targets=["cuda-sm_80"], options=BuildOptions(float32_products=precision))
    manifest = manifest_of(path)
    (variant,) = manifest.entries[0].variants
    (golden,) = manifest.entries[0].goldens
    tf32 = precision == "tf32"
    assert golden.tolerance == (5e-3 if tf32 else 1e-4)
    assert manifest.producer.get("float32_products") == ("tf32" if tf32 else None)
    assets = [asset for module in variant.modules for asset in module.assets if asset.name.endswith(".ptx")]
    with ArchiveReader(path) as reader:
        sources = [reader.read(asset.file, asset.offset, asset.nbytes).decode() for asset in assets]
    products = [
        text for text in sources if "gemm_kernel" in text or "conv_kernel" in text or "attention_kernel" in text
    ]
    assert len(products) >= 3
    assert all((".tf32" in text) == (precision != "ieee") for text in products)


def test_the_command_line_has_all_of_them() -> None:
    assert tuple(precision.value for precision in Float32Products) == FLOAT32_PRODUCTS


def test_another_precision_is_refused(tmp_path: Path) -> None:
    program = aot_export(nn.Linear(2, 2).eval(), (torch.randn(1, 2),))
    with pytest.raises(BuildError, match="float32_products is 'tf16'"):
        build_archive(program, tmp_path / "model.aotpack", options=BuildOptions(float32_products="tf16"))


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("shared", SHARED)
def test_tiles_fit_shared_memory(shared: int, tf32: bool) -> None:
    limits = {"multiprocessors": 132, "shared_bytes": shared, "tf32": tf32}
    for m in (1, 17, 33, 4096):
        for n, k in ((1, 1), (768, 768), (768, 3072)):
            tile, _ = gemm_rule.choose(1, m, n, k, torch.float32, most_results=m * n, **limits)
            assert tile.shared_bytes(4) <= shared
            assert min(tile.m, tile.n, tile.k) >= 16
        tile, _ = conv_rule.choose(1, 64 * m, 64, 9, 64, torch.float32, **limits)
        assert tile.shared_bytes(4) <= shared
        for dim in (16, 64, 128, 256):
            blocks = attention_rule.choose(16, m, m, dim, dim, torch.float32, **limits)
            assert blocks.shared_bytes(dim, dim, 4) <= shared
