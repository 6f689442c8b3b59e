"""Keeping a model as it was while an example call runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.dispatch import FollowingMode
from aotpack.export.torch_compat.operators import HigherOrderOperator, operator_schema, written_arguments
from aotpack.export.torch_compat.tensors import storage_id
from aotpack.export.tracing.over_functions import HINTS
from aotpack.export.tracing.python_state.provenance import Writes
from aotpack.export.tracing.python_state.snapshot import Change, Snapshot, current, storage_key, tensors_of
from aotpack.export.tracing.resized import Shapes


class Kept:
    """The state of a model while a call runs: tensors and Python objects, which are put back.

    Args:
        module: the model.
        writes: for calls over fake tensors, what they would have written.
    """

    def __init__(self, module: torch.nn.Module, writes: Writes | None = None) -> None:
        self._module = module
        # Batch norm writes to its buffers without saying so; all parameters, copied, would be the model twice.
        # Buffers on the meta device, as constants that passes add to a graph, hold nothing that could change. Calls
        # over fake tensors change none.
        buffers = {} if writes is not None else dict(module.named_buffers())
        self._buffers = {key: value.clone() for key, value in buffers.items() if not value.is_meta}
        self._shapes = Shapes()
        for tensor in (*module.parameters(), *module.buffers()):
            self._shapes.add(tensor)
        self._written: _Written | Writes = (
            _Written(list(module.parameters()), self._shapes) if writes is None else writes
        )
        watched = {storage_key(value) for value in module.buffers()}

        def watch(tensor: torch.Tensor) -> None:
            if storage_key(tensor) not in watched:
                self._shapes.add(tensor)
                self._written.watch(tensor)

        self.snapshot = Snapshot(module, watch)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While active, the model is called; afterwards it is as before."""
        try:
            with self._written, self.snapshot.following():
                yield
            watch = current()
            if watch is not None and not watch.changes:
                watch.changes = self.changes()
        finally:
            self.put_back()

    def changes(self) -> list[Change]:
        """What the call has changed in Python objects."""
        return self.snapshot.changes(self._written.changed)

    def refuse_resized(self) -> None:
        """Refuses a call, which has ended, that has given a tensor of the model another shape.

        Raises:
            CaptureError: naming the tensor and the line of the model.
        """
        self._shapes.refuse_changes(self._named_tensors())

    def put_back(self) -> None:
        """Makes everything as it was."""
        self.snapshot.restore()
        self._shapes.put_back()
        with torch.no_grad():
            for key, value in self._module.named_buffers():
                if key in self._buffers and not torch.equal(value, self._buffers[key]):
                    value.copy_(self._buffers[key])
        self._written.put_back()

    def _named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from ((f"buffer {name!r}", tensor) for name, tensor in self._module.named_buffers())
        yield from ((f"parameter {name!r}", tensor) for name, tensor in self._module.named_parameters())
        for node, entries in self.snapshot.entries:
            yield from ((node.entry_label(key), t) for key, value in entries.items() for t in tensors_of(value))


@contextlib.contextmanager
def state_put_back(module: torch.nn.Module, writes: Writes | None = None) -> Iterator[Kept]:
    """State of the model is afterwards as before: capture must see the model as the user gave it. See `Kept`."""
    kept = Kept(module, writes)
    with kept.running():
        yield kept


@contextlib.contextmanager
def objects_put_back(module: torch.nn.Module) -> Iterator[None]:
    """Python objects of the model are afterwards as before, for a trace, which writes to no tensor of the model."""
    snapshot = Snapshot(module)
    try:
        yield
    finally:
        snapshot.restore()


class _Written(FollowingMode):
    """Copies a tensor right before an operator writes to it for the first time."""

    def __init__(self, parameters: list[torch.nn.Parameter], shapes: Shapes) -> None:
        super().__init__()
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._before: dict[int, torch.UntypedStorage] = {}
        self._shapes = shapes
        for parameter in parameters:
            self.watch(parameter)

    def watch(self, tensor: torch.Tensor) -> None:
        """Tensors that share memory with this one are copied too."""
        key = storage_key(tensor)
        if key is not None:
            self._storages[key] = tensor.untyped_storage()

    def changed(self, tensor: torch.Tensor) -> bool:
        """Whether memory of this tensor was written to, and has other bytes now."""
        before = self._before.get(storage_key(tensor) or 0)
        return before is not None and not torch.equal(_bytes(before), _bytes(tensor.untyped_storage()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator) and func.name() in HINTS:
            raise CaptureError(f"{func.name()} is not supported", hint=HINTS[func.name()])
        return super().__torch_dispatch__(func, types, args, kwargs)

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(func, HigherOrderOperator):
            return func(*args, **kwargs)
        if "batch_norm" in func.name():
            # Their schemas do not say what they write to.
            self._save((args, kwargs))
        if not operator_schema(func).is_mutable:
            return func(*args, **kwargs)
        targets = written_arguments(operator_schema(func), args, kwargs)
        self._save(targets)
        result = func(*args, **kwargs)
        self._shapes.written(targets)
        return result

    def put_back(self) -> None:
        for key, before in self._before.items():
            storage = self._storages[key]
            if storage.nbytes() != before.nbytes():
                storage.resize_(before.nbytes())
            storage.copy_(before)

    def _save(self, given: Any) -> None:
        for tensor in pytree.tree_leaves(given):
            if not isinstance(tensor, torch.Tensor):
                continue
            key = storage_id(tensor)
            if key in self._storages and key not in self._before:
                self._before[key] = self._storages[key].clone()


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)
