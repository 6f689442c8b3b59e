"""Sampling of grids, resampling, max pooling, histograms, segments, and what else is not elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from aotpack.export import ops
from tests.odd_inputs.harness import Case
from tests.odd_inputs.tensors import KERNEL_DTYPES, around, indices, positive, values

aten, ours = torch.ops.aten, torch.ops.aotpack
_CPU = "aoti_torch_cpu_"


def cases() -> Iterator[Case]:
    yield from _grids()
    yield from _resampled()
    yield from _max_pools()
    yield from _counted()
    yield from _segments()
    yield from _losses()
    yield from _attention()


def _grids() -> Iterator[Case]:
    for batch, channels, size in around(2, 3, 4, zeros=(0,)):
        flat, deep = values(batch, channels, size, 5), values(batch, channels, size, 5, 3)
        grid2, grid3 = values(batch, 4, 6, 2), values(batch, 2, 4, 3, 3)
        for mode in (0, 1, 2):
            for padding in (0, 1, 2):
                how = (mode, padding, padding == 1)
                both = [True, True]
                gradient = values(batch, channels, 4, 6)
                backward = aten.grid_sampler_2d_backward
                yield Case(f"{_CPU}grid_sampler_2d_backward", backward, (gradient, flat, grid2, *how, both))
                if mode < 2:
                    yield Case(f"{_CPU}grid_sampler_3d", aten.grid_sampler_3d, (deep, grid3, *how))
                    gradient = values(batch, channels, 2, 4, 3)
                    arguments = (gradient, deep, grid3, *how, both)
                    yield Case(f"{_CPU}grid_sampler_3d_backward", aten.grid_sampler_3d_backward, arguments)


def _resampled() -> Iterator[Case]:
    for dtype in (*KERNEL_DTYPES, torch.float64):
        for batch, channels, size in around(2, 3, 6, zeros=(0,)):
            x = values(batch, channels, size, 5, dtype=dtype)
            for mode in (2, 3, 4, 5):
                for to in ([3, 9], [1, 1]):
                    how = (mode, False, [0.0, 0.0])
                    yield Case(f"{_CPU}resample", ours.resample, (x, to, *how))
                    gradient = values(batch, channels, *to, dtype=dtype)
                    arguments = (gradient, [size, 5], *how)
                    yield Case(f"{_CPU}resample_backward", ours.resample_backward, arguments)

    for batch, channels, size in around(2, 5, 9, zeros=(0,)):
        x = torch.randint(0, 256, (batch, channels, size, 300), dtype=torch.uint8)
        for mode in (4, 5):
            for to in ([3, 301], [20, 40], [size, 7], [1, 300]):
                yield Case(f"{_CPU}resample", ours.resample, (x, to, mode, False, [0.0, 0.0]))


def _max_pools() -> Iterator[Case]:
    for dtype in (*KERNEL_DTYPES, torch.uint8, torch.int8):
        for n, c, h, w in around(2, 35, 7, 9, zeros=(0,)):
            for kernel, stride, padding, dilation, ceil in (
                ([1, 1], [1, 1], [0, 0], [1, 1], False),
                ([3, 2], [2, 1], [1, 1], [1, 1], True),
                ([2, 3], [1, 3], [1, 1], [1, 1], False),
                ([1, 2], [3, 2], [0, 1], [2, 3], True),
            ):
                if w + 2 * padding[1] < dilation[1] * (kernel[1] - 1) + 1 or h + 2 * padding[0] < kernel[0]:
                    continue
                x = values(n, c, h, w, dtype=dtype)
                scales = (None,) if dtype.is_floating_point else (None, torch.tensor(0.5), torch.tensor([-2.0]))
                for scale in scales:
                    arguments = (x, scale, kernel, stride, padding, dilation, ceil)
                    yield Case(f"{_CPU}max_pool", ops.max_pool, arguments)


def _counted() -> Iterator[Case]:
    for points, dims in around(20, 2):
        x = values(points, dims)
        if dims:
            edges = torch.cat([torch.linspace(-2, 2, 4)] * dims)
            weight = positive(points)
            counted = ours.histogram_counts
            yield Case(f"{_CPU}histogram_counts", counted, (x, edges, [3] * dims, None), (1,))
            yield Case(f"{_CPU}histogram_counts", counted, (x, edges, [3] * dims, weight), (1,))
            yield Case(f"{_CPU}histogram_edges", ours.histogram_edges, (x, [3] * dims, []))
        yield Case(f"{_CPU}histc", aten.histc, (x, 5, -1.0, 1.0))
        for dtype in (torch.float32, torch.int64, torch.bool):
            few = values(points, dims, dtype=dtype)
            if dims:
                yield Case(f"{_CPU}sort_rows", ours.sort_rows, (few,))
            if points and dims:
                # Of equal values any place may be told.
                yield Case(f"{_CPU}mode", lambda x, d, k: aten.mode(x, d, k)[0], (few, 0, False))
    ids = indices(9, 4, 5)
    yield Case(f"{_CPU}check_bounds", ours.check_bounds, (ids.float(), 0.0, 8.0, "out of bounds"))
    yield Case(f"{_CPU}check_bounds", ours.check_bounds, (ids.float(), 0.0, -1.0, "out of bounds"), refused=True)


def _segments() -> Iterator[Case]:
    lengths = torch.tensor([2, 0, 3])
    offsets = torch.tensor([0, 2, 2, 5])
    for width in (1, 4, 0):
        data = values(5, width, dtype=torch.float64)
        for reduce in ("sum", "mean", "max", "min"):
            for by in ((lengths, None, None), (None, None, offsets)):
                yield Case(f"{_CPU}segment_reduce", _reduced, (data, reduce, *by, 0, True, 1.5), packed=(2, 4))
            result = _reduced(data, reduce, lengths, None, None, 0, True, 1.5)
            arguments = (values(3, width, dtype=torch.float64), result, data, reduce, lengths, None, 0, 1.5)
            yield Case(f"{_CPU}_segment_reduce_backward", _segment_gradient, arguments, packed=(1, 2, 4))


def _reduced(x: Tensor, reduce: str, lengths: Any, ids: Any, offsets: Any, axis: int, unsafe: bool, first: Any) -> Any:
    return torch.segment_reduce(
        x, reduce, lengths=lengths, indices=ids, offsets=offsets, axis=axis, unsafe=unsafe, initial=first
    )


def _segment_gradient(
    g: Tensor, y: Tensor, x: Tensor, reduce: str, lengths: Any, offsets: Any, axis: int, first: Any
) -> Any:
    contiguous = (g.contiguous(), y.contiguous(), x.contiguous())
    return aten._segment_reduce_backward(
        *contiguous, reduce, lengths=lengths, offsets=offsets, axis=axis, initial=first
    )


def _losses() -> Iterator[Case]:
    classes = 5
    for steps, batch in around(8, 3, zeros=()):
        log_probs = values(steps, batch, classes, dtype=torch.float64).log_softmax(-1)
        targets = torch.randint(1, classes, (batch, 3))
        of_inputs = torch.full((batch,), steps)
        of_targets = torch.full((batch,), min(2, steps))
        arguments = (log_probs, targets, of_inputs, of_targets, 0, True)
        fixed = (2, 3)
        yield Case(f"{_CPU}ctc_loss", lambda *a: ours.ctc_loss(*a)[0], arguments, fixed)
        nll, alpha = ours.ctc_loss(*arguments)
        backward = (positive(batch, dtype=torch.float64), *arguments[:4], nll, alpha, 0, True)
        yield Case(f"{_CPU}ctc_loss_backward", ours.ctc_loss_backward, backward, tuple(range(1, 7)))


def _attention() -> Iterator[Case]:
    for dtype in (*KERNEL_DTYPES, torch.float64):
        loose = {torch.bfloat16: 6e-2, torch.float16: 1e-2}.get(dtype)
        for batch, heads, length, keys, depth in around(2, 4, 9, 17, 16, zeros=(0,)):
            q = values(batch, heads, length, depth, dtype=dtype)
            k, v = values(batch, heads, keys, depth, dtype=dtype), values(batch, heads, keys, depth, dtype=dtype)
            added = values(1, 1, length, keys, dtype=dtype)
            for mask in (None, added):
                arguments = (q, k, v, mask, False, 0.3)
                yield Case(f"{_CPU}attention_with_lse", ops.attention_with_lse, arguments, tolerance=loose)
            name = "_scaled_dot_product_flash_attention_for_cpu"
            arguments = (q, k, v, 0.0, length == keys, None, None)
            yield Case(_CPU + name, _flash, arguments, tolerance=loose)
            y, lse = ops.attention_with_lse(q, k, v, None, False, 0.3)
            backward = (values(*y.shape, dtype=dtype), q, k, v, y, lse, 0.0, False, None, 0.3)
            name = "_scaled_dot_product_flash_attention_for_cpu_backward"
            yield Case(_CPU + name, _attention_gradient, backward, (1, 2, 3, 4, 5), tolerance=loose)


def _flash(q: Tensor, k: Tensor, v: Tensor, dropout: float, causal: bool, mask: Any, scale: Any) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=scale)


def _attention_gradient(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor, p: float, causal: bool, mask: Any, scale: float
) -> list[Tensor]:
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v)]
    scores = leaves[0] @ leaves[1].mT * scale
    (scores.softmax(-1) @ leaves[2]).backward(g.double())
    return [leaf.grad.to(q.dtype) for leaf in leaves if leaf.grad is not None]
