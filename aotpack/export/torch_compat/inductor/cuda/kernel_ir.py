"""Triton's code of kernels is made once for all launches that are alike.

torch has Triton compile a kernel up to its first representation to find what it writes to, several times for each
launch: in a model of many equal layers that was a third of the build.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.triton_kernel_wrap.generate_ttir   returns a module, which its callers only read, and names
  torch._higher_order_ops.triton_kernel_wrap.ttir_to_functions   what it returns is only read, too
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import sympy
import torch

from aotpack.export.torch_compat.patches import applied

_OWNER = "torch._higher_order_ops.triton_kernel_wrap"
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool, sympy.Expr)


def kernels_read_once() -> AbstractContextManager[None]:
    """While active, torch reads the code of a kernel once for each combination of dtypes and numbers. Numbers of which
    the kernel says that its code does not depend on them (`do_not_specialize`) make no combinations.
    """
    return applied({f"{_OWNER}:generate_ttir": _remembering, f"{_OWNER}:ttir_to_functions": _read_once})


def _read_once(original: Callable[..., Any]) -> Callable[..., Any]:
    # With the module, whose identity is the key.
    known: dict[int, tuple[Any, Any]] = {}

    @functools.wraps(original)
    def functions(ttir_module: Any) -> Any:
        if id(ttir_module) not in known:
            known[id(ttir_module)] = original(ttir_module), ttir_module
        return known[id(ttir_module)][0]

    return functions


def _remembering(original: Callable[..., Any]) -> Callable[..., Any]:
    # With the kernel, whose identity is part of the key.
    known: dict[Hashable, tuple[Any, frozenset[str], Any]] = {}

    @functools.wraps(original)
    def generate(kernel: Any, kwargs: dict[str, Any], tma_descriptor_metadata: Mapping[str, Any]) -> Any:
        alike = _key(kernel, kwargs)
        if alike is None:
            return original(kernel, kwargs, tma_descriptor_metadata)
        key = alike, str(tma_descriptor_metadata)
        if key not in known:
            before = frozenset(kwargs)
            result = original(kernel, kwargs, tma_descriptor_metadata)
            known[key] = result, before - kwargs.keys(), kernel
        result, removed, _ = known[key]
        # As the original does with options of the compiler.
        for name in removed:
            kwargs.pop(name, None)
        return result

    return generate


def _key(kernel: Any, kwargs: Mapping[str, Any]) -> Hashable | None:
    """What the code depends on; None where that is not known."""
    # torch wraps a kernel for each launch with options of the compiler.
    configs = getattr(kernel, "configs", None)
    function = kernel if configs is None else kernel.fn
    found: list[Hashable] = [id(function)]
    alike = {parameter.name for parameter in getattr(function, "params", ()) if parameter.do_not_specialize}
    constants = configs[0].kwargs if configs else {}
    for name, value in {**kwargs, **constants}.items():
        if isinstance(value, _SYMBOLS):
            # Any of them has the same code.
            found.append((name, "symbol"))
        elif type(value) in (torch.Tensor, torch.nn.Parameter):
            # The alignment of its memory is part of it.
            return None
        elif hasattr(value, "dtype"):
            found.append((name, type(value), value.dtype))
        elif name in alike and type(value) is int:
            found.append((name, "alike"))
        elif value is None or isinstance(value, (bool, int, float, str)):
            # 1, 1.0 and True are equal.
            found.append((name, type(value), value))
        else:
            return None
    return tuple(found)
