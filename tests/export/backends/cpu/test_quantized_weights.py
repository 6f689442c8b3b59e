"""Archives with quantized weights: as large as these, and as exact as products with dequantized copies."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import Dim

import aotpack.errors
import aotpack.runtime
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.export.packed_weights import DynamicInt4Linear, Int4Linear
from tests.export.quantized_weights import FORMS

N, K, GROUP = 200, 512, 64


@pytest.mark.parametrize("form", FORMS)
def test_archives_hold_and_read_the_stored_numbers(form: str, tmp_path: Path, cache_dir: Path) -> None:
    make, bits = FORMS[form]
    model = make(N, K, GROUP)
    program = aot_export(model, (torch.randn(3, K),), dynamic_shapes=({0: Dim("rows", min=0, max=80)},))
    path = tmp_path / "m.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    archive = aotpack.runtime.load(path)
    matrix = model.matrix(torch.empty(0, dtype=torch.float64)).detach().numpy()
    bias = 0.0 if model.bias is None else model.bias.double().numpy()
    for rows in (0, 1, 2, 3, 4, 5, 33, 80):
        x = torch.randn(rows, K)
        found = np.asarray(archive(x.numpy()))
        expected = x.double().numpy() @ matrix.T + bias
        scale = np.abs(x.double().numpy()) @ np.abs(matrix.T) + 1
        assert found.shape == (rows, N)
        assert np.all(np.abs(found - expected) <= 4e-6 * scale)
    # Numbers, and fp32 scales and offsets of groups, in panels of 32 columns.
    panels = -(-N // 32) * 32
    groups = 1 if form in ("int8 by channel", "uint8 with zero points") else K // GROUP
    stored = panels * K * bits // 8 + 2 * 4 * panels * groups
    with zipfile.ZipFile(path) as entries:
        weights = sum(info.file_size for info in entries.infolist() if info.filename.startswith("weights/"))
    assert stored / 2 <= weights <= stored + 4 * N + 4096 * 4


def test_an_update_may_choose_groups_otherwise(tmp_path: Path, cache_dir: Path) -> None:
    """The order of the columns is computed by the archive."""
    make, _ = FORMS["GPTQ with g_idx"]
    model, other = make(N, K, GROUP), make(N, K, GROUP)
    path = tmp_path / "m.aotpack"
    x = torch.randn(5, K)
    build_archive(aot_export(model, (x,)), path, options=BuildOptions(cache_dir=cache_dir, updatable=True))
    archive = aotpack.runtime.load(path)
    for weights in (model, other):
        torch.testing.assert_close(torch.from_dlpack(archive(x)), weights(x), rtol=1e-4, atol=1e-3)
        archive.update_weights(other.state_dict())
    wrong = other.state_dict()
    wrong["stored3"] = torch.full((K,), K // GROUP, dtype=torch.int32)
    with pytest.raises(aotpack.errors.AotpackError):
        archive.update_weights(wrong)
    torch.testing.assert_close(torch.from_dlpack(archive(x)), other(x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_torch_packed(dtype: torch.dtype, tmp_path: Path, cache_dir: Path) -> None:
    """Also in the entry that folds other weights, which unpacks them without torch."""

    def made() -> torch.nn.Sequential:
        return torch.nn.Sequential(
            Int4Linear(240, 512, 32, dtype), torch.nn.SiLU(), DynamicInt4Linear(208, 240, 240, bias=True)
        )

    model, other = made(), made()
    try:
        model(torch.randn(1, 512).to(dtype))
    except RuntimeError:
        pytest.skip("this torch quantizes none of bfloat16")
    program = aot_export(model, (torch.randn(3, 512).to(dtype),), dynamic_shapes=({0: Dim("rows", min=1, max=80)},))
    path = tmp_path / "m.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, updatable=True))
    archive = aotpack.runtime.load(path)
    for weights in (model, other):
        for rows in (1, 3, 80):
            x = torch.randn(rows, 512).to(dtype)
            expected = weights(x)
            found = torch.from_dlpack(archive(x))
            assert found.dtype == dtype
            # One step of an activation in 255 and of a bfloat16 in 256.
            torch.testing.assert_close(found, expected, rtol=0, atol=float(expected.abs().max()) / 100)
        archive.update_weights(other.state_dict())
