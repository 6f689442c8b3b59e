"""The table of decompositions for TorchInductor."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.dispatch import without_function_modes
from aotpack.export.torch_compat.patches import applied, or_else

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
            _TABLE[operator] = or_else(function, _TABLE.get(operator))
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
            amended: dict[Any, Callable[..., Any]] = {
                op: functools.partial(f, _of_torch(table[op])) for op, f in _AMENDED.items() if op in table
            }
            ours: dict[Any, Callable[..., Any]] = {
                op: or_else(function, _of_torch(table.get(op))) for op, function in _TABLE.items()
            }
            return {**table, **{op: _on_its_device(f) for op, f in {**amended, **ours}.items()}}

        return select

    with applied(
        {
            places.SELECT_DECOMPOSITIONS: selecting,
            # TorchInductor asserts that what it has no code for is in no table; ours leaves some of the calls alone.
            places.MAKE_FALLBACK: lambda original: functools.partial(original, override_decomp=True),
        }
    ):
        yield


def _on_its_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a decomposition creates is where its operands are, or where it is asked for."""

    @functools.wraps(function)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        device = _device_of(*args, *kwargs.values())
        if device is None:
            return function(*args, **kwargs)
        with device:
            return function(*args, **kwargs)

    return decompose


def _of_torch(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """torch's own decomposition, outside of `with device`.

    That would call the operator once more in place of its kernel, where the decomposition is one of the dispatcher's
    (CompositeImplicitAutograd).
    """
    if function is None:
        return None

    @functools.wraps(function)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        with without_function_modes():
            return function(*args, **kwargs)

    return decompose


def _device_of(*values: Any) -> torch.device | None:
    """The device in `values`, of tensors or by itself; None for the host."""
    for value in values:
        device = value.device if isinstance(value, torch.Tensor) else value
        if isinstance(device, (list, tuple)):
            device = _device_of(*device)
        if isinstance(device, torch.device) and device.type != "cpu":
            return device
    return None


def fixed(*sizes: Any) -> bool:
    """Whether none of these sizes is dynamic."""
    return not any(isinstance(size, torch.SymInt) for size in sizes)
