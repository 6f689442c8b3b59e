"""Special functions without code in Triton: on GPUs they are operators of the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from aotpack.export.decompositions.table import aten, decomposes
from aotpack.export.ops.special import NAMES, special_function


def _call(number: int, x: Any, y: Any = None) -> Any:
    tensors = [value for value in (x, y) if isinstance(value, Tensor)]
    device = tensors[0].device
    # TorchInductor has code for CPUs.
    if device.type == "cpu":
        return NotImplemented
    # Integers are computed in the default dtype.
    dtype = torch.result_type(x, y) if y is not None else x.dtype
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    wide = dtype if dtype == torch.float64 else torch.float32
    a, b = (
        value.to(wide) if isinstance(value, Tensor) else torch.full((), value, dtype=wide, device=device)
        for value in (x, x if y is None else y)
    )
    return special_function(*torch.broadcast_tensors(a, b), number).to(dtype)


def _polygamma(number: int, n: int, x: Tensor) -> Any:
    if x.device.type == "cpu":
        return NotImplemented
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    wide = x.to(dtype if dtype == torch.float64 else torch.float32)
    return special_function(wide, torch.full_like(wide, n), number).to(dtype)


def _register(name: str, number: int) -> None:
    """All overloads of an operator, under either of its names, but those that write to a given tensor."""
    function: Callable[..., Any] = partial(_polygamma if name == "polygamma" else _call, number)
    for packet in (getattr(aten, prefix + name, None) for prefix in ("", "special_")):
        for overload in packet.overloads() if packet is not None else ():
            if not overload.endswith("out"):
                decomposes(getattr(packet, overload))(function)


for _number, _name in enumerate(NAMES):
    _register(_name, _number)
