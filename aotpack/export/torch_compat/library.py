"""Custom operators that `torch.library` defines.

Private interfaces touched (torch 2.11 to 2.13):
  torch._library.custom_ops.OPDEFS, and of its values: _init_fn, _backend_fns, _backward_fn, _opoverload, _qualname
  torch._library.custom_ops.CustomOpDef.{_torch_dispatch_fns, register_torch_dispatch}
  torch._library.triton, the module's name
  torch._functorch.config.decompose_custom_triton_ops
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch._functorch.config
from torch._library.custom_ops import OPDEFS

from aotpack.export.torch_compat.operators import OpOverload

# Where torch.library.triton_op wraps implementations.
_TRITON_MODULE = "torch._library.triton"


@dataclass(frozen=True)
class CustomDefinition:
    """What `torch.library.custom_op` knows of an operator.

    Attributes:
        operator: the operator.
        name: "namespace::name".
        implementation: the function that defines it.
        kernels: implementations by device; that of None is for all devices.
        has_backward: whether `register_autograd` was called.
    """

    operator: OpOverload
    name: str
    implementation: Callable[..., Any]
    kernels: Mapping[str | None, Callable[..., Any]]
    has_backward: bool

    @property
    def is_triton_op(self) -> bool:
        """Whether `torch.library.triton_op` has defined it."""
        return self.implementation.__module__ == _TRITON_MODULE


def custom_definition(name: str) -> CustomDefinition | None:
    """The definition of an operator ("namespace::name"); None where `torch.library.custom_op` did not define it."""
    known: Any = OPDEFS.get(name)
    if known is None:
        return None
    return CustomDefinition(
        operator=known._opoverload,
        name=known._qualname,
        implementation=known._init_fn,
        kernels=known._backend_fns,
        has_backward=known._backward_fn is not None,
    )


def custom_definitions() -> list[CustomDefinition]:
    """The definitions of all operators that `torch.library.custom_op` defined."""
    return [found for name in list(OPDEFS) if (found := custom_definition(name)) is not None]


@contextlib.contextmanager
def decomposed_by(functions: Mapping[OpOverload, Callable[..., Any]]) -> Iterator[None]:
    """While active, TorchInductor decomposes operators by these functions, which may write to tensors that they make.

    The operators write to no argument. Those of `torch.library.triton_op` have such a rule, which runs their kernels.
    """
    from torch._subclasses.functional_tensor import FunctionalTensorMode

    with contextlib.ExitStack() as stack:
        for operator, function in functions.items():
            known: Any = OPDEFS.get(operator.name().removesuffix(".default"))
            if known is None:
                continue
            before = known._torch_dispatch_fns.get(FunctionalTensorMode, _kept_whole)
            known.register_torch_dispatch(FunctionalTensorMode, _by(function))
            stack.callback(known._torch_dispatch_fns.__setitem__, FunctionalTensorMode, before)
        yield


def _by(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(mode: Any, op: Any, types: Any, args: Any, kwargs: Any) -> Any:
        with mode:
            return function(*args, **(kwargs or {}))

    return rule


def _kept_whole(mode: Any, op: Any, types: Any, args: Any, kwargs: Any) -> Any:
    return mode.__torch_dispatch__(op, types, args, kwargs)


@contextlib.contextmanager
def triton_operators_kept() -> Iterator[None]:
    """While active, operators with Triton kernels stay calls: their implementations launch these, on a CPU too."""
    with torch._functorch.config.patch(decompose_custom_triton_ops=False):
        yield
