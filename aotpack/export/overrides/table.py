"""The table of functions that are overridden while a model is traced, and the mode that applies it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode

from aotpack.export.torch_compat.patches import applied, declare

_TABLE: dict[Any, Callable[..., Any]] = {}
_REPLACED: dict[str, Callable[[Any], Any]] = {}


def overrides(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers what computes these; it may return `NotImplemented` to leave a call as it is.

    What it calls itself is left as it is: it may call the function that it stands for. For what another file of this
    folder overrides, it calls the function in that file.

    Raises:
        ValueError: something else is registered for one of them.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        taken = [known for known in functions if known in _TABLE]
        if taken:
            raise ValueError(f"{taken} are overridden already")
        _TABLE.update(dict.fromkeys(functions, function))
        return function

    return register


def replaces(owner: Any, name: str) -> Callable[[Any], Any]:
    """Registers what stands in the place of an attribute of `owner`: for what torch shows to no mode."""

    def register(replacement: Any) -> Any:
        _REPLACED[declare(owner, name, f"replaced by {replacement.__module__}")] = lambda _: replacement
        return replacement

    return register


def sets(owner: Any, name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Registers what tells, when a trace begins, the value that an attribute of `owner` has in it."""

    def register(value: Callable[[], Any]) -> Callable[[], Any]:
        _REPLACED[declare(owner, name, f"set by {value.__module__}")] = lambda _: value()
        return value

    return register


@contextlib.contextmanager
def functions_overridden() -> Iterator[None]:
    """While active, calls of functions of the table run what is registered for them."""
    with applied(_REPLACED), _Overriding():
        yield


class _Overriding(TorchFunctionMode):
    # While it runs, torch has taken this mode off: nothing in here is overridden again.
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        function = _TABLE.get(func) if callable(func) and getattr(func, "__hash__", None) else None
        result = NotImplemented if function is None else function(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result
