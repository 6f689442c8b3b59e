"""Pooling, resampling and sampling through archives: one archive each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.export.conftest import Build
from tests.export.operators.functions import agree

aten = torch.ops.aten


def test_pools_and_their_backwards(build: Build) -> None:
    def pools(x: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        wide = ([9, 7], [3, 1], [4, 2], True)
        average = aten.avg_pool2d(x, *wide, False, None)
        best, place = aten.max_pool2d_with_indices(x, [7, 8], [2, 2], [1, 3], [2, 1], True)
        most, where = aten.max_pool3d_with_indices(v, [2, 3, 2], [1, 2, 2])
        some, there = aten.adaptive_max_pool3d(v, [3, 4, 5])
        return (
            average,
            aten.avg_pool2d_backward(average.sin(), x, *wide, False, None),
            aten.avg_pool2d_backward(g, x, [2, 2], [], [0, 0], False, True, None),
            aten.avg_pool3d(v, [3, 4, 3], [2, 1, 2], [1, 2, 1], False, True, 5),
            aten.avg_pool3d_backward(most.cos(), v, [2, 3, 2], [1, 2, 2], [0, 0, 0], False, True, None),
            best,
            place,
            aten.max_pool2d_with_indices_backward(best.sin(), x, [7, 8], [2, 2], [1, 3], [2, 1], True, place),
            aten.max_pool3d_with_indices_backward(most.sin(), v, [2, 3, 2], [1, 2, 2], [0] * 3, [1] * 3, False, where),
            aten._adaptive_avg_pool2d(x, [2, 3]),
            aten._adaptive_avg_pool2d_backward(g, x),
            aten._adaptive_avg_pool3d_backward(some.sin(), v),
            aten.adaptive_max_pool3d_backward(some.cos(), v, there),
            F.lp_pool3d(v, 2.0, 3),
            aten.replication_pad2d_backward(F.pad(x.sin(), [3, 0, 1, 2], mode="replicate"), x, [3, 0, 1, 2]),
        )  # fmt: skip

    def inputs() -> tuple[Tensor, ...]:
        return torch.randn(2, 3, 20, 22), torch.randn(2, 2, 7, 8, 9), torch.randn(2, 3, 10, 11)

    agree(build, pools, inputs(), inputs(), 1e-5)


def test_resampling_and_sampling(build: Build) -> None:
    def resampled(x: Tensor, v: Tensor, grid: Tensor, space: Tensor) -> tuple[Tensor, ...]:
        up = F.interpolate(v, scale_factor=(1.7, 2.0, 0.6), mode="trilinear")
        small = aten._upsample_bicubic2d_aa(x, [7, 30], False)
        flat = F.grid_sample(x, grid, "bicubic", "reflection", align_corners=False)
        return (
            up,
            aten.upsample_trilinear3d_backward(up.sin(), list(up.shape[2:]), list(v.shape), False, 1.7, 2.0, 0.6),
            F.interpolate(x, size=[9, 8], mode="bilinear", antialias=True),
            small,
            aten._upsample_bicubic2d_aa_backward(small.sin(), [7, 30], list(x.shape), False),
            aten.upsample_bilinear2d_backward(small, [7, 30], list(x.shape), True),
            aten._upsample_nearest_exact2d_backward(small, [7, 30], list(x.shape)),
            flat,
            *aten.grid_sampler_2d_backward(flat.sin(), x, grid, 2, 2, False, [True, True]),
            F.grid_sample(v, space, "bilinear", "border", align_corners=True),
            *aten.grid_sampler_3d_backward(F.grid_sample(v, space), v, space, 0, 0, False, [True, True]),
        )

    def inputs() -> tuple[Tensor, ...]:
        x, v = torch.randn(2, 3, 15, 12), torch.randn(2, 2, 5, 6, 7)
        return x, v, torch.rand(2, 4, 5, 2) * 3 - 1.5, torch.rand(2, 3, 4, 5, 3) * 3 - 1.5

    agree(build, resampled, inputs(), inputs(), 1e-4)


def test_fractional_max_pools_with_given_samples(build: Build) -> None:
    """Each dim has its own number, by which it differs from the others; with and without a batch."""

    def pools(x: Tensor, v: Tensor, xs: Tensor, vs: Tensor) -> tuple[Tensor, ...]:
        flat = F.fractional_max_pool2d(x, (2, 3), (5, 4), return_indices=True, _random_samples=xs)
        solid = F.fractional_max_pool3d(v, (2, 3, 1), (4, 5, 6), return_indices=True, _random_samples=vs)
        single = F.fractional_max_pool3d(v[0], 2, (1, 3, 7), _random_samples=vs[:1])
        lone = F.fractional_max_pool2d(x[0], 2, (6, 1), _random_samples=xs[:1])
        return *flat, *solid, single, lone

    x, v = torch.randn(2, 3, 13, 11), torch.randn(2, 3, 9, 12, 10)
    spread = torch.tensor([0.02, 0.97, 0.5])
    first = (x, v, spread[:2].expand(2, 3, 2).contiguous(), spread.expand(2, 3, 3).contiguous())
    others = (x + 1, v * 2, torch.rand(2, 3, 2), torch.rand(2, 3, 3))
    agree(build, pools, first, others, 0.0)
