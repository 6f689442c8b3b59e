"""The structure around tensors: from torch's pytree specs to those of the manifest."""

from __future__ import annotations

import dataclasses
import inspect
from collections import defaultdict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.torch_compat import pytree
from aotpack.spec import CallSpec, DataclassSpec, DictSpec, Key, ListSpec, NamedTupleSpec, Spec, TupleSpec, plain_key


def register_dataclasses(value: Any) -> None:
    """Makes every dataclass inside `value` a pytree node, as torch.export asks for."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        if cls not in pytree.SUPPORTED_NODES and not isinstance(value, dict):
            torch.export.register_dataclass(cls)
        for item in dataclasses.fields(value):
            register_dataclasses(getattr(value, item.name))
    elif isinstance(value, dict):
        for item in value.values():
            register_dataclasses(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            register_dataclasses(item)


def type_name(cls: type) -> str:
    """`module:QualName`, as the manifest names types."""
    return f"{cls.__module__}:{cls.__qualname__}"


def to_spec(tree: pytree.TreeSpec, leaves: Iterator[Spec], where: str, path: str = "") -> Spec:
    """The manifest's spec of a torch TreeSpec, its leaves taken from `leaves`. Errors name `where` and the path in it.

    Raises:
        CaptureError: archives have no container like this, or a key of a dict is neither a string nor an int.
    """
    if tree.is_leaf():
        return next(leaves)
    cls, context = tree.type, tree.context
    place = f"{where}, at {path}" if path else where

    def items(steps: Iterable[str]) -> tuple[Spec, ...]:
        named = chain(steps, repeat(""))
        return tuple(to_spec(child, leaves, where, path + next(named)) for child in children)

    children = tree.children()
    count = len(children)
    numbered = [f"[{i}]" for i in range(count)]
    if cls is tuple or cls is torch.Size:
        return TupleSpec(items(numbered))
    if cls is list:
        return ListSpec(items(numbered))
    if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return NamedTupleSpec(type_name(cls), tuple(cls._fields), items(numbered))
    if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields"):
        # What torch.max, torch.sort and their like return.
        return NamedTupleSpec(type_name(cls), tuple(vars(cls)["__match_args__"]), items(numbered))
    if cls is namedtuple:
        return NamedTupleSpec(type_name(context), tuple(context._fields), items(numbered))
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        fields = _dataclass_keys(cls, context, count)
        return DataclassSpec(type_name(cls), fields, items(f".{field}" for field in fields))
    if isinstance(cls, type) and issubclass(cls, dict):
        # Of a defaultdict: its factory, then the keys.
        keys = list(context[1] if isinstance(context, tuple) or issubclass(cls, defaultdict) else context)
        return DictSpec(_plain_keys(keys, place), items(f"[{key!r}]" for key in keys))
    raise CaptureError(
        f"{place}: a container of type {type_name(cls)} cannot be described in an archive",
        hint="use tuples, lists, dicts, namedtuples or dataclasses",
    )


def _plain_keys(keys: Sequence[Any], where: str) -> tuple[Key, ...]:
    plain: dict[Key, Any] = {}
    for key in keys:
        name = plain_key(key)
        if name is None:
            raise CaptureError(
                f"{where}: dict keys must be strings, ints of 64 bits or enum members with such values, got {key!r}",
                hint="use other keys, or a tuple, list or dataclass",
            )
        if name in plain:
            raise CaptureError(
                f"{where}: the keys {plain[name]!r} and {key!r} of a dict are the same, {name!r}, in an archive",
                hint="an enum member is represented by its value: use other keys or values",
            )
        plain[name] = key
    return tuple(plain)


def _dataclass_keys(cls: type, context: Any, count: int) -> tuple[str, ...]:
    # torch.export keeps [field names that are set, field names that are None]; transformers keeps (class, keys) or
    # keys.
    candidates = context if isinstance(context, (list, tuple)) else [context]
    for candidate in [context, *candidates]:
        if (
            isinstance(candidate, (list, tuple))
            and len(candidate) == count
            and all(isinstance(key, str) for key in candidate)
        ):
            return tuple(candidate)
    return tuple(item.name for item in dataclasses.fields(cls))[:count]


def call_spec(tree: pytree.TreeSpec, leaves: Iterator[Spec], names: Sequence[str | None]) -> CallSpec:
    """The spec of `(args, kwargs)`."""
    args_tree, kwargs_tree = tree.children()
    args = tuple(to_spec(child, leaves, f"argument {i}") for i, child in enumerate(args_tree.children()))
    kwargs = tuple(to_spec(child, leaves, "keyword argument") for child in kwargs_tree.children())
    padded = [*names, *([None] * len(args))][: len(args)]
    keys = tuple(str(key) for key in kwargs_tree.context) if kwargs else ()
    return CallSpec(args, tuple(padded), keys, kwargs)


def positional_names(function: Callable[..., Any], count: int) -> list[str | None]:
    """The names by which the first `count` positional arguments may be passed too; None where there is no such name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [None] * count
    names: list[str | None] = []
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            names.append(parameter.name)
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            names.append(None)
        else:
            break
    return [*names, *([None] * count)][:count]


def leaf_names(args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str | None]) -> list[str]:
    """A readable, unique name for every leaf of `(args, kwargs)`, in pytree order: `x`, `batch.ids`, `states.0`."""
    result: list[str] = []
    for index, arg in enumerate(args):
        name = names[index] if index < len(names) else None
        root = name or f"arg{index}"
        result += [_join(root, path) for path, _ in pytree.tree_flatten_with_path(arg)[0]]
    for key, arg in kwargs.items():
        result += [_join(key, path) for path, _ in pytree.tree_flatten_with_path(arg)[0]]
    seen: dict[str, int] = {}
    unique = []
    for name in result:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique


def output_names(tree: pytree.TreeSpec, leaves: Sequence[Any]) -> list[str]:
    """`output`, `output.0`, `output.logits`, … in pytree order."""
    value = pytree.tree_unflatten(list(leaves), tree)
    return [_join("output", path) for path, _ in pytree.tree_flatten_with_path(value)[0]]


def key_text(key: Any) -> str:
    """The index, key or attribute that one step of a pytree path takes."""
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            value = getattr(key, attribute)
            plain = plain_key(value)
            return str(value if plain is None else plain)
    return str(key)


def _join(root: str, path: Sequence[Any]) -> str:
    return ".".join([root, *(key_text(key) for key in path)])
