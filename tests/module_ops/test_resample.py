"""Resampling and grid sampling, forward and backward, against eager."""

from __future__ import annotations

import random

import pytest
import torch

from aotpack.export.ops.resampling import CUBIC, LINEAR, LINEAR_AA, resample, resample_backward
from tests.module_ops.cases import FLOATS, arrange, assert_same, aten
from tests.module_ops.harness import Driver, MakeDriver, OperatorError

pytestmark = pytest.mark.torch

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10, torch.bfloat16: 4e-2, torch.float16: 6e-3}


@pytest.fixture(scope="module")
def resampler(make_driver: MakeDriver) -> Driver:
    return make_driver("resample_driver", ("resample", "grid_sampler"))


def close(got: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    scale = max(1.0, wanted.abs().max().item()) if wanted.numel() else 1.0
    torch.testing.assert_close(
        got.double(), wanted.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale, equal_nan=True
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mode", range(7))
def test_resample(resampler: Driver, mode: int, dtype: torch.dtype) -> None:
    if mode == 6 and not hasattr(aten, "_upsample_lanczos2d_aa"):
        pytest.skip("torch has no Lanczos resampling")
    generator = random.Random(mode)
    for _ in range(25):
        spatial = 2 if mode >= CUBIC else generator.choice([1, 2, 3])
        sizes = [generator.choice([0, 1, 2]), generator.randint(1, 3)]
        inner = [generator.randint(1, 9) for _ in range(spatial)]
        size = [generator.choice([generator.randint(1, 14), n, 2 * n]) for n in inner]
        align = mode >= LINEAR and generator.random() < 0.5
        scales = [generator.choice([0, 0, 1550, 700]) for _ in size]
        if mode >= LINEAR_AA:
            # Factors near those of the sizes: far from them weights sum up to about nothing. And eager repeats the
            # first row of results that are one place wide (torch 2.13).
            size = [max(n, 2) for n in size]
            scales = [generator.choice([0, 1050 * n // m]) for n, m in zip(size, inner, strict=True)]
        x = arrange(generator, torch.randn([*sizes, *inner]).to(dtype))
        options = [mode, align, *scales]
        given = [scale / 1000 for scale in scales]
        threads = generator.choice([1, 2])
        # Half precision is rounded once here, after every dim in eager: compared with what float gives.
        wider = x.float() if dtype in (torch.bfloat16, torch.float16) else x
        if mode >= LINEAR:
            wanted = resample(wider, size, mode, align, given)
            (got,) = resampler("resample", [x], [*size, *options], threads=threads)
            assert got.dtype == dtype
            assert got.is_contiguous()
            assert got.shape == wanted.shape
            close(got, wanted, dtype)
        gradient = arrange(generator, torch.randn([*sizes, *size]).to(dtype))
        wider = gradient.float() if dtype in (torch.bfloat16, torch.float16) else gradient
        wanted = resample_backward(wider, inner, mode, align, given)
        (got,) = resampler("resample_backward", [gradient], [*inner, *options], threads=threads)
        assert got.dtype == dtype
        assert got.is_contiguous()
        assert got.shape == wanted.shape
        close(got, wanted, dtype)


def test_large_resampling_on_two_threads(resampler: Driver) -> None:
    x = torch.randn(2, 3, 120, 90)
    (got,) = resampler("resample", [x], [57, 201, 5, 0, 0, 0], threads=2)
    close(got, aten._upsample_bicubic2d_aa(x, [57, 201], False), torch.float32)
    (got,) = resampler("resample_backward", [got], [120, 90, 5, 0, 0, 0], threads=2)
    want = aten._upsample_bicubic2d_aa(x, [57, 201], False)
    close(got, aten._upsample_bicubic2d_aa_backward(want, [57, 201], [2, 3, 120, 90], False), torch.float32)


def test_resampling_of_nothing_is_an_error(resampler: Driver) -> None:
    with pytest.raises(OperatorError, match="greater than 0"):
        resampler("resample", [torch.randn(1, 1, 0)], [4, 2, 0, 0])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("spatial", [2, 3])
def test_grid_sampler(resampler: Driver, spatial: int, dtype: torch.dtype) -> None:
    generator = random.Random(spatial)
    modes = [0, 1, 2] if spatial == 2 else [0, 1]
    for mode in modes:
        for padding in (0, 1, 2):
            for align in (False, True):
                batch = generator.choice([0, 1, 3])
                x = torch.randn(batch, 3, *(generator.randint(1, 6) for _ in range(spatial))).to(dtype)
                points = [generator.randint(1, 6) for _ in range(spatial)]
                grid = (torch.rand(batch, *points, spatial) * 5 - 2.5).to(dtype)
                gradient = torch.randn(batch, 3, *points).to(dtype)
                tensors = [arrange(generator, t) for t in (gradient, x, grid)]
                wider = tensors if dtype in (torch.float32, torch.float64) else [t.float() for t in tensors]
                options = [mode, padding, align]
                if spatial == 3:
                    (got,) = resampler("grid_sampler_3d", tensors[1:], options, threads=2)
                    close(got, aten.grid_sampler_3d(*wider[1:], *options), dtype)
                    if dtype == torch.float32:
                        assert_same([got], aten.grid_sampler_3d, *tensors[1:], *options, tolerance=1e-4)
                operator = aten.grid_sampler_2d_backward if spatial == 2 else aten.grid_sampler_3d_backward
                results = resampler(f"grid_sampler_{spatial}d_backward", tensors, options, threads=2)
                for got, wanted in zip(results, operator(*wider, *options, [True, True]), strict=True):
                    assert got.dtype == dtype
                    assert got.shape == wanted.shape
                    close(got, wanted, dtype)


def test_equal_sizes_are_copied(resampler: Driver) -> None:
    x = torch.randn(1, 2, 5, 6)
    for name, mode in (("resample", LINEAR_AA), ("resample_backward", CUBIC)):
        (got,) = resampler(name, [x], [5, 6, mode, 0, 1100, 1100])
        assert torch.equal(got, x)
