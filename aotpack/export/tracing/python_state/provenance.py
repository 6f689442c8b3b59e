"""What tensors without values were computed from: two of equal provenance would hold equal values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.dispatch import FollowingMode
from aotpack.export.torch_compat.operators import schema_or_none, written_arguments
from aotpack.export.tracing.python_state.snapshot import storage_key


@dataclass(frozen=True)
class Computed:
    """A tensor without values: its shape, its dtype, and a hash of the operators and operands that led to it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    origin: int


class Provenance(FollowingMode):
    """While active, follows where tensors come from. It stands in front of the fake mode."""

    def __init__(self) -> None:
        super().__init__()
        self._own: Any = WeakIdKeyDictionary()
        self.written: dict[int, int] = {}
        self._kept: list[Any] = []

    def of(self, tensor: torch.Tensor) -> Computed:
        """Where a tensor comes from; one that no operator made comes from itself."""
        return Computed(tuple(tensor.shape), tensor.dtype, self._origin(tensor))

    def writes(self) -> Writes:
        """What is written from now on."""
        return Writes(self)

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, tree = pytree.tree_flatten((args, kwargs))
        operands = tuple(self._origin(leaf) if isinstance(leaf, torch.Tensor) else _text(leaf) for leaf in leaves)
        call = hash((str(func), operands, repr(tree)))
        result = func(*args, **kwargs)
        schema = schema_or_none(func)
        written = written_arguments(schema, args, kwargs) if schema is not None else []
        written = [leaf for leaf in written if isinstance(leaf, torch.Tensor)]
        for i, tensor in enumerate(written):
            key = storage_key(tensor)
            if key is not None:
                self._kept.append(tensor.untyped_storage())
                self.written[key] = hash((call, i, self.written.get(key)))
        for i, leaf in enumerate(pytree.tree_leaves(result)):
            if isinstance(leaf, torch.Tensor) and not any(leaf is tensor for tensor in written):
                self._own[leaf] = hash((call, i))
        return result

    def _origin(self, tensor: torch.Tensor) -> int:
        own = self._own.get(tensor)
        if own is None:
            # Kept, so that no other tensor gets its identity.
            self._kept.append(tensor)
            own = self._own[tensor] = hash(("given", id(tensor)))
        return hash((own, self.written.get(storage_key(tensor) or 0)))


class Writes:
    """The memory that calls over fake tensors would have written to; it is not, so there are no copies of it."""

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._before = dict(provenance.written)

    def __enter__(self) -> Writes:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def watch(self, tensor: torch.Tensor) -> None:
        """All memory is watched."""

    def changed(self, tensor: torch.Tensor) -> bool:
        """Whether memory of this tensor was written to."""
        key = storage_key(tensor)
        return key is not None and self._provenance.written.get(key) != self._before.get(key)

    def put_back(self) -> None:
        """From here on everything holds what it held before."""
        self._provenance.written = dict(self._before)


def _text(value: Any) -> Hashable:
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
