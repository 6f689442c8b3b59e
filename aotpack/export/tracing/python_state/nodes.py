"""Places where Python keeps state: attributes, items of containers, variables of functions, globals.

A node is one mutable object with entries: the attributes of an object, the items of a dict. A place is one entry of a
node. Nodes are compared and restored entry by entry, by identity, so that a snapshot copies references alone.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Any = _Absent()
"""The value of an entry that is not there."""

_INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"} | {"_initialize_hook", "_load_hook"}
_TABLES = ("_buffers", "_parameters", "_modules")
_HOOKS = {
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
}
_FOREIGN = frozenset({"torch", "numpy", "sympy", "aotpack", "builtins", "triton"}) | sys.stdlib_module_names
_METHODS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)

# The attribute of a module in the place of a model that is the model: names and labels are as without the module.
STANDS_FOR = "stands_for_model"


class Node:
    """One mutable object.

    Attributes:
        owner: the object.
        label: how messages call it, such as `self.layer`.
        name: how names of state begin, such as `layer`; "" for the model.
        keyed: whether entries are compared one by one. Otherwise the contents are one value.
    """

    keyed = True

    def __init__(self, owner: Any, label: str, name: str) -> None:
        self.owner = owner
        self.label = label
        self.name = name

    def read(self) -> dict[Any, Any]:
        """The entries."""
        raise NotImplementedError

    def put(self, key: Any, value: Any) -> None:
        """Sets one entry; `ABSENT` removes it."""
        raise NotImplementedError

    def restore(self, entries: dict[Any, Any]) -> None:
        """Makes the entries these again."""
        now = self.read()
        for key in now.keys() - entries.keys():
            self.put(key, ABSENT)
        for key, value in entries.items():
            if now.get(key, ABSENT) is not value:
                self.put(key, value)

    def entry_label(self, key: Any) -> str:
        """How messages call an entry."""
        return f"{self.label}.{key}"

    def entry_name(self, key: Any) -> str:
        """The name of an entry as state."""
        return f"{self.name}.{key}" if self.name else str(key)


class Attributes(Node):
    """The attributes of an object, without what `torch.nn.Module` keeps for itself."""

    def __init__(self, owner: Any, label: str, name: str) -> None:
        super().__init__(owner, label, name)
        self._hidden = _INTERNAL if isinstance(owner, torch.nn.Module) else frozenset()
        classes = type(owner).__mro__
        slots = (vars(cls).get("__slots__", ()) for cls in classes)
        named = ((s,) if isinstance(s, str) else tuple(s) for s in slots)
        self._slots = tuple(s for group in named for s in group if s not in ("__dict__", "__weakref__"))

    def read(self) -> dict[Any, Any]:
        entries = {key: value for key, value in getattr(self.owner, "__dict__", {}).items() if key not in self._hidden}
        for slot in self._slots:
            try:
                entries[slot] = object.__getattribute__(self.owner, slot)
            except AttributeError:
                continue
        return entries

    def put(self, key: Any, value: Any) -> None:
        if key in self._slots:
            if value is ABSENT:
                object.__delattr__(self.owner, key)
            else:
                object.__setattr__(self.owner, key, value)
        elif value is ABSENT:
            self.owner.__dict__.pop(key, None)
        else:
            self.owner.__dict__[key] = value

    def entry_label(self, key: Any) -> str:
        return "self" if key == STANDS_FOR else super().entry_label(key)

    def entry_name(self, key: Any) -> str:
        return "" if key == STANDS_FOR else super().entry_name(key)


class Items(Node):
    """The items of a dict."""

    def read(self) -> dict[Any, Any]:
        # Not `dict(owner)`: a class of its own may load what it lacks.
        return dict(dict.items(self.owner))

    def put(self, key: Any, value: Any) -> None:
        # An OrderedDict keeps its order beside the items; dict's own methods would leave it behind.
        kind: Any = collections.OrderedDict if isinstance(self.owner, collections.OrderedDict) else dict
        if value is ABSENT:
            kind.pop(self.owner, key, None)
        else:
            kind.__setitem__(self.owner, key, value)

    def entry_label(self, key: Any) -> str:
        return f"{self.label}[{key!r}]"


class Table(Items):
    """The buffers, parameters or children of a module."""

    def entry_label(self, key: Any) -> str:
        return f"{self.label}.{key}"


class Hooks(Node):
    """The forward hooks of a module, by table and number. A first call may install some."""

    def __init__(self, owner: Any, label: str, name: str) -> None:
        super().__init__(owner, label, name)
        # How a hook is called, which torch notes in tables of their own.
        self._flags: dict[Any, list[dict[int, bool]]] = {}

    def read(self) -> dict[Any, Any]:
        entries = {}
        for table, notes in _HOOKS.items():
            flags = [vars(self.owner)[note] for note in notes]
            for number, hook in vars(self.owner)[table].items():
                entries[table, number] = hook
                self._flags[table, number] = [flag for flag in flags if number in flag]
        return entries

    def put(self, key: Any, value: Any) -> None:
        table, number = key
        if value is ABSENT:
            vars(self.owner)[table].pop(number, None)
            for note in _HOOKS[table]:
                vars(self.owner)[note].pop(number, None)
        else:
            vars(self.owner)[table][number] = value
            for flag in self._flags.get(key, []):
                flag[number] = True

    def entry_label(self, key: Any) -> str:
        return self.label

    def entry_name(self, key: Any) -> str:
        return self.name


class Globals(Items):
    """Those globals of a Python module that functions of the model name.

    Modules among them are not state: an import that was undone would not be repeated, as Python keeps what it imported.
    """

    def __init__(self, owner: dict[str, Any], label: str) -> None:
        super().__init__(owner, label, "")
        self.names: set[str] = set()

    def read(self) -> dict[Any, Any]:
        found = ((name, self.owner[name]) for name in self.names if name in self.owner)
        return {name: value for name, value in found if not issubclass(type(value), types.ModuleType)}

    def entry_label(self, key: Any) -> str:
        return f"the global {key!r} of {self.label}"


class Elements(Node):
    """The elements of a list or deque."""

    def read(self) -> dict[Any, Any]:
        return dict(enumerate(self.owner))

    def put(self, key: Any, value: Any) -> None:
        self.owner[key] = value

    def restore(self, entries: dict[Any, Any]) -> None:
        now = self.read()
        if len(now) != len(entries) or any(now[key] is not value for key, value in entries.items()):
            self.owner.clear()
            self.owner.extend(entries.values())

    def entry_label(self, key: Any) -> str:
        return f"{self.label}[{key!r}]"


class Members(Node):
    """The members of a set."""

    keyed = False

    def read(self) -> dict[Any, Any]:
        return dict.fromkeys(self.owner)

    def restore(self, entries: dict[Any, Any]) -> None:
        if self.read() != entries:
            self.owner.clear()
            self.owner.update(entries)


class Array(Node):
    """The elements of a numpy array, as bytes."""

    keyed = False

    def read(self) -> dict[Any, Any]:
        return {"bytes": self.owner.tobytes()}

    def restore(self, entries: dict[Any, Any]) -> None:
        if self.owner.flags.writeable:
            self.owner[...] = np.frombuffer(entries["bytes"], self.owner.dtype).reshape(self.owner.shape)


class Variable(Node):
    """A variable of a function, which a function inside of it shares."""

    def read(self) -> dict[Any, Any]:
        try:
            return {self.name: self.owner.cell_contents}
        except ValueError:
            return {}

    def put(self, key: Any, value: Any) -> None:
        if value is ABSENT:
            del self.owner.cell_contents
        else:
            self.owner.cell_contents = value

    def entry_label(self, key: Any) -> str:
        return self.label

    def entry_name(self, key: Any) -> str:
        return self.name


class ClassAttributes(Node):
    """The attributes of a class that are not methods."""

    def read(self) -> dict[Any, Any]:
        entries = vars(self.owner).items()
        return {k: v for k, v in entries if not k.startswith(("__", "_abc_")) and not issubclass(type(v), _METHODS)}

    def put(self, key: Any, value: Any) -> None:
        if value is ABSENT:
            delattr(self.owner, key)
        else:
            setattr(self.owner, key, value)


def _is_foreign(cls: type) -> bool:
    return (getattr(cls, "__module__", None) or "builtins").partition(".")[0] in _FOREIGN


class Walk:
    """Finds the nodes that a value leads to, each once. Classes and functions of torch and Python are left out."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._alive: list[Any] = []

    def nodes(self, value: Any, label: str, name: str) -> Iterator[Node]:
        """The nodes below a value that were not found before."""
        stack = [(value, label, name)]
        while stack:
            current, label, name = stack.pop()
            if id(current) in self._seen or current is None or isinstance(current, _LEAVES):
                continue
            self._seen.add(id(current))
            self._alive.append(current)
            for kind, read in _KINDS:
                if isinstance(current, kind):
                    found, below = read(current, label, name)
                    break
            else:
                found, below = _object(current, label, name)
            yield from found
            for node in found:
                below += [(v, node.entry_label(k), node.entry_name(k)) for k, v in node.read().items()]
            stack += below


_Found = tuple[list[Node], list[tuple[Any, str, str]]]
_LEAVES = (bool, int, float, complex, str, bytes, torch.Tensor, torch.dtype, torch.device, types.ModuleType)


def _module(value: torch.nn.Module, label: str, name: str) -> _Found:
    nodes: list[Node] = [Attributes(value, label, name)]
    nodes += [Table(value.__dict__[table], label, name) for table in _TABLES]
    nodes.append(Hooks(value, label, name))
    return nodes, [(type(value), type(value).__name__, type(value).__name__)]


def _class(value: type, label: str, name: str) -> _Found:
    if _is_foreign(value):
        return [], []
    functions: list[tuple[Any, str, str]] = []
    for member in vars(value).values():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, types.FunctionType):
            functions.append((function, label, name))
    bases = [(base, base.__name__, base.__name__) for base in value.__bases__]
    return [ClassAttributes(value, value.__name__, value.__name__)], [*functions, *bases]


def _function(value: types.FunctionType, label: str, name: str) -> _Found:
    # Not `__module__`: a wrapper has that of what it wraps.
    package = str(value.__globals__.get("__name__", "")).partition(".")[0]
    if package == "torch":
        return [], []
    names = value.__code__.co_freevars
    cells = zip(names, value.__closure__ or (), strict=True)
    if package == "aotpack":
        # What calls the model while it is captured keeps notes of its own.
        called = [cell.cell_contents for _, cell in cells]
        return [], [(part, label, name) for part in called if callable(part)]
    nodes: list[Node] = [Variable(cell, f"the variable {own!r} around {value.__name__}", own) for own, cell in cells]
    below = [(v, f"a default of {value.__name__}", value.__name__) for v in value.__defaults__ or ()]
    below += [(v, f"the default {k!r} of {value.__name__}", k) for k, v in (value.__kwdefaults__ or {}).items()]
    if vars(value):
        nodes.append(Attributes(value, value.__name__, value.__name__))
    return nodes, below


def _method(value: types.MethodType, label: str, name: str) -> _Found:
    return [], [(value.__self__, label, name), (value.__func__, label, name)]


def _partial(value: functools.partial[Any], label: str, name: str) -> _Found:
    return [], [(part, label, name) for part in (value.func, *value.args, *value.keywords.values())]


def _tuple(value: tuple[Any, ...], label: str, name: str) -> _Found:
    below = [(v, f"{label}[{i}]", f"{name}.{i}" if name else str(i)) for i, v in enumerate(value)]
    return [], below


def _one(kind: Callable[[Any, str, str], Node]) -> Callable[[Any, str, str], _Found]:
    def found(value: Any, label: str, name: str) -> _Found:
        return [kind(value, label, name)], []

    return found


def _array(value: np.ndarray[Any, Any], label: str, name: str) -> _Found:
    return ([], []) if value.dtype.hasobject else ([Array(value, label, name)], [])


def _object(value: Any, label: str, name: str) -> _Found:
    cls = type(value)
    if _is_foreign(cls) and cls is not types.SimpleNamespace:
        return [], []
    return [Attributes(value, label, name)], [(cls, cls.__name__, cls.__name__)]


_KINDS: tuple[tuple[Any, Callable[[Any, str, str], _Found]], ...] = (
    (torch.nn.Module, _module),
    (type, _class),
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (functools.partial, _partial),
    (dict, _one(Items)),
    ((list, collections.deque), _one(Elements)),
    (set, _one(Members)),
    (tuple, _tuple),
    (np.ndarray, _array),
)
