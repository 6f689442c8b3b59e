"""Every patch of torch: what is replaced while a model is captured or lowered, declared in one table.

`applied` puts replacements in place, all under one lock, and restores what was there. A build holds the lock from its
first patch to its last (`exclusive`): patches are global to the process, so another thread must not trace meanwhile.
Tests are generated from the table: each entry must exist in the installed torch, accept the parameters that its
replacement was written for, and be restored afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

from aotpack.export.torch_compat import inductor_patch_table, patch_table
from aotpack.export.torch_compat.patch import Patch

P = ParamSpec("P")
R = TypeVar("R")

_LOCK = threading.RLock()

_TABLE: dict[str, Patch] = {patch.place: patch for patch in (*patch_table.ENTRIES, *inductor_patch_table.ENTRIES)}


def table() -> Mapping[str, Patch]:
    """All patches by place: those of the tables of this package, and those that `declare` added."""
    return types.MappingProxyType(_TABLE)


def declare(owner: Any, name: str, why: str) -> str:
    """Adds an attribute of a class or module to the table; returns its place.

    Raises:
        ValueError: it is in the table already.
    """
    place = _place(owner, name)
    if place in _TABLE:
        raise ValueError(f"{place} is patched already")
    _TABLE[place] = Patch(place, why)
    return place


def _place(owner: Any, name: str) -> str:
    if isinstance(owner, types.ModuleType):
        return f"{owner.__name__}:{name}"
    return f"{owner.__module__}:{owner.__qualname__}.{name}"


@contextlib.contextmanager
def applied(replacements: Mapping[str, Callable[[Any], Any]]) -> Iterator[None]:
    """While active, each place has what its function makes of what is there now (None for an attribute that is added).

    Raises:
        KeyError: a place is not in the table.
    """
    with _LOCK, contextlib.ExitStack() as stack:
        for place, make in replacements.items():
            patch = _TABLE[place]
            before = patch.held()
            now = make(patch.original())
            stack.callback(patch.put, before)
            patch.put(now)
        yield


def replaced(owner: Any, name: str, replacement: Any) -> contextlib.AbstractContextManager[None]:
    """`applied` for one attribute of a class or module, whose replacement is known already.

    Raises:
        KeyError: when entered: it is not in the table.
    """
    return applied({_place(owner, name): always(replacement)})


def exclusive(function: Callable[P, R]) -> Callable[P, R]:
    """The function, of which one call at a time traces or lowers: others would run with its patches."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _LOCK:
            return function(*args, **kwargs)

    return call


def always(result: Any) -> Callable[[Any], Any]:
    """A replacement that is this object."""
    return lambda _: result


def returning(result: Any) -> Callable[[Any], Any]:
    """A replacement that returns this, whatever it is called with."""
    return lambda _: lambda *_args, **_kwargs: result


def or_else(function: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
    """A replacement of `other` that leaves to it the calls for which it returns NotImplemented."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return other(*args, **kwargs) if result is NotImplemented and other is not None else result

    return call


def parameters(function: Any) -> str | None:
    """The names of a function's parameters, as `Patch.parameters` has them; None for what has no signature."""
    try:
        return ", ".join(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
