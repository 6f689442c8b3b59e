"""Snapshots of the Python state of a model: what changed since one was taken, and how to go back to it."""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from aotpack.building.collector import no_collections
from aotpack.export.diagnostics import model_lines
from aotpack.export.torch_compat.modules import is_loading
from aotpack.export.torch_compat.tensors import storage_id
from aotpack.export.tracing.python_state.nodes import ABSENT, Elements, Globals, Node, Walk

# Python's modules that read sources for the stacks that torch notes. What they keep is no state of a model, and every
# line of every file that a stack named.
_READERS = frozenset({"inspect", "linecache", "tokenize", "traceback"})

CONTENTS = "contents"
"""The key of a change of everything that a list or set holds."""


@dataclass(frozen=True)
class Place:
    """One entry of a node, or with `CONTENTS` all of them."""

    node: Node
    key: Any

    @property
    def label(self) -> str:
        """How messages call it."""
        return self.node.label if self.key is CONTENTS else self.node.entry_label(self.key)

    @property
    def name(self) -> str:
        """Its name as state."""
        return self.node.name if self.key is CONTENTS else self.node.entry_name(self.key)

    def value(self) -> Any:
        """What is there now."""
        return self.node.owner if self.key is CONTENTS else self.node.read().get(self.key, ABSENT)

    def put(self, value: Any) -> None:
        self.node.put(self.key, value)


@dataclass(frozen=True)
class Change:
    """A place whose value a call changed: `before` and `after`, or one tensor with other elements (`written`)."""

    place: Place
    before: Any
    after: Any
    written: bool = False


@dataclass
class Watch:
    """What one capture knows of a model's Python state.

    Attributes:
        tables: the globals that functions of the model name.
        followed: whether a call was followed, to find these.
        changes: what the first call changed.
    """

    tables: dict[int, Globals] = field(default_factory=dict)
    followed: bool = False
    changes: list[Change] = field(default_factory=list)


_WATCH: contextvars.ContextVar[Watch | None] = contextvars.ContextVar("aotpack_python_state", default=None)


def current() -> Watch | None:
    """The watch of the capture that is going on."""
    return _WATCH.get()


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """While active, one capture goes on."""
    token = _WATCH.set(Watch())
    try:
        watch = _WATCH.get()
        assert watch is not None
        yield watch
    finally:
        _WATCH.reset(token)


def storage_key(tensor: torch.Tensor) -> int | None:
    """Equal for tensors that share memory; None for those without memory of the usual kind."""
    try:
        return storage_id(tensor)
    except (NotImplementedError, RuntimeError, ValueError):
        return None


class Snapshot:
    """The Python state that a module leads to, as it is now.

    Args:
        module: a model.
        on_tensor: called with each tensor found that is neither parameter nor buffer, also when found later.
    """

    def __init__(self, module: torch.nn.Module, on_tensor: Callable[[torch.Tensor], None] | None = None) -> None:
        self.entries: list[tuple[Node, dict[Any, Any]]] = []
        self._walk = Walk()
        self._on_tensor = on_tensor
        self._tables: dict[int, Globals] = {}
        self._watch = current()
        self._add(module, "self", "")
        for table in (self._watch.tables if self._watch is not None else {}).values():
            self._add_globals(table.owner, table.label, table.names)

    def restore(self) -> None:
        """Makes everything as it was."""
        for node, entries in self.entries:
            node.restore(entries)

    def changes(self, written: Callable[[torch.Tensor], bool]) -> list[Change]:
        """What is otherwise now. `written`: whether the elements of a tensor have changed."""
        found: list[Change] = []
        for node, before in self.entries:
            after = node.read()
            if not node.keyed or (isinstance(node, Elements) and len(before) != len(after)):
                if list(before.items()) != list(after.items()):
                    found.append(Change(Place(node, CONTENTS), before, after))
                continue
            for key in {**before, **after}:
                old, new = before.get(key, ABSENT), after.get(key, ABSENT)
                if old is new:
                    if any(written(tensor) for tensor in tensors_of(old)):
                        found.append(Change(Place(node, key), old, new, written=True))
                elif not same(old, new):
                    found.append(Change(Place(node, key), old, new))
        return found

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """While active, globals that functions of the model name belong to the snapshot from when these are entered.

        Garbage is not collected meanwhile: callbacks of libraries that note collections in globals are not the model's.
        """
        watch = self._watch
        if watch is None or watch.followed:
            with no_collections():
                yield
            return
        seen: set[types.CodeType] = set()
        previous = sys.gettrace()

        def entered(frame: types.FrameType, event: Any, argument: Any) -> Any:
            code = frame.f_code
            if code not in seen:
                seen.add(code)
                table = frame.f_globals
                if (
                    model_lines.is_model(code.co_filename, "code")
                    and table.get("__name__") not in _READERS
                    and not is_loading(table)
                ):
                    self._add_globals(table, os.path.basename(code.co_filename), set(code.co_names))
            return None if previous is None else previous(frame, event, argument)

        sys.settrace(entered)
        try:
            with no_collections():
                yield
        finally:
            sys.settrace(previous)
            watch.tables, watch.followed = self._tables, True

    def _add_globals(self, owner: dict[str, Any], label: str, names: set[str]) -> None:
        table = self._tables.get(id(owner))
        if table is None:
            table = self._tables[id(owner)] = Globals(owner, label)
            self.entries.append((table, {}))
        entries = next(entries for node, entries in self.entries if node is table)
        new = names - table.names
        table.names |= new
        for name, value in table.read().items():
            if name in new:
                entries[name] = value
                self._add(value, table.entry_label(name), name)

    def _add(self, value: Any, label: str, name: str) -> None:
        self._found(value)
        for node in self._walk.nodes(value, label, name):
            entries = node.read()
            self.entries.append((node, entries))
            for entry in entries.values():
                self._found(entry)

    def _found(self, value: Any) -> None:
        if self._on_tensor is not None:
            for tensor in tensors_of(value):
                self._on_tensor(tensor)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensor that a value is, or those in a tuple; no parameters."""
    if issubclass(type(value), tuple):
        return [tensor for item in value for tensor in tensors_of(item)]
    is_plain = issubclass(type(value), torch.Tensor) and not issubclass(type(value), torch.nn.Parameter)
    return [value] if is_plain else []


_VALUES = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)


def same(old: Any, new: Any) -> bool:
    """Whether two values are one object, or equal values without tensors."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, float):
        return bool(old == new) or (old != old and new != new)
    if isinstance(old, (*_VALUES, types.MethodType)):
        return bool(old == new)
    if type(old) in (tuple, list):
        return len(old) == len(new) and all(same(a, b) for a, b in zip(old, new, strict=True))
    if type(old) is dict:
        return list(old) == list(new) and all(same(old[key], new[key]) for key in old)
    return False
