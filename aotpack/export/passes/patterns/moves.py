"""Operators of one tensor that move or repeat its elements, and those that convert them."""

from __future__ import annotations

import torch

aten = torch.ops.aten

RESHAPES = (
    aten.reshape.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
)
REPEATS = (aten.expand.default, aten.repeat.default, aten.repeat_interleave.self_int)
# Copy nothing where strides allow it.
VIEWS = (
    *RESHAPES,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.slice.Tensor,
    aten.narrow.default,
    aten.select.int,
    aten.alias.default,
)
COPIES = (aten.clone.default, aten.contiguous.default)
MOVES = (*VIEWS, *REPEATS, *COPIES)
CASTS = (aten._to_copy.default, aten.to.dtype, torch.ops.prims.convert_element_type.default)
