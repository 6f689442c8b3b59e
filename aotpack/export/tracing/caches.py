"""Caches of transformers as plain containers, which archives accept and return instead.

A cache with layers is a dict of lists with an element per layer: `key_cache`, `value_cache`, and whatever else its
layers hold that changes from call to call (`conv_states`, `recurrent_states`, `cumulative_length`, …); None where a
layer does not have it. One of an encoder and a decoder is a dict of two, `self_attention_cache` and
`cross_attention_cache`.

transformers is not imported: a cache is recognized by its base class.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from aotpack.export.tracing.helper_objects import helpers_of

_NAMES = {"keys": "key_cache", "values": "value_cache"}
_PARTS = ("self_attention_cache", "cross_attention_cache")
# Numbers in layers that calls change. Others, as the size of a window is, are the same for all calls.
_COUNTERS = ("cumulative_length", "cumulative_length_int")


def is_cache(value: Any) -> bool:
    """Whether a value is a cache of transformers whose tensors lie in its layers."""
    known = any((c.__module__, c.__name__) == ("transformers.cache_utils", "Cache") for c in type(value).__mro__)
    return known and (_has_parts(value) or isinstance(getattr(value, "layers", None), list))


def plain_cache(cache: Any) -> dict[str, Any]:
    """The tensors and counters of a cache."""
    if _has_parts(cache):
        return {part: plain_cache(getattr(cache, part)) for part in _PARTS}
    layers = [_state(layer) for layer in cache.layers]
    usual = _NAMES if not cache.layers or any(hasattr(layer, "keys") for layer in cache.layers) else {}
    names = dict.fromkeys((*usual, *(name for layer in layers for name in layer)))
    return {_NAMES.get(name, name): [layer.get(name) for layer in layers] for name in names}


def cache_like(plain: Mapping[str, Any], example: Any) -> Any:
    """A cache with these tensors and counters that is otherwise as the example; it shares nothing with it that a call
    changes.
    """
    result = copy.copy(example)
    if _has_parts(example):
        result.is_updated = dict(example.is_updated)
        for part in _PARTS:
            setattr(result, part, cache_like(plain[part], getattr(example, part)))
        return result
    result.layers = []
    for index, layer in enumerate(example.layers):
        fresh = copy.copy(layer)
        for name, value in vars(layer).items():
            if isinstance(value, (dict, list)):
                setattr(fresh, name, copy.copy(value))
        for name, value in _state(layer).items():
            given = plain[_NAMES.get(name, name)][index]
            is_list = isinstance(value, list)
            setattr(fresh, name, dict(zip(getattr(layer, name), given, strict=True)) if is_list else given)
        result.layers.append(fresh)
    return result


@contextlib.contextmanager
def cross_attention_anew(module: torch.nn.Module) -> Iterator[bool]:
    """While active, every call of the module begins with empty caches for cross-attention, where it holds such that are
    empty now; yields whether it does.

    The first call fills them, and later ones would read them instead of the encoder's states that they are given. An
    exported decoder computes them in each call.
    """
    empty = [
        (cache, cache_like(plain_cache(cross), cross))
        for cache in helpers_of(module).objects
        if is_cache(cache) and _has_parts(cache)
        for cross in [cache.cross_attention_cache]
        if not any(_state(layer) for layer in cross.layers)
    ]

    def fill_anew(*_: Any) -> None:
        for cache, example in empty:
            cache.cross_attention_cache = cache_like(plain_cache(example), example)
            cache.is_updated = dict.fromkeys(range(len(example.layers)), False)

    hook = module.register_forward_pre_hook(fill_anew) if empty else None
    try:
        yield bool(empty)
    finally:
        if hook is not None:
            hook.remove()
            fill_anew()


def _has_parts(cache: Any) -> bool:
    return all(is_cache(getattr(cache, part, None)) for part in _PARTS)


def _state(layer: Any) -> dict[str, Any]:
    """What calls change in a layer."""
    found: dict[str, Any] = {}
    for name, value in vars(layer).items():
        if name.startswith("_"):
            continue
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, dict) and any(isinstance(item, torch.Tensor) for item in value.values()):
            # The keys are 0, 1, … as those of a list.
            found[name] = list(value.values())
        elif name in _COUNTERS and isinstance(value, (int, torch.SymInt)):
            found[name] = value
    return found
