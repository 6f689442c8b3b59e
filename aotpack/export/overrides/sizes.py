"""Functions whose sizes torch does not know, computes wrongly, or fixes in a trace.

What `narrow` takes from a data-dependent place, to which torch binds no tensor, is a copy.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from aotpack.export.overrides.table import overrides
from aotpack.export.torch_compat.functions import assert_async


@overrides(torch.masked_select, Tensor.masked_select)
def _masked_select(input: Tensor, mask: Tensor) -> Any:
    # torch takes the result for no greater than `input`, also where the mask makes more of it.
    return torch.masked_select(*torch.broadcast_tensors(input, mask))


@overrides(torch.narrow, Tensor.narrow)
def _narrow(input: Tensor, dim: int, start: Any, length: Any) -> Any:
    if not isinstance(start, Tensor):
        return NotImplemented
    size = input.shape[dim]
    assert_async((start >= -size) & (start + length <= size), "narrow: start and length exceed the dimension")
    places = torch.where(start < 0, start + size, start) + torch.arange(length, device=input.device)
    return input.index_select(dim, places)


@overrides(torch.tensor_split, Tensor.tensor_split)
def _tensor_split(input: Tensor, tensor_indices_or_sections: Any = None, dim: int = 0, **others: Any) -> Any:
    places = tensor_indices_or_sections
    if not isinstance(places, Tensor) or places.dim() != 1:
        return NotImplemented
    # torch reads a tensor of the CPU, which a GPU's program does not have.
    numbers: Any = [place.item() for place in places.unbind()]
    return torch.tensor_split(input, numbers, dim)


@overrides(torch.combinations)
def _combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    if input.dim() != 1 or isinstance(input.shape[0], torch.SymInt) or r < 2:
        return NotImplemented
    n = input.shape[0]
    count = math.comb(n + r - 1, r) if with_replacement and n else math.comb(n, r)
    places = torch.meshgrid([torch.arange(n, device=input.device)] * r, indexing="ij")
    kept = torch.ones_like(places[0], dtype=torch.bool)
    for before, after in itertools.pairwise(places):
        kept = kept & (before <= after if with_replacement else before < after)
    return input[torch.nonzero_static(kept, size=count)]


@overrides(torch.nn.functional.one_hot)
def _one_hot(input: Tensor, num_classes: int = -1) -> Any:
    if num_classes != -1:
        return NotImplemented
    assert_async((input >= 0).all(), "Class values must be non-negative.")
    classes: Any = (input.max() + 1).clamp(min=0).item()
    torch._check(classes >= 0)
    return (input.unsqueeze(-1) == torch.arange(classes, device=input.device)).to(torch.int64)


# torch takes the size of what these return from the wrong end where `dim` is negative.


@overrides(torch.unique_consecutive, Tensor.unique_consecutive)
def _unique_consecutive(input: Tensor, *args: Any, dim: int | None = None, **kwargs: Any) -> Any:
    if dim is None or dim >= 0:
        return NotImplemented
    return torch.unique_consecutive(input, *args, dim=dim + max(input.dim(), 1), **kwargs)


@overrides(torch.unique, Tensor.unique)
def _unique(input: Tensor, *args: Any, dim: int | None = None, **kwargs: Any) -> Any:
    if dim is None or dim >= 0:
        return NotImplemented
    return torch.unique(input, *args, dim=dim + max(input.dim(), 1), **kwargs)


@overrides(torch.cdist)
def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Any:
    # Which way is faster would be decided by the number of rows, which then could not vary.
    rows = (x1.shape[-2], x2.shape[-2])
    if p != 2 or "necessary" not in compute_mode or not any(isinstance(size, torch.SymInt) for size in rows):
        return NotImplemented
    return torch.cdist(x1, x2, p, "donot_use_mm_for_euclid_dist")


@overrides(torch.pdist)
def _pdist(input: Tensor, p: float = 2.0) -> Any:
    # Where a graph is traced a second time torch decomposes it for the example's number of rows.
    if input.dim() != 2 or not input.is_floating_point() or p < 0:
        return NotImplemented
    return torch.ops.aten._pdist_forward.default(input.contiguous(), p)
