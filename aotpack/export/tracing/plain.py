"""Objects in the arguments and results of a model, as plain containers.

An archive knows tuples, lists, dicts, namedtuples and dataclasses. A model may also take and return caches of
transformers (`caches`) and whatever else is registered as a pytree node. These are plain containers outside of what is
captured: a node is a dict of its children, by the keys that it gives them, or a list where it gives none. The model
gets the objects, made anew in each call, and what it returns is taken apart again.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.ir.pytree_spec import key_text
from aotpack.export.torch_compat import pytree
from aotpack.export.tracing.caches import cache_like, is_cache, plain_cache
from aotpack.export.tracing.values import plain_result


def to_plain(value: Any) -> Any:
    """The value, with plain containers for the objects in it; the value itself if there are none."""
    if is_cache(value):
        return to_plain(plain_cache(value))
    children, tree = _opened(value)
    if tree.is_leaf():
        return value
    made = [to_plain(child) for child in children]
    if not _is_plain(value):
        keys = _keys(value)
        return made if keys is None else dict(zip(keys, made, strict=True))
    if all(new is old for new, old in zip(made, children, strict=True)):
        return value
    return pytree.tree_unflatten(made, tree)


def from_plain(plain: Any, example: Any) -> Any:
    """The object that `plain` stands for; `example` is one of the same structure."""
    if is_cache(example):
        return cache_like(from_plain(plain, plain_cache(example)), example)
    children, tree = _opened(example)
    if tree.is_leaf():
        return plain
    if isinstance(example, dict):
        given = [plain[key] for key in example]
    else:
        given = list(plain.values()) if isinstance(plain, dict) else _opened(plain)[0]
    return pytree.tree_unflatten([from_plain(new, old) for new, old in zip(given, children, strict=True)], tree)


def _opened(value: Any) -> tuple[list[Any], pytree.TreeSpec]:
    """What is right below a container; a leaf itself."""
    return pytree.tree_flatten(value, is_leaf=lambda below: below is not value)


def _is_plain(value: Any) -> bool:
    """Whether archives have a container for it."""
    return isinstance(value, (tuple, list, dict)) or dataclasses.is_dataclass(value)


def _keys(value: Any) -> list[str] | None:
    """The names of the children of a pytree node; None where they are numbered."""
    try:
        paths = [path for path, _ in pytree.tree_flatten_with_path(value, is_leaf=lambda below: below is not value)[0]]
    except ValueError:
        return None  # it is registered without keys
    if any(isinstance(path[0], pytree.SequenceKey) for path in paths):
        return None
    keys = [key_text(path[0]) for path in paths]
    return keys if len(set(keys)) == len(keys) else None


# ---- models ---------------------------------------------------------------------------------------------------------


def taking_plain(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A module and a call in which plain containers stand for objects. Both compute what they did."""
    plain_args, plain_kwargs = to_plain(args), to_plain(kwargs)
    if plain_args is args and plain_kwargs is kwargs:
        return module, args, kwargs

    def around(forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            objects = [from_plain(value, example) for value, example in zip(given, args, strict=True)]
            return forward(*objects, **{key: from_plain(value, kwargs[key]) for key, value in named.items()})

        return call

    return _calling(module, around), plain_args, plain_kwargs


def returning_plain(module: torch.nn.Module, outputs: Any) -> tuple[torch.nn.Module, Any]:
    """A module that returns plain containers for objects, and what it returns in a call that returned `outputs`.

    Raises:
        CaptureError: a returned cache is not a pytree node.
    """
    plain = _plain_result(outputs)
    for leaf in pytree.tree_leaves(plain):
        if type(leaf).__name__.endswith("Cache"):
            raise CaptureError(
                f"the model returns a {type(leaf).__name__}, whose tensors torch does not know",
                hint="call the model with use_cache=False, or register the class with torch.utils._pytree."
                "register_pytree_node",
            )
    if plain is outputs:
        return module, outputs
    return _calling(module, lambda forward: lambda *args, **kwargs: _plain_result(forward(*args, **kwargs))), plain


def _plain_result(outputs: Any) -> Any:
    plain = to_plain(outputs)
    leaves, tree = pytree.tree_flatten(plain)
    made = [plain_result(leaf) for leaf in leaves]
    if all(new is old for new, old in zip(made, leaves, strict=True)):
        return plain
    return pytree.tree_unflatten(made, tree)


def _calling(module: torch.nn.Module, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> torch.nn.Module:
    """The module over the same tensors whose forward is what `around` makes of its own."""
    other = copy.copy(module)
    forward: Any = module.forward
    if isinstance(forward, types.MethodType) and forward.__self__ is module:
        forward = types.MethodType(forward.__func__, other)
    other.__dict__ = module.__dict__ | {"forward": functools.wraps(forward)(around(forward))}
    return other
