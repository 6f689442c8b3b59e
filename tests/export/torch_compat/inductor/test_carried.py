"""Which values of a loop are updated where they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx
from torch import Tensor

from aotpack.export.torch_compat.inductor.carried import update_in_place

aten = torch.ops.aten


def put(cache: Any, i: Any, value: Any) -> Any:
    return aten.index_put.default(cache, [i], value)


def updated(i: Tensor, x: Tensor, cache: Tensor) -> Any:
    new = put(cache, i, x)
    return i + 1, x + aten.sum.default(new), new


def read_before(i: Tensor, x: Tensor, cache: Tensor) -> Any:
    return i + 1, x + aten.sum.default(cache), put(cache, i, x)


def read_after(i: Tensor, x: Tensor, cache: Tensor) -> Any:
    new = put(cache, i, x)
    return i + 1, x + aten.sum.default(new) + aten.sum.default(cache), new


def put_into_another(i: Tensor, x: Tensor, cache: Tensor) -> Any:
    return i + 1, cache, put(x, i, cache)


def returned_twice(i: Tensor, x: Tensor, cache: Tensor) -> Any:
    new = put(cache, i, x)
    return i + 1, new, new


def put_into_itself(i: Tensor, x: Tensor, cache: Tensor) -> Any:
    return i + 1, x, put(cache, i, cache)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (updated, [2]),
        (read_before, []),
        (read_after, []),
        (put_into_another, []),
        (returned_twice, []),
        (put_into_itself, []),
    ],
)
def test_values_without_other_readers(body: Callable[..., Any], expected: list[int]) -> None:
    module = torch.fx.symbolic_trace(body)
    assert update_in_place(module, 3) == expected
    written = [node for node in module.graph.nodes if node.target is aten.index_put_.default]
    assert len(written) == len(expected)


def test_what_is_not_carried_stays() -> None:
    module = torch.fx.symbolic_trace(updated)
    assert update_in_place(module, 2) == []
