"""The dispatcher: modes that see each operator, and which kernels are registered.

Private interfaces touched (torch 2.11 to 2.13):
  torch.utils._python_dispatch.TorchDispatchMode
  torch._dispatch.python.enable_python_dispatcher
  torch._C._dispatch_has_kernel_for_dispatch_key, _dispatch_kernel_for_dispatch_key_is_fallthrough
  torch._C.{DispatchKey, DispatchKeySet}
  torch._C._jit_resolve_packet
  torch._C.DisableTorchFunction
  torch.library._impls: "namespace/name.overload/key" of each kernel that Python code has registered
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.library
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import TorchDispatchMode

from aotpack.export.torch_compat.operators import HigherOrderOperator, OpOverloadPacket, packet_name

__all__ = [
    "FollowingMode",
    "cpu_keys",
    "enable_python_dispatcher",
    "has_kernel",
    "is_fallthrough",
    "python_registrations",
    "resolved_overload",
    "without_function_modes",
]


class FollowingMode(TorchDispatchMode):
    """A mode that also sees what the functions given to an operator call: the branches of torch.cond, say."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `func`, an operator that takes no functions, returns for these arguments."""
        raise NotImplementedError

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator) and any(map(callable, args)):
            # While a mode handles a call it is off.
            return func(*map(self._on, args), **(kwargs or {}))
        return self.called(func, args, kwargs or {})

    def _on(self, value: Any) -> Any:
        if not callable(value):
            return value

        def function(*args: Any, **kwargs: Any) -> Any:
            with self:
                return value(*args, **kwargs)

        return function


def has_kernel(operator: str, key: str) -> bool:
    """Whether a kernel is registered for an operator ("namespace::name.overload") and a dispatch key."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))


def is_fallthrough(operator: str, key: str) -> bool:
    """Whether the kernel of an operator for a dispatch key passes each call on to the next key."""
    return bool(
        torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(operator, torch._C.DispatchKey.__members__[key])
    )


def cpu_keys() -> Any:
    """The dispatch key set that contains the CPU alone."""
    return torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def without_function_modes() -> AbstractContextManager[None]:
    """While active, no mode sees calls of functions: `with device` has no effect."""
    found: AbstractContextManager[None] = torch._C.DisableTorchFunction()
    return found


def python_registrations() -> Collection[str]:
    """ "namespace/name.overload/key" of each kernel that Python code has registered."""
    found: Collection[str] = torch.library._impls
    return found


def resolved_overload(packet: OpOverloadPacket, *args: Any, **kwargs: Any) -> str:
    """The name of the overload that a call of an operator means.

    Raises:
        RuntimeError: no overload accepts these arguments.
    """
    return torch._C._jit_resolve_packet(packet_name(packet), *args, **kwargs) or "default"
