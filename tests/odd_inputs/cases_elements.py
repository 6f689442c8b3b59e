"""Scans, sorts, indices, masks, scatters, embedding bags and special functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from aotpack.export import ops
from aotpack.export.ops.special import NAMES
from tests.odd_inputs.harness import Case
from tests.odd_inputs.tensors import REALS, around, distinct, indices, values

aten, ours = torch.ops.aten, torch.ops.aotpack
_CPU = "aoti_torch_cpu_"


def cases() -> Iterator[Case]:
    yield from _scans()
    yield from _sorts()
    yield from _indices()
    yield from _masks()
    yield from _scatters()
    yield from _integers()
    yield from _bags()
    yield from _special_functions()


def _scans() -> Iterator[Case]:
    for sizes in around(4, 5, 6):
        for dim in (0, 1, -1):
            for dtype in REALS:
                x = values(*sizes, dtype=dtype)
                loose = 0.1 if dtype in (torch.bfloat16, torch.float16) else None
                yield Case(f"{_CPU}cumsum", _typed(aten.cumsum), (x, dim, None), tolerance=loose)
                yield Case(f"{_CPU}cumprod", _typed(aten.cumprod), (x, dim, None), tolerance=loose)
            x = values(*sizes)
            yield Case(f"{_CPU}logcumsumexp", aten.logcumsumexp, (x, dim))
            yield Case(f"{_CPU}cummax", aten.cummax, (x, dim))
            yield Case(f"{_CPU}cummin", aten.cummin, (x, dim))


def _typed(operator: Any) -> Any:
    return lambda x, dim, dtype: operator(x, dim, dtype=dtype)


def _sorts() -> Iterator[Case]:
    for sizes in around(3, 7, 2):
        for dim in (0, 1, -1):
            x = distinct(*sizes)
            yield Case(f"{_CPU}sort", aten.sort, (x, dim, True), (0,))
            yield Case(f"{_CPU}sort_stable", _stable, (x, True, dim, False))
            yield Case(f"{_CPU}topk", aten.topk, (x, min(1, x.shape[dim]), dim, True, True), (0,))
            if x.shape[dim]:
                yield Case(f"{_CPU}kthvalue", aten.kthvalue, (x, x.shape[dim], dim, False), (0,))
        edges = torch.sort(values(*sizes)).values
        more = values(*sizes[:-1], 5)
        yield Case(f"{_CPU}searchsorted_Tensor", _searched, (edges, more, False, True, None, None), (0,))
        yield Case(f"{_CPU}bucketize_Tensor", _bucketed, (more, edges.flatten().sort().values, False, False), (1,))
    yield Case(f"{_CPU}searchsorted_Scalar", _searched, (torch.sort(values(9)).values, 0.3, True, False, None, None))


def _stable(x: Tensor, stable: bool, dim: int, descending: bool) -> Any:
    return aten.sort.stable(x, stable=stable, dim=dim, descending=descending)


def _searched(edges: Tensor, x: Any, int32: bool, right: bool, side: str | None, sorter: Tensor | None) -> Any:
    return torch.searchsorted(edges, x, out_int32=int32, right=right, side=side, sorter=sorter)


def _bucketed(x: Tensor, edges: Tensor, int32: bool, right: bool) -> Any:
    return torch.bucketize(x, edges, out_int32=int32, right=right)


def _indices() -> Iterator[Case]:
    for n, m, k in around(5, 4, 3, zeros=(2,)):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
            x = values(n, m, k, dtype=dtype)
            first, second = indices(n, 6), indices(m, 2, 1)
            yield Case(f"{_CPU}index_Tensor", lambda x, i: aten.index.Tensor(x, i), (x, [first, None, None]))
            yield Case(f"{_CPU}index_Tensor", lambda x, i: aten.index.Tensor(x, i), (x, [first, second]))
            if dtype != torch.complex64:
                given = values(6, m, k, dtype=dtype)
                for accumulate in (False, dtype != torch.bool):
                    rows = first if accumulate else torch.randperm(max(n, 6))[:6] % n
                    arguments = (x, [rows if accumulate or n > 5 else rows[: min(n, 6)]], None, accumulate)
                    arguments = (x, arguments[1], given[: arguments[1][0].shape[0]], accumulate)
                    # Where indices repeat, any of the values may stay.
                    once = accumulate or len(set(arguments[1][0].tolist())) == arguments[1][0].shape[0]
                    loose = 0.1 if dtype == torch.bfloat16 else None
                    yield Case(f"{_CPU}index_put", aten.index_put, arguments, compare=once, tolerance=loose)
    x = values(5, 4)
    wrong = torch.tensor([0, 7, 1])
    yield Case(f"{_CPU}index_Tensor", lambda x, i: aten.index.Tensor(x, i), (x, [wrong]), refused=True)
    yield Case("aoti_torch_index_put_out", aten.index_put, (x, [torch.tensor([2, 0])], values(2, 4), False))


def _masks() -> Iterator[Case]:
    for sizes in around(3, 4, 5):
        x, mask = values(*sizes), values(*sizes, dtype=torch.bool)
        yield Case(f"{_CPU}nonzero", aten.nonzero, (values(*sizes, dtype=torch.int32),))
        yield Case(f"{_CPU}nonzero_static", _static, (mask, 7, -1))
        yield Case(f"{_CPU}masked_select", aten.masked_select, (x, mask))
        yield Case(f"{_CPU}masked_scatter", aten.masked_scatter, (x, mask, values(*sizes)))
        repeats = indices(4, sizes[0])
        yield Case(f"{_CPU}repeat_interleave_Tensor", _repeated, (repeats, None))


def _static(x: Tensor, size: int, fill: int) -> Tensor:
    return torch.nonzero_static(x, size=size, fill_value=fill)


def _repeated(repeats: Tensor, size: int | None) -> Tensor:
    return aten.repeat_interleave.Tensor(repeats, output_size=size)


def _scatters() -> Iterator[Case]:
    for n, m in around(6, 5, zeros=(1,)):
        for dtype in REALS:
            x, source = values(n, m, dtype=dtype), values(n, m, dtype=dtype)
            order = torch.rand(n, m).argsort(0)
            yield Case(f"{_CPU}scatter_src_out", aten.scatter.src, (x, 0, order, source), (2,))
            yield Case(f"{_CPU}scatter_value_out", aten.scatter.value, (x, 0, order, 1.0), (2,))
            if dtype == torch.bool:
                continue
            loose = 0.1 if dtype in (torch.bfloat16, torch.float16) else None
            index = indices(n, n, m)
            for reduce in ("sum", "prod", "mean", "amax", "amin"):
                yield Case(
                    f"{_CPU}scatter_reduce_two_out",
                    lambda x, d, i, s, r, w: x.scatter_reduce(d, i, s, r, include_self=bool(w)),
                    (x, 0, index, source, reduce, True),
                    tolerance=loose,
                )
                if reduce != "sum":
                    yield Case(
                        f"{_CPU}index_reduce",
                        lambda x, d, i, s, r, w: x.index_reduce(d, i, s, r, include_self=bool(w)),
                        (x, 0, indices(n, 4), values(4, m, dtype=dtype), reduce, False),
                        tolerance=loose,
                    )


def _integers() -> Iterator[Case]:
    for dtype in (torch.int64, torch.int32, torch.uint8):
        for sizes in around(4, 5):
            a, b = values(*sizes, dtype=dtype), values(*sizes, dtype=dtype)
            yield Case(f"{_CPU}integer_binary", ours.integer_binary, (a, b, 0))
            yield Case(f"{_CPU}integer_binary", ours.integer_binary, (a, b.abs(), 1))


def _bags() -> Iterator[Case]:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for rows, width, count in around(9, 21, 6, zeros=(2,)):
            weight, ids = values(rows, width, dtype=dtype), indices(rows, count)
            offsets = torch.tensor([0, min(2, count), min(2, count)])
            for mode in (0, 1, 2):
                arguments: tuple[Any, ...] = (weight, ids, offsets, mode, None, False, -1)
                yield Case(f"{_CPU}embedding_bag", ops.embedding_bag, arguments, (2,))
                yield Case(f"{_CPU}embedding_bag_full", _bags_in_full, arguments, (2,))
            scales = values(count, dtype=dtype)
            arguments = (weight, ids, offsets, 0, scales, False, 0)
            yield Case(f"{_CPU}embedding_bag", ops.embedding_bag, arguments, (2,))
            bags = ours.embedding_bag_full(weight, ids, offsets, 0, None, False, -1)
            gradient = values(3, width, dtype=dtype)
            name = f"{_CPU}_embedding_bag_dense_backward"
            arguments = (gradient, ids, bags[1], bags[2], bags[3], rows, False, 0, None, -1)
            yield Case(name, aten._embedding_bag_dense_backward, arguments, (2, 3, 4), tolerance=0.1)
            name = f"{_CPU}_embedding_bag_per_sample_weights_backward"
            arguments = (gradient, weight, ids, offsets, bags[1], 0, -1)
            yield Case(name, aten._embedding_bag_per_sample_weights_backward, arguments, (3, 4), tolerance=0.1)


def _bags_in_full(weight: Tensor, ids: Tensor, offsets: Tensor, *options: Any) -> Any:
    # Below its functional form torch takes indices to lie densely.
    return ours.embedding_bag_full(weight.contiguous(), ids.contiguous(), offsets.contiguous(), *options)


def _special_functions() -> Iterator[Case]:
    function = f"{_CPU}special_function"
    for number, name in enumerate(NAMES):
        for dtype in (torch.float32, torch.float64):
            for sizes in around(3, 4) if number == 0 else [(3, 4)]:
                # Where all of them are finite.
                x = torch.rand(sizes, dtype=dtype) * 0.9 + 0.05
                second = torch.full_like(x, 2.0) if name == "polygamma" else torch.rand(sizes, dtype=dtype) * 3 + 0.5
                yield Case(function, ours.special_function, (x + 1.5 if name == "zeta" else x, second, number))
