"""Stand-ins for what a call left in Python objects, which show whether the next call reads it before it writes it."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable
from typing import Any

from aotpack.export.tracing.python_state.nodes import ABSENT, Items
from aotpack.export.tracing.python_state.snapshot import CONTENTS, Place, Snapshot


class Read(Exception):
    """A model reads what an earlier call has left."""


Note = Callable[[], None]

# fmt: off
_OPERATORS = (
    "abs", "add", "and", "bool", "bytes", "call", "ceil", "complex", "contains", "delitem", "divmod", "enter",
    "eq", "exit", "float", "floor", "floordiv", "format", "ge", "getitem", "gt", "iadd", "iand", "ifloordiv",
    "ilshift", "imatmul", "imod", "imul", "index", "int", "invert", "ior", "ipow", "irshift", "isub", "iter",
    "itruediv", "ixor", "le", "len", "lshift", "lt", "matmul", "mod", "mul", "ne", "neg", "next", "or", "pos",
    "pow", "radd", "rand", "rdivmod", "repr", "reversed", "rfloordiv", "rlshift", "rmatmul", "rmod", "rmul",
    "ror", "round", "rpow", "rrshift", "rshift", "rsub", "rtruediv", "rxor", "setitem", "str", "sub", "truediv",
    "trunc", "xor",
)
# fmt: on


class StandIn:
    """A value of which every use raises `Read`."""

    def __init__(self, note: Note) -> None:
        object.__setattr__(self, "note", note)

    def __getattribute__(self, name: str) -> Any:
        _use(self)

    def __setattr__(self, name: str, value: Any) -> None:
        _use(self)

    def __hash__(self) -> int:
        _use(self)
        return 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        _use_any([*args, *(kwargs or {}).values()])


def _use(value: StandIn, *_: Any) -> Any:
    object.__getattribute__(value, "note")()
    raise Read


def _use_any(values: Iterable[Any]) -> None:
    for value in values:
        if type(value) is StandIn:
            _use(value)
        if type(value) in (list, tuple):
            _use_any(value)


for _name in _OPERATORS:
    setattr(StandIn, f"__{_name}__", _use)


def _refusing(kind: type, name: str, allowed: Iterable[str]) -> type:
    """A class of containers that cannot be read before they are cleared; `allowed` names what adds to them."""
    kept = {
        *allowed,
        *("__class__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "__getattribute__"),
        *("__setattr__", "__delattr__", "__doc__", "__dir__", "__hash__", "__class_getitem__", "__getstate__", "clear"),
    }

    def guarded(original: Any) -> Any:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.unread:
                self.note()
                raise Read
            return original(self, *args, **kwargs)

        return call

    def clear(self: Any) -> None:
        self.unread = False
        kind.clear(self)  # type: ignore[attr-defined]

    methods = {key: getattr(kind, key) for key in dir(kind) if key not in kept}
    refused = {key: guarded(method) for key, method in methods.items() if callable(method)}
    return type(name, (kind,), {**refused, "clear": clear, "unread": True})


_List: Any = _refusing(list, "list", ("append", "extend", "__iadd__"))
_Deque: Any = _refusing(collections.deque, "deque", ("append", "appendleft", "extend", "extendleft", "__iadd__"))
_Set: Any = _refusing(set, "set", ("add", "update", "discard", "__ior__"))


class _Dict(dict[Any, Any]):
    """A dict of which the keys `unread` must be written before they are read."""

    unread: dict[Any, Note]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.unread.pop(key, None)
        super().__setitem__(key, value)

    def clear(self) -> None:
        self.unread.clear()
        super().clear()


def _keyed(name: str) -> Any:
    original = getattr(dict, name)

    @functools.wraps(original)
    def call(self: _Dict, key: Any, *args: Any) -> Any:
        if key in self.unread:
            self.unread[key]()
            raise Read
        return original(self, key, *args)

    return call


def _whole(name: str) -> Any:
    original = getattr(dict, name)

    @functools.wraps(original)
    def call(self: _Dict, *args: Any) -> Any:
        for note in self.unread.values():
            note()
            raise Read
        return original(self, *args)

    return call


for _name in ("__getitem__", "__contains__", "__delitem__", "get", "pop", "setdefault"):
    setattr(_Dict, _name, _keyed(_name))
for _name in ("__iter__", "__len__", "__eq__", "__or__", "keys", "values", "items", "copy", "popitem", "__reversed__"):
    setattr(_Dict, _name, _whole(_name))


def holds_one(value: Any) -> bool:
    """Whether a value is a stand-in, or a list, tuple or dict with one."""
    if type(value) in (list, tuple):
        return any(holds_one(item) for item in value)
    if type(value) is dict:
        return any(holds_one(item) for item in value.values())
    return type(value) in (StandIn, _List, _Deque, _Set, _Dict)


def install(places: Iterable[Place], snapshot: Snapshot, note: Callable[[Place], None]) -> set[tuple[int, Any]]:
    """Puts stand-ins in the place of what is there now; returns where: the owner of the node, by id, and the key.

    Args:
        places: what a call has changed.
        snapshot: of the state as it is now.
        note: called with the place whose stand-in is read.
    """
    dicts: dict[int, _Dict] = {}
    where: set[tuple[int, Any]] = set()
    for place in places:
        noted = functools.partial(note, place)
        owner = place.node.owner
        if place.key is CONTENTS:
            kinds: dict[Any, Any] = {list: _List, collections.deque: _Deque, set: _Set}
            kind = kinds.get(type(owner))
            if kind is None:
                note(place)
                continue
            made = kind()
            made.note = noted
            where |= _substitute(owner, made, snapshot, noted)
        elif type(place.node) is Items and type(owner) in (dict, collections.OrderedDict):
            if id(owner) not in dicts:
                dicts[id(owner)] = _Dict(owner)
                dicts[id(owner)].unread = {}
                where |= _substitute(owner, dicts[id(owner)], snapshot, noted)
            dicts[id(owner)].unread[place.key] = noted
        elif place.value() is not ABSENT:
            place.put(StandIn(noted))
            where.add((id(owner), place.key))
    return where


def _substitute(owner: Any, made: Any, snapshot: Snapshot, noted: Note) -> set[tuple[int, Any]]:
    """Puts `made` wherever `owner` is, and returns where that is."""
    found: set[tuple[int, Any]] = set()
    for node, entries in snapshot.entries:
        for key, value in entries.items():
            if value is owner and node.keyed:
                node.put(key, made)
                found.add((id(node.owner), key))
    if not found:
        noted()  # in a tuple, where it cannot be replaced
    return found
