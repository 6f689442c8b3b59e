"""The table of decompositions for TorchInductor."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied

aten = torch.ops.aten

_TABLE: dict[Any, Callable[..., Any]] = {}
_AMENDED: dict[Any, Callable[..., Any]] = {}


def decomposes(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as the decomposition of `operators`, before TorchInductor's own.

    It may return `NotImplemented` to leave a call to TorchInductor.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for operator in operators:
            # Two topics may register one operator, each for some of its calls.
            _TABLE[operator] = _else(function, _TABLE.get(operator))
        return function

    return register


def amends(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function that is called instead of TorchInductor's decomposition of `operators`, with that
    decomposition before the arguments.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _AMENDED.update(dict.fromkeys(operators, function))
        return function

    return register


@contextlib.contextmanager
def our_decompositions() -> Iterator[None]:
    """While active, TorchInductor decomposes by our table too."""

    def selecting(original: Any) -> Any:
        @functools.wraps(original)
        def select() -> dict[Any, Any]:
            table = original()
            amended = {op: functools.partial(f, table[op]) for op, f in _AMENDED.items() if op in table}
            ours = {op: _else(function, table.get(op)) for op, function in _TABLE.items()}
            return {**table, **amended, **ours}

        return select

    with applied(
        {
            places.SELECT_DECOMPOSITIONS: selecting,
            # TorchInductor asserts that what it has no code for is in no table; ours leaves some of the calls alone.
            places.MAKE_FALLBACK: lambda original: functools.partial(original, override_decomp=True),
        }
    ):
        yield


def _else(function: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
    @functools.wraps(function)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return other(*args, **kwargs) if result is NotImplemented and other is not None else result

    return decompose


def fixed(*sizes: Any) -> bool:
    """Whether none of these sizes is dynamic."""
    return not any(isinstance(size, torch.SymInt) for size in sizes)
