"""Matrix products that torch's own decompositions leave, as those of `einsum`, become calls of our kernel too.

The operators of `ops/cuda` are taken apart before operators are decomposed, so that what decomposition finds has to be
a functional call of the kernel: one that is given a tensor to write to, and returns it.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.triton_kernel_wrap.triton_kernel_wrapper_functional
  torch._higher_order_ops.triton_kernel_wrap.triton_kernel_wrapper_mutation   replaced while a kernel is called
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from aotpack.export.ops.cuda import gemm
from aotpack.export.ops.cuda.int_gemm import int_product
from aotpack.export.ops.cuda.launch import Launch, launch
from aotpack.export.torch_compat import places
from aotpack.export.torch_compat.patches import applied, or_else, replaced

aten = torch.ops.aten


def products_by_our_kernel() -> AbstractContextManager[None]:
    """While active, TorchInductor decomposes matrix products into calls of our kernel."""

    def selecting(original: Any) -> Any:
        @functools.wraps(original)
        def select() -> dict[Any, Any]:
            # What ours leave is torch's, or made of real products: those of complex matrices.
            table = original()
            return {**table, **{op: or_else(function, table.get(op)) for op, function in _DECOMPOSITIONS.items()}}

        return select

    return applied({places.SELECT_DECOMPOSITIONS: selecting})


def _functional(call: Launch) -> Tensor:
    from torch._higher_order_ops import triton_kernel_wrap

    results: list[dict[str, Tensor]] = []

    def instead(**arguments: Any) -> None:
        results.append(triton_kernel_wrap.triton_kernel_wrapper_functional(**arguments, tensors_to_clone=["out"]))

    with replaced(triton_kernel_wrap, "triton_kernel_wrapper_mutation", instead):
        launch(call)
    return results[0]["out"]


def _mm(a: Tensor, b: Tensor, *_: Any) -> Any:
    if a.dtype not in gemm.DTYPES or a.device.type != "cuda" or a.dtype != b.dtype:
        return NotImplemented
    return gemm.product(a, b, None, 1.0, 0, _functional)


def _addmm(added: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if added.dtype != a.dtype:
        return NotImplemented
    product = _mm(a, b)
    if product is NotImplemented:
        return product
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        # torch does not read it then.
        return product
    return product + (added if beta == 1 else added * beta)


def _int_mm(a: Tensor, b: Tensor) -> Any:
    if (a.dtype, b.dtype) != (torch.int8, torch.int8) or a.device.type != "cuda":
        return NotImplemented
    return int_product(a, b, _functional)


_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _mm,
    aten.bmm.default: _mm,
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _addmm,
    aten._int_mm.default: _int_mm,
}
