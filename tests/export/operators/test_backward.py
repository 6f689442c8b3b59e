"""The backward of every differentiable operator of the core ATen set, traced through torch.autograd.grad.

One captured function computes all of them, so that there is one archive to build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.export.conftest import Build, assert_close

aten = torch.ops.aten

# Core operators without a derivative of their own: results are not floating or constant, or views that others cover.
NOT_DIFFERENTIABLE = frozenset(
    "_local_scalar_dense any arange argmax argmin bitwise_and bitwise_not bitwise_or bitwise_xor copy empty "  # noqa: SIM905
    "empty_strided eq fill full full_like ge gt isinf isnan le logical_and logical_not logical_or logical_xor lt ne "
    "nonzero rand randn randperm resize resize_ scalar_tensor sym_is_contiguous sym_numel sym_size "
    "sym_storage_offset sym_stride".split()
)
# Derivatives of random operators are compared elsewhere, since eager draws other numbers.
RANDOM = frozenset(["native_dropout"])


@dataclass(frozen=True)
class Case:
    """`function` of the tensors of `sizes`, whose elements lie in `domain`, is differentiated with respect to each."""

    function: Callable[..., Any]
    sizes: tuple[tuple[int, ...], ...]
    domain: tuple[float, float] = (-2.0, 2.0)

    def operands(self) -> list[Tensor]:
        low, high = self.domain
        return [torch.rand(size, dtype=torch.float32) * (high - low) + low for size in self.sizes]


M = (4, 5)
ROWS = torch.tensor([[2, 0, 1], [0, 3, 3]])
KEEP = torch.arange(20).reshape(M) % 3 != 1
PLACES = torch.tensor([3, 0, 3, 1])
IMAGE = (2, 4, 6, 8)
VOLUME = (1, 2, 4, 5, 6)


def _unary() -> Iterator[tuple[str, Case]]:
    anywhere = "abs alias atan asinh ceil clone cos cosh erf exp expm1 floor gelu hardtanh leaky_relu neg relu round "
    anywhere += "sigmoid sign sin sinh tanh trunc elu"
    for name in anywhere.split():
        yield name, Case(getattr(aten, name), (M,))
    for name in ("log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"):
        yield name, Case(getattr(aten, name), (M,), (0.1, 3.0))
    for name in ("acos", "asin", "atanh", "tan"):
        yield name, Case(getattr(aten, name), (M,), (-0.9, 0.9))
    yield "acosh", Case(aten.acosh, (M,), (1.1, 4.0))


def _arithmetic() -> dict[str, Case]:
    return {
        "add": Case(lambda a, b: torch.add(a, b, alpha=2), (M, (5,))),
        "sub": Case(lambda a, b: torch.sub(a, b, alpha=3), ((4, 1), (5,))),
        "mul": Case(torch.mul, (M, (4, 1))),
        "div": Case(torch.div, (M, M), (0.5, 2.0)),
        "atan2": Case(torch.atan2, (M, M)),
        "fmod": Case(torch.fmod, (M, (5,)), (0.5, 3.0)),
        "remainder": Case(torch.remainder, (M, (5,)), (0.5, 3.0)),
        "maximum": Case(torch.maximum, (M, (5,))),
        "minimum": Case(torch.minimum, (M, M)),
        "pow": Case(lambda a, b: (a.pow(b), a.pow(3), torch.pow(2.0, b)), (M, M), (0.2, 2.0)),
        "clamp": Case(lambda a, b: (a.clamp(-1, 1), a.clamp(b - 1, b + 1)), (M, M)),
        "where": Case(lambda a, b: torch.where(KEEP, a, b), (M, (5,))),
        "_to_copy": Case(lambda a: a.to(torch.float64).sin().to(torch.float32), (M,)),
    }


def _products() -> dict[str, Case]:
    return {
        "mm": Case(torch.mm, (M, (5, 3))),
        "bmm": Case(torch.bmm, ((2, 4, 5), (2, 5, 3))),
        "addmm": Case(lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), ((3,), M, (5, 3))),
        "convolution": Case(
            lambda x, w, b, t: (F.conv2d(x, w, b, stride=2, padding=1, groups=2), F.conv_transpose2d(x, t, dilation=2)),
            (IMAGE, (6, 2, 3, 3), (6,), (4, 3, 2, 2)),
        ),
        "_cdist_forward": Case(lambda a, b: (torch.cdist(a, b), torch.cdist(a, b, p=1.5)), (M, (3, 5))),
        "_pdist_forward": Case(F.pdist, (M,)),
    }


def _reductions() -> dict[str, Case]:
    return {
        "sum": Case(lambda a: (a.sum(), a.sum(1)), (M,)),
        "mean": Case(lambda a: (a.mean(), a.mean(0, keepdim=True)), (M,)),
        "var": Case(lambda a: (a.var(1), a.std(0, correction=0)), (M,)),
        "prod": Case(lambda a: (a.prod(), a.prod(1)), (M,)),
        "amax": Case(lambda a: a.amax(1), (M,)),
        "amin": Case(lambda a: a.amin((0, 1)), (M,)),
        "max": Case(lambda a: (a.max(), a.max(1)[0]), (M,)),
        "min": Case(lambda a: (a.min(), a.min(0)[0]), (M,)),
        "cumsum": Case(lambda a: (a.cumsum(1), a.cumprod(0), a.logcumsumexp(1), a.cummax(0)[0]), (M,)),
        "sort": Case(lambda a: (a.sort(1, descending=True)[0], a.kthvalue(2)[0], a.median(0)[0]), (M,)),
        "topk": Case(lambda a: a.topk(3, 1)[0], (M,)),
        "_softmax": Case(lambda a: a.softmax(1), (M,)),
        "_log_softmax": Case(lambda a: (a.log_softmax(0), F.cross_entropy(a, PLACES)), (M,)),
    }


def _moves() -> dict[str, Case]:
    return {
        "as_strided": Case(lambda a: a.sin().as_strided((3, 2), (4, 3), 1), (M,)),
        "cat": Case(lambda a, b: torch.cat([a, b, a], 1), (M, (4, 2))),
        "constant_pad_nd": Case(lambda a: (F.pad(a, (1, 2), value=0.5), F.pad(a, (-1, 2, 1, 0))), (M,)),
        "diagonal": Case(lambda a: a.diagonal(1), (M,)),
        "embedding": Case(lambda w: F.embedding(ROWS, w, padding_idx=3), (M,)),
        "embedding_dense_backward": Case(lambda g: aten.embedding_dense_backward(g, ROWS, 4, -1, False), ((2, 3, 5),)),
        "_embedding_bag": Case(
            lambda w, p: (
                F.embedding_bag(ROWS, w, mode="mean"),
                F.embedding_bag(ROWS, w, mode="sum", per_sample_weights=p),
                F.embedding_bag(ROWS, w, mode="max"),
            ),
            (M, (2, 3)),
        ),
        "expand": Case(lambda a: a.expand(3, 4, 5), ((4, 1),)),
        "flip": Case(lambda a: a.flip(0, 1), (M,)),
        "gather": Case(lambda a: a.gather(1, ROWS), (M,)),
        "index": Case(lambda a: (a[PLACES], a[:, [0, 0, 2]]), (M,)),
        "index_put": Case(
            lambda a, b: (a.index_put((PLACES[:2],), b), a.index_put((PLACES,), b[0], accumulate=True)), (M, (2, 5))
        ),
        "index_select": Case(lambda a: a.index_select(0, PLACES), (M,)),
        "masked_scatter": Case(lambda a, b: a.masked_scatter(KEEP, b), (M, M)),
        "permute": Case(lambda a: a.permute(1, 0), (M,)),
        "repeat": Case(lambda a: a.repeat(2, 3), (M,)),
        "scatter": Case(lambda a, b: (a.scatter(1, ROWS, b), a.scatter(1, ROWS, 2.0)), (M, (2, 3))),
        "scatter_add": Case(lambda a, b: a.scatter_add(1, ROWS, b), (M, (2, 3))),
        "scatter_reduce": Case(
            lambda a, b: [a.scatter_reduce(1, ROWS, b, how) for how in ("sum", "prod", "mean", "amax", "amin")],
            (M, (2, 3)),
            (0.5, 2.0),
        ),
        "select": Case(lambda a: a.select(1, -2), (M,)),
        "select_scatter": Case(lambda a, b: a.select_scatter(b, 1, 2), (M, (4,))),
        "slice": Case(lambda a: a[1:, ::2], (M,)),
        "slice_scatter": Case(lambda a, b: a.slice_scatter(b, 1, 0, 4, 2), (M, (4, 2))),
        "split_with_sizes": Case(lambda a: a.split([2, 0, 3], 1)[::2], (M,)),
        "squeeze": Case(lambda a: (a.squeeze(), a.squeeze(1)), ((4, 1, 5),)),
        "unsqueeze": Case(lambda a: a.unsqueeze(1), (M,)),
        "view": Case(lambda a: a.view(2, 10), (M,)),
    }


def _images() -> dict[str, Case]:
    return {
        "_adaptive_avg_pool2d": Case(
            lambda a: (F.adaptive_avg_pool2d(a, (3, 5)), F.adaptive_avg_pool2d(a, 2)), (IMAGE,)
        ),
        "_adaptive_avg_pool2d_backward": Case(
            lambda g, a: aten._adaptive_avg_pool2d_backward(g, a), ((2, 4, 3, 5), IMAGE)
        ),
        "_adaptive_avg_pool3d": Case(lambda a: F.adaptive_avg_pool3d(a, (2, 3, 2)), (VOLUME,)),
        "adaptive_avg_pool1d": Case(lambda a: F.adaptive_avg_pool1d(a, 3), ((2, 3, 7),)),
        "avg_pool1d": Case(lambda a: F.avg_pool1d(a, 3, 2, 1), ((2, 3, 7),)),
        "avg_pool2d": Case(lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), (IMAGE,)),
        "avg_pool2d_backward": Case(
            lambda g, a: aten.avg_pool2d_backward(g, a, [2, 2], [2, 2], [0, 0], False, True, None),
            ((2, 4, 3, 4), IMAGE),
        ),
        "avg_pool3d": Case(lambda a: F.avg_pool3d(a, 2), (VOLUME,)),
        "max_pool2d_with_indices": Case(lambda a: F.max_pool2d(a, 3, 2, 1), (IMAGE,)),
        "max_pool3d_with_indices": Case(lambda a: F.max_pool3d(a, 2, 1), (VOLUME,)),
        "max_pool2d_with_indices_backward": Case(
            lambda g, a: aten.max_pool2d_with_indices_backward(
                g, a, [2, 2], [2, 2], [0, 0], [1, 1], False, F.max_pool2d(a, 2, return_indices=True)[1]
            ),
            ((2, 4, 3, 4), IMAGE),
        ),
        "col2im": Case(lambda a: (F.fold(a, (4, 5), 2), F.unfold(F.fold(a, (4, 5), 2), 3)), ((2, 12, 12),)),
        "grid_sampler_2d": Case(
            lambda a, g: (F.grid_sample(a, g.tanh(), align_corners=False), F.grid_sample(a, g, "bicubic", "border")),
            (IMAGE, (2, 3, 5, 2)),
        ),
        "upsample_bilinear2d": Case(lambda a: F.interpolate(a, (9, 5), mode="bilinear"), (IMAGE,)),
        "upsample_nearest2d": Case(lambda a: F.interpolate(a, scale_factor=2), (IMAGE,)),
        "reflection_pad1d": Case(lambda a: F.pad(a, (2, 1), "reflect"), ((2, 3, 7),)),
        "reflection_pad2d": Case(lambda a: F.pad(a, (2, 1, 1, 0), "reflect"), (IMAGE,)),
        "reflection_pad3d": Case(lambda a: F.pad(a, (2, 1, 1, 0, 1, 1), "reflect"), (VOLUME,)),
        "replication_pad2d": Case(lambda a: F.pad(a, (2, 1, 1, 0), "replicate"), (IMAGE,)),
        "replication_pad3d": Case(lambda a: F.pad(a, (2, 1, 1, 0, 1, 1), "replicate"), (VOLUME,)),
    }


def _norms() -> dict[str, Case]:
    def batch_norm(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
        mean, var = torch.linspace(-1, 1, 4), torch.linspace(0.5, 2, 4)
        mean, var = mean.to(x.dtype), var.to(x.dtype)
        return [F.batch_norm(x, mean, var, w, b), F.batch_norm(x, None, None, w, b, training=True)]

    return {
        "native_layer_norm": Case(lambda x, w, b: F.layer_norm(x, (6, 8), w, b), (IMAGE, (6, 8), (6, 8))),
        "native_group_norm": Case(lambda x, w, b: F.group_norm(x, 2, w, b), (IMAGE, (4,), (4,))),
        "_native_batch_norm_legit": Case(batch_norm, (IMAGE, (4,), (4,))),
        "_fft_r2c": Case(lambda a: torch.view_as_real(torch.fft.rfft(a)), (M,)),
        "_fft_c2r": Case(lambda a: torch.fft.irfft(torch.fft.rfft(a).abs() * torch.fft.rfft(a)), (M,)),
    }


# Computed by the entry that is named: the backward of an operator is itself a core operator, or one stands for several.
COVERED = {
    "_native_batch_norm_legit_no_training": "_native_batch_norm_legit",
    "convolution_backward": "convolution",
    "native_group_norm_backward": "native_group_norm",
    "native_layer_norm_backward": "native_layer_norm",
}

CASES = {**dict(_unary()), **_arithmetic(), **_products(), **_reductions(), **_moves(), **_images(), **_norms()}


def derivatives(name: str, operands: list[Tensor]) -> list[Tensor | None]:
    leaves = [t.detach().requires_grad_() for t in operands]
    results = CASES[name].function(*leaves)
    tensors = [results] if isinstance(results, Tensor) else list(results)
    total = sum(((t * _weights(t)).sum() for t in tensors), torch.zeros((), dtype=tensors[0].dtype))
    return list(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))


def _weights(t: Tensor) -> Tensor:
    """Cotangents: fixed, all different."""
    return torch.linspace(-1.0, 1.5, t.numel(), dtype=t.dtype).view(t.shape)


def test_every_core_operator_is_listed() -> None:
    # Not by dir(): that has only what somebody has asked for.
    names = {full.partition("::")[2].partition(".")[0] for full in torch._C._dispatch_get_all_op_names()}
    core = set()
    for name in names:
        packet = getattr(aten, name, None)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            tags = [getattr(packet, overload).tags for overload in packet.overloads()]
            if any(torch.Tag.core in each for each in tags):
                core.add(name)
    assert core - NOT_DIFFERENTIABLE - RANDOM - COVERED.keys() <= CASES.keys()
    assert not CASES.keys() & NOT_DIFFERENTIABLE


def everything(operands: dict[str, list[Tensor]]) -> dict[str, list[Tensor | None]]:
    return {name: derivatives(name, tensors) for name, tensors in operands.items()}


@pytest.mark.parametrize("part", range(2))
def test_backward_of_core_operators(build: Build, part: int) -> None:
    names = sorted(CASES)[part::2]
    archive = build(everything, ({name: CASES[name].operands() for name in names},))
    torch.manual_seed(7)
    for _ in range(2):
        call = {name: CASES[name].operands() for name in names}
        expected = everything({name: [t.double() for t in tensors] for name, tensors in call.items()})
        got = archive(call)
        for name in names:
            try:
                assert_close(got[name], expected[name], 1e-4)
            except AssertionError as error:
                raise AssertionError(f"the backward of {name}: {error}") from error
