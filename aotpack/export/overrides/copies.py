"""Shallow copies of tensors: `copy.copy(x)` asks for the address of the storage, which a trace does not have."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aotpack.export.overrides.table import overrides


@overrides(Tensor.__reduce_ex__)
def _reduced(input: Tensor, protocol: Any) -> Any:
    """What `copy.copy` calls to make the copy: a tensor without history, in the same memory."""
    return _sharing, (input,)


def _sharing(input: Tensor) -> Tensor:
    return input.detach().requires_grad_(input.requires_grad)
