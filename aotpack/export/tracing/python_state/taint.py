"""Which tensors a call computes from its data: from its arguments and from what the model has written to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.dispatch import FollowingMode
from aotpack.export.torch_compat.operators import schema_or_none
from aotpack.export.tracing.python_state.snapshot import storage_key

_OF_SIZES_ALONE = ("zeros_like", "ones_like", "full_like", "empty_like", "new_")
_TO_NUMBERS = ("_local_scalar_dense", "item", "equal", "nonzero", "masked_select")


class Taint(FollowingMode):
    """While active, follows what is computed from data.

    Attributes:
        numbers: whether a number was taken out of such a tensor. What Python computes from it is not followed.
    """

    def __init__(self, data: Iterable[Any]) -> None:
        super().__init__()
        self.numbers = False
        self._tainted: dict[int, Any] = {}
        for tensor in data:
            self._add(tensor)

    def __contains__(self, value: Any) -> bool:
        """Whether a value is a tensor of data, or a container with one."""
        return any(
            isinstance(leaf, torch.Tensor) and (storage_key(leaf) is None or storage_key(leaf) in self._tainted)
            for leaf in pytree.tree_leaves(value)
        )

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if (args, kwargs) not in self:
            return result
        name = func.name().rpartition("::")[2]
        self.numbers |= name.startswith(_TO_NUMBERS)
        if name.startswith(_OF_SIZES_ALONE):
            return result
        schema = schema_or_none(func)
        written = [a for a, s in zip(args, schema.arguments, strict=False) if s.is_write] if schema is not None else []
        for leaf in pytree.tree_leaves((result, written)):
            self._add(leaf)
        return result

    def _add(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            key = storage_key(value)
            if key is not None:
                # The storage is kept, so that no other gets its address.
                self._tainted[key] = value.untyped_storage()
