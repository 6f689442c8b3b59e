"""Operator programs: indexing, gather and scatter, sort and scan."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.seeds.dynamic_template import bools, ints, made, positive, program


def _assigned(x: Tensor, i: Tensor) -> Tensor:
    y = x.clone()
    y[i] = 7.0
    return y


def _column_assigned(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0] = y[:, -1] * 2
    return y


def _half_assigned(x: Tensor) -> Tensor:
    y = x.clone()
    y[: x.shape[0] // 2] += 1
    return y


INDEXING = (
    program("index_rows", lambda x, i: x[i], "n k", ints("m", "n"), least={"n": 1}),
    program("index_pairs", lambda x, i, j: x[i, j], "n k", ints("m", "n"), ints("m", "k"), least={"n": 1, "k": 1}),
    program("index_columns", lambda x, i: x[:, i], "n k", ints("m", "k"), least={"k": 1}),
    program("index_negative", lambda x, i: x[-1 - i], "n k", ints("m", "n"), least={"n": 1}),
    program("index_matrix", lambda x, i: x[i], "n k", ints("a b", "n"), least={"n": 1}),
    program("index_select", lambda x, i: x.index_select(1, i), "b n", ints("m", "n"), least={"n": 1}),
    program("gather", lambda x, i: x.gather(1, i), "b n", ints("b m", "n"), least={"n": 1}),
    program(
        "take_along_dim",
        lambda x, i: torch.take_along_dim(x, i, 0),
        "n k",
        ints("m k", "n"),
        least={"n": 1},
        refused="fixes the dim 'take_along_dim_",
    ),
    program("take", lambda x, i: torch.take(x, i), "n k", ints("m", "n"), least={"n": 1, "k": 1}),
    program("scatter", lambda x, i, y: x.scatter(1, i, y), "b n", ints("b 1", "n"), "b 1", least={"n": 1}),
    program("scatter_value", lambda x, i: x.scatter(1, i, 3.0), "b n", ints("b m", "n"), least={"n": 1}),
    program("scatter_add", lambda x, i, y: x.scatter_add(1, i, y), "b n", ints("b m", "n"), "b m", least={"n": 1}),
    program(
        "scatter_amax",
        lambda x, i, y: x.scatter_reduce(1, i, y, "amax"),
        "b n",
        ints("b m", "n"),
        "b m",
        least={"n": 1},
    ),
    program("index_add", lambda x, i, y: x.index_add(0, i, y), "n k", ints("m", "n"), "m k", least={"n": 1}),
    program("index_copy", lambda x, y: x.index_copy(0, torch.arange(y.shape[0]), y), "n+2 k", "n k"),
    program("index_fill", lambda x, i: x.index_fill(0, i, -1.0), "n k", ints("m", "n"), least={"n": 1}),
    program(
        "index_put_accumulate",
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        "n k",
        ints("m", "n"),
        "m k",
        least={"n": 1},
    ),
    program("assign_rows", _assigned, "n k", ints("m", "n"), least={"n": 1}),
    program("assign_column", _column_assigned, "b n", least={"n": 1}),
    program("assign_half", _half_assigned, "b n"),
    program("slice_scatter", lambda x, y: x.slice_scatter(y, 0, 1, 1 + y.shape[0]), "n+2 k", "n k"),
    program("select_scatter", lambda x, y: x.select_scatter(y, 1, 0), "b n", "b", least={"n": 1}),
    program("diagonal_scatter", lambda x, y: x.diagonal_scatter(y), "n n", "n"),
    program("masked_scatter", lambda x, m: x.masked_scatter(m, x.flip(0)), "n", bools("n")),
    program("embedding_rows_by_mask", lambda x, m: torch.where(m[:, None], x, x.flip(0)), "n k", bools("n")),
    program("boolean_assign", lambda x, m: torch.where(m, torch.zeros(()), x), "b n", bools("b n")),
    program(
        "bincount_by_scatter",
        lambda i, x: x.scatter_add(0, i, torch.ones_like(i)),
        ints("m", "n"),
        ints("n"),
        least={"n": 1},
    ),
)

SORT_AND_SCAN = (
    program("sort", lambda x: x.sort(-1), "b n"),
    program("sort_descending_stable", lambda x: x.sort(dim=0, descending=True, stable=True), ints("b n", 4)),
    program("argsort", lambda x: x.argsort(dim=-1, stable=True), "b n"),
    program("topk", lambda x: x.topk(3, -1), "b n", least={"n": 3}),
    program("topk_smallest", lambda x: x.topk(2, 0, largest=False).values, "b n", least={"b": 2}),
    program("topk_by_size", lambda x: x.topk(x.shape[-1] // 2, -1).values, "b n"),
    program("kthvalue", lambda x: x.kthvalue(2, -1), "b n", least={"n": 2}),
    program("median", lambda x: x.median(-1).values, "b n", least={"n": 1}),
    program("quantile", lambda x: torch.quantile(x, 0.25, dim=-1), "b n", least={"n": 1}),
    program("cumsum", lambda x: x.cumsum(-1), "b n", tolerance=1e-4),
    program("cumsum_first_dim", lambda x: x.cumsum(0), "b n", tolerance=1e-4),
    program("cumprod", lambda x: x.cumprod(-1), positive("b n", 0.8, 1.2)),
    program("cummax", lambda x: x.cummax(-1), "b n"),
    program("cummin", lambda x: x.cummin(0), "b n"),
    program("logcumsumexp", lambda x: x.logcumsumexp(-1), "b n"),
    program("diff", lambda x: x.diff(dim=-1), "b n", least={"n": 1}),
    program("searchsorted", torch.searchsorted, made("n", lambda s: torch.randn(s).sort().values), "b k"),
    program("bucketize", torch.bucketize, "b k", made("n", lambda s: torch.randn(s).sort().values)),
    program("cumsum_of_mask", lambda m: m.long().cumsum(-1) * m, bools("b n")),
    program("rank_of_each", lambda x: x.argsort(dim=-1, stable=True).argsort(dim=-1, stable=True), "b n"),
    program("trapezoid", lambda x: torch.trapezoid(x, dim=-1), "b n", least={"n": 1}),
)
