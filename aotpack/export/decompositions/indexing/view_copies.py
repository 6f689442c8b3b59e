"""Views that torch copies: torch.select_copy and the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes

_VIEWS = {
    aten._reshape_alias_copy.default: aten.as_strided.default,
    aten.select_copy.int: aten.select.int,
    aten.slice_copy.Tensor: aten.slice.Tensor,
    aten.split_copy.Tensor: aten.split.Tensor,
    aten.view_as_complex_copy.default: aten.view_as_complex.default,
    aten.view_as_real_copy.default: aten.view_as_real.default,
}


def _copied(view: Any) -> Any:
    def copy(*args: Any, **kwargs: Any) -> Any:
        result = view(*args, **kwargs)
        if isinstance(result, Tensor):
            return result.clone(memory_format=torch.contiguous_format)
        return [part.clone(memory_format=torch.contiguous_format) for part in result]

    return copy


for _operator, _view in _VIEWS.items():
    decomposes(_operator)(_copied(_view))


@decomposes(aten.detach_copy.default)
def _detach(x: Tensor) -> Any:
    return x.clone(memory_format=torch.contiguous_format)


@decomposes(aten._conj_copy.default)
def _conjugated(x: Tensor) -> Any:
    return x.conj_physical() if x.is_complex() else x.clone(memory_format=torch.contiguous_format)


@decomposes(aten._neg_view_copy.default)
def _negative(x: Tensor) -> Any:
    return -x
