"""Operators whose kernel is a Python function, registered by `torch.library.impl` or `Library.impl`.

The dispatcher holds the function and does not give it out, but calls it by `torch.library.get_kernel`. It says of a
kernel where it was registered, not whether that is Python; `torch.library` keeps a list of those.

Of a kernel, torch tells the file where its library was made by the text of the object alone.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.library
from torch.overrides import TorchFunctionMode

from aotpack.export.torch_compat.dispatch import (
    cpu_keys,
    has_kernel,
    is_fallthrough,
    python_registrations,
    resolved_overload,
)
from aotpack.export.torch_compat.operators import OpOverload, OpOverloadPacket, packet_name

# In the order in which the dispatcher looks for the kernel of a call on the CPU.
_KEYS = ("CPU", "CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
_BACKWARD_KEYS = ("AutogradCPU", "Autograd")

# Namespaces without operators of users; most calls are of these.
_OF_TORCH = frozenset(["aten", "prim", "prims", "aotpack", "aotpack_triton"])

_PLACE = re.compile(r"registered at (.*):\d+")
# `torch.library.impl` makes the library of a user here; the other files of torch register operators of its own.
_BY_USERS = torch.library.__file__
_TORCH = str(Path(torch.__file__).parent) + os.sep


def python_kernel(op: OpOverload) -> Callable[..., Any] | None:
    """Calls the Python function that computes an operator on the CPU; None if that is not what does.

    Operators that torch or this package defines are left out.
    """
    name = op.name()
    if op.namespace in _OF_TORCH:
        return None
    key = next((key for key in _KEYS if has_kernel(name, key)), None)
    if key is None or not _is_python(name, key):
        return None
    if is_fallthrough(name, key):
        return None
    kernel = torch.library.get_kernel(op, "CPU")
    if _is_of_torch(str(kernel)):
        return None
    return partial(kernel.call_boxed, cpu_keys())


def has_backward(op: OpOverload) -> bool:
    """Whether an operator has a backward of its own, by `torch.library.register_autograd` or a kernel for Autograd."""
    return any(has_kernel(op.name(), key) for key in _BACKWARD_KEYS)


def python_operators() -> Iterator[OpOverload]:
    """All operators for which `python_kernel` has one, but those of torch's without the check whose they are."""
    for registration in sorted(python_registrations()):
        namespace, name, key = registration.split("/")
        if key in _KEYS:
            packet, _, overload = name.partition(".")
            found = getattr(getattr(torch.ops, namespace), packet, None)
            if found is not None and (overload or "default") in found.overloads():
                yield getattr(found, overload or "default")


class ReplacingOperators(TorchFunctionMode):
    """While active, calls of some custom operators call other functions."""

    def replacement(self, op: OpOverload) -> Callable[..., Any] | None:
        """The function to call instead of `op`; None to call `op`."""
        raise NotImplementedError

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        op = called(func, args, kwargs)
        replacement = None if op is None else self.replacement(op)
        if replacement is None:
            return func(*args, **kwargs)
        # Operators that the function calls may be custom operators too.
        with self:
            return replacement(*args, **kwargs)


class Differentiated(ReplacingOperators):
    """While active, autograd sees the operators that Python kernels call, of operators without a backward of their own.

    So it does in a plain call. While a mode watches what the dispatcher calls, it does not, and the gradient is lost.
    """

    def replacement(self, op: OpOverload) -> Callable[..., Any] | None:
        return None if has_backward(op) else python_kernel(op)


def called(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OpOverload | None:
    """The operator that a call of `func` means; None for torch's own, and for all that is not an operator."""
    if isinstance(func, OpOverload):
        return None if func.namespace in _OF_TORCH else func
    if not isinstance(func, OpOverloadPacket) or packet_name(func).partition("::")[0] in _OF_TORCH:
        return None
    # Wrong arguments: the call itself raises the better error.
    with contextlib.suppress(RuntimeError):
        return _overload_of(func, *args, **kwargs)
    return None


def _overload_of(packet: OpOverloadPacket, *args: Any, **kwargs: Any) -> OpOverload:
    """The overload that a call of an operator by its name means.

    Raises:
        RuntimeError: no overload accepts these arguments.
    """
    overloads = packet.overloads()
    if len(overloads) > 1:
        overloads = [resolved_overload(packet, *args, **kwargs)]
    return getattr(packet, overloads[0])  # type: ignore[no-any-return]


def _is_python(name: str, key: str) -> bool:
    namespace, _, rest = name.partition("::")
    return f"{namespace}/{rest}/{key}" in python_registrations()


def _is_of_torch(text: str) -> bool:
    place = _PLACE.search(text)
    return place is not None and place[1].startswith(_TORCH) and place[1] != _BY_USERS
