"""Tensors that share memory: which one the others are views of."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotpack.errors import CaptureError
from aotpack.export.ir.program import identity
from aotpack.export.ir.rewriter import is_dense
from aotpack.export.torch_compat.tensors import storage_id


def storage_key(tensor: torch.Tensor) -> int | None:
    """What tensors over one memory have in common; None for a tensor without elements."""
    return storage_id(tensor) if tensor.numel() else None


def base_of(tensors: Sequence[torch.Tensor], names: Sequence[str]) -> torch.Tensor:
    """The tensor that all of `tensors`, which share memory, are views of.

    It is one of them that begins where the memory does and spans them all without gaps, a row-major one if there is;
    otherwise the whole memory as a tensor of rank 1. In all cases an offset in the memory is one in the tensor.

    Raises:
        CaptureError: they have different dtypes. `names` are theirs, for the message.
    """
    first = tensors[0]
    for tensor, name in zip(tensors, names, strict=True):
        if tensor.dtype != first.dtype:
            raise CaptureError(
                f"{names[0]!r} ({first.dtype}) and {name!r} ({tensor.dtype}) share memory that the model writes to",
                hint="keep one of them and compute the other from it in each call with view(dtype) or view_as_real",
            )
    end = max(_end(tensor) for tensor in tensors)
    spanning = [t for t in tensors if t.storage_offset() == 0 and _end(t) == end and t.numel() == end and is_dense(t)]
    if spanning:
        return next((tensor for tensor in spanning if tensor.is_contiguous()), spanning[0])
    size = first.untyped_storage().nbytes() // first.element_size()
    return first.detach().as_strided((size,), (1,), 0)


def view_arguments(tensor: torch.Tensor, base: torch.Tensor) -> tuple[list[int], list[int], int] | None:
    """The arguments of `as_strided` that make `tensor` of its base; None where they are the same view."""
    if identity(tensor) == identity(base):
        return None
    return list(tensor.shape), list(tensor.stride()), int(tensor.storage_offset())


def _end(tensor: torch.Tensor) -> int:
    """One past the last element in the memory; tensors have elements."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return int(tensor.storage_offset()) + 1 + sum((size - 1) * step for size, step in steps)
