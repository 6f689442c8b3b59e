"""Keeping a model as it was while an example call runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aotpack.errors import CaptureError

# Operators over functions, for which TorchInductor's code would call into libtorch.
_REFUSED = {
    "cond": "compute both sides and choose by torch.where, or leave that part outside the archive",
    "while_loop": "write the loop in Python, with a number of steps that does not depend on the data",
    "flex_attention": "call F.scaled_dot_product_attention, with the score and block masks as a tensor for attn_mask",
}


@contextlib.contextmanager
def state_put_back(module: torch.nn.Module) -> Iterator[None]:
    """Buffers and parameters are afterwards as before: capture must see the model as the user gave it."""
    # Batch norm writes to its buffers without saying so; all parameters, copied, would be the model twice.
    buffers = {key: value.clone() for key, value in module.named_buffers()}
    written = _Written(list(module.parameters()))
    try:
        with written:
            yield
    finally:
        with torch.no_grad():
            for key, value in module.named_buffers():
                if key in buffers and not torch.equal(value, buffers[key]):
                    value.copy_(buffers[key])
        written.put_back()


class _Written(TorchDispatchMode):
    """Copies a parameter right before an operator writes to it for the first time."""

    supports_higher_order_operators = True

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages = {p.untyped_storage()._cdata: p.untyped_storage() for p in parameters}
        self._before: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            if func.name() in _REFUSED:
                raise CaptureError(f"{func.name()} has no kernel", hint=_REFUSED[func.name()])
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            for position, argument in enumerate(func._schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    given = args[position] if position < len(args) else kwargs.get(argument.name)
                    self._save(given)
        return func(*args, **kwargs)

    def put_back(self) -> None:
        for key, before in self._before.items():
            self._storages[key].copy_(before)

    def _save(self, given: Any) -> None:
        for tensor in pytree.tree_leaves(given):
            if not isinstance(tensor, torch.Tensor):
                continue
            key = tensor.untyped_storage()._cdata
            if key in self._storages and key not in self._before:
                self._before[key] = self._storages[key].clone()
