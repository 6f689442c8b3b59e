"""`aotpack::cuda_embedding_bag`: embedding bags, by a kernel of this project."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from aotpack.export.ops.cuda.block_sizes import power_of_two
from aotpack.export.ops.cuda.embedding_bag_kernel import embedding_bag_kernel
from aotpack.export.ops.cuda.launch import Launch, Launcher, launch
from aotpack.export.symbolic_shapes.hints import size_hint
from aotpack.export.torch_compat.operators import OpOverload

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Columns and elements that a block reads at once at most, and threads of a warp.
_MOST_COLUMNS = 256
_MOST_ELEMENTS = 2048
_WARP = 32


@triton_op("aotpack::cuda_embedding_bag", mutates_args={})
def cuda_embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor | None,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Tensor:
    """The sums, means or maxima of rows of a table, as torch.nn.functional.embedding_bag returns them.

    Args:
        weight: [rows, columns], of any strides.
        indices: [count], integers; without offsets [bags, length], length > 0.
        offsets: where each bag begins in `indices`, integers; with `include_last_offset` also where the last one ends.
        mode: 0 for sums, 1 for means, 2 for maxima.
        per_sample_weights: [count], factors of the rows of a sum; only with offsets.
        include_last_offset: whether the last offset begins no bag.
        padding_idx: the index that does not count; none if negative.

    Returns:
        [bags, columns], contiguous, of the dtype of `weight`. Sums are of single precision, of double precision for
        double, in an order that is the same in every call.
    """
    call = (weight, indices, offsets, mode, per_sample_weights, include_last_offset, padding_idx)
    return pooled(*call, launch)


def pooled(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor | None,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
    launcher: Launcher,
) -> Tensor:
    """`cuda_embedding_bag`, with the function that launches kernels."""
    (rows, columns), count = weight.shape, indices.shape[0]
    bags: Any = count if offsets is None else offsets.shape[0] - int(include_last_offset)
    length = indices.shape[1] if offsets is None else 0
    width = min(_MOST_COLUMNS, power_of_two(size_hint(columns)))
    expected = power_of_two(length or size_hint(count) // max(size_hint(bags), 1))
    grid: Any = (bags, (columns + width - 1) // width)
    arguments = {
        "weight": weight,
        "indices": indices,
        # They are not read where there are none.
        "offsets": indices if offsets is None else offsets,
        "scales": weight if per_sample_weights is None else per_sample_weights,
        "out": weight.new_empty((bags, columns)),
        "ROWS": rows,
        "COUNT": count,
        # With `include_last_offset`, each bag ends at an offset.
        "LAST": -1 if include_last_offset else bags - 1,
        "COLUMNS": columns,
        **dict(zip(("stride_wr", "stride_wc"), weight.stride(), strict=True)),
        "stride_ib": indices.stride(0),
        "stride_i": indices.stride(-1),
        "stride_o": 0 if offsets is None else offsets.stride(0),
        "stride_s": 0 if per_sample_weights is None else per_sample_weights.stride(0),
        "LENGTH": length,
        "MODE": mode,
        "HAS_SCALES": per_sample_weights is not None,
        "PADDING": padding_idx,
        "DOUBLE": weight.dtype == torch.float64,
        "BLOCK_ROWS": min(expected, _MOST_ELEMENTS // width),
        "BLOCK_COLUMNS": width,
        "num_warps": 1 if width <= _WARP else 4,
    }
    return launcher(Launch(embedding_bag_kernel, grid, arguments))


OPERATOR: OpOverload = torch.ops.aotpack.cuda_embedding_bag.default
