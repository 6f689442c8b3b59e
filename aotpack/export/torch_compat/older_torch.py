"""Corrects wrong sizes and dtypes of results in some versions of torch, while a model is captured and lowered.

Of this only `_bags_forward_only` and results of branches are active with torch 2.13, which does the rest right.

Private interfaces touched (torch 2.11 to 2.13):
  torch._subclasses.fake_impls._compute_slice_index, .op_implementations_dict
  torch.nn.modules.module._global_buffer_registration_hooks
  torch._decomp.decompositions.one_layer_lstm
  torch.fx.experimental.symbolic_shapes._iterate_exprs
  torch._inductor.lowering.lowerings, torch._inductor.ir.{DynamicSliceSize, SliceView, TensorBox}
  torch._inductor.codegen.cpp.CppKernel.{need_use_acc_helper, call_ranges, reduction_depth}
"""

from __future__ import annotations

import contextlib
import copy
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch import Tensor

from aotpack.export.torch_compat.branches import of_one_layout
from aotpack.export.torch_compat.patches import always, applied
from aotpack.export.torch_compat.places import COND_RESULT

aten = torch.ops.aten
_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


_FAKES = "torch._subclasses.fake_impls:op_implementations_dict"
_SETS = ("_unique2", "unique_dim", "unique_consecutive")


def keeps_launches_inside() -> bool:
    """Whether code generation keeps the launches of Triton kernels in branches and loops. 2.11 loses some without a
    message; 2.12 was not tried.
    """
    return _VERSION >= (2, 13)


@contextlib.contextmanager
def captures_mended() -> Iterator[None]:
    """While active, sizes and dtypes of results are those of 2.13, or eager's where that has them wrong."""
    with applied(_captures()):
        yield


def lowering_mended() -> contextlib.AbstractContextManager[None]:
    """The same while code is generated: slices with dynamic bounds are as captured, and sums do not decide on sizes."""
    places = _captures()
    if _VERSION < (2, 13):
        places["torch.fx.experimental.symbolic_shapes:_iterate_exprs"] = _also_in_dicts
    if _VERSION < (2, 12):
        places |= {
            "torch._inductor.lowering:lowerings[torch.ops.aten.slice]": _sliced,
            "torch._inductor.lowering:lowerings[torch.ops.aten.slice.Tensor]": _sliced,
            "torch._inductor.codegen.cpp:CppKernel.need_use_acc_helper": sums_of_any_length,
        }
    return applied(places)


def _captures() -> dict[str, Callable[[Any], Any]]:
    places = {f"{_FAKES}[torch.ops.aten._embedding_bag_forward_only.default]": always(_bags_forward_only)}
    places[COND_RESULT] = of_one_layout
    if _VERSION < (2, 13):
        places |= {
            f"{_FAKES}[torch.ops.aten.bincount.default]": _of_weights,
            "torch._decomp.decompositions:one_layer_lstm": _of_one_step,
            # A trace that fails leaves its hook in the copy.
            "torch.nn.modules.module:_global_buffer_registration_hooks": copy.copy,
        }
    if _VERSION < (2, 12):
        places |= {f"{_FAKES}[torch.ops.aten.{name}.default]": _with_integers for name in _SETS}
        places |= {
            f"{_FAKES}[torch.ops.aten.slice.Tensor]": always(_slice),
            "torch._subclasses.fake_impls:_compute_slice_index": always(_slice_index),
        }
    return places


def _also_in_dicts(original: Callable[[Any], Iterator[sympy.Basic]]) -> Callable[[Any], Iterator[sympy.Basic]]:
    """The expressions in a value; functional launches of kernels return dicts."""

    def iterate(value: Any) -> Iterator[sympy.Basic]:
        for part in value.values() if isinstance(value, dict) else (value,):
            yield from original(part)

    return iterate


def sums_of_any_length(original: Callable[..., bool]) -> Callable[..., bool]:
    """`CppKernel.need_use_acc_helper` that does not make a guard of whether a sum of floats is long in the example."""

    def need_use_acc_helper(kernel: Any, reduction_type: str, dtype: torch.dtype, *others: Any) -> bool:
        if reduction_type != "sum" or dtype != torch.float:
            return original(kernel, reduction_type, dtype, *others)
        from torch._inductor.virtualized import V

        length = math.prod(kernel.call_ranges[kernel.reduction_depth :])
        # From this length on torch adds up in parts, which costs time and is more precise.
        return bool(V.graph.sizevars.statically_known_gt(length, 4096))

    return need_use_acc_helper


def _slice_index(size: Any, index: Any) -> Any:
    """Where in a dim an index of a slice is, also where that depends on the size; None where its sign is not known."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false, sym_and

    if guard_or_false(sym_and(index >= 0, index <= size)):
        return index
    if guard_or_false(sym_and(index < 0, index >= -size)):
        return index + size
    if guard_or_false(index < -size):
        return 0
    if guard_or_false(index > size):
        return size
    if guard_or_false(index >= 0):
        return torch.sym_min(index, size)
    return torch.sym_max(index + size, 0) if guard_or_false(index < 0) else None


def _slice(
    fake_mode: Any, func: Any, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

    if x.dim() == 0:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(f"Dimension out of range (expected to be in range of [{-x.dim()}, {x.dim() - 1}], got {dim})")
    sizes, strides, axis = list(x.size()), list(x.stride()), dim % x.dim()
    size: Any = sizes[axis]
    first = 0 if start is None else _slice_index(size, start)
    last = size if end is None or statically_known_true(end == sys.maxsize) else _slice_index(size, end)
    made: Any = None
    if first is not None and last is not None:
        if guard_or_false(last >= first):
            made = (last - first + step - 1) // step
        elif guard_or_false(first >= last):
            made = 0
        else:
            made = (torch.sym_max(last - first, 0) + step - 1) // step
    if made is None:
        made = fake_mode.shape_env.create_unbacked_symint()
        torch._check(made >= 0)
        torch._check(made <= size)
    if first is None:
        offset = fake_mode.shape_env.create_unbacked_symint()
        torch._check(offset >= 0)
    else:
        offset = x.storage_offset() + first * strides[axis]
    sizes[axis] = made
    strides[axis] = strides[axis] * step
    return x.as_strided(sizes, strides, offset)


def _bags_forward_only(
    fake_mode: Any,
    func: Any,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, ...]:
    """As `_embedding_bag`; but of sums the last offset has a count, too. torch (2.11 to 2.13) has it in all modes."""
    rest = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
    with fake_mode:
        bags, bag_of, counts, sources = aten._embedding_bag.default(weight, indices, offsets, *rest)
        if mode == 0 and include_last_offset:
            counts, sources = (offsets.new_empty(offsets.shape) for _ in range(2))
    return bags, bag_of, counts, sources


def _with_integers(original: Callable[..., Any]) -> Callable[..., Any]:
    def unique(*args: Any, **kwargs: Any) -> Any:
        # 2.11 takes places and counts for values.
        values, *others = original(*args, **kwargs)
        return values, *(other.to(torch.int64) for other in others)

    return unique


def _of_one_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def one_layer_lstm(*args: Any, **kwargs: Any) -> Any:
        # These take off the batch in the place of the steps: the last state is [1, batch, size] there.
        out, states = original(*args, **kwargs)
        return out, tuple(state.squeeze(0) if state.dim() == 3 else state for state in states)

    return one_layer_lstm


def _of_weights(original: Callable[..., Any]) -> Callable[..., Any]:
    def bincount(fake_mode: Any, func: Any, inputs: Tensor, weights: Tensor | None = None, minlength: Any = 0) -> Any:
        # These take counts for integers, also those of weights.
        result = original(fake_mode, func, inputs, weights, minlength)
        if weights is None:
            return result.to(torch.int64)
        return result.to(torch.float32 if weights.dtype == torch.float32 else torch.float64)

    return bincount


def _sliced(original: Callable[..., Any]) -> Callable[..., Any]:
    from torch._inductor import ir
    from torch._inductor.virtualized import V
    from torch.fx.experimental.symbolic_shapes import CallMethodKey, resolve_unbacked_bindings
    from torch.utils import _pytree as pytree
    from torch.utils._sympy.functions import Max, Min

    expr: Any = sympy  # its relations have no types

    def resolved(index: Any, size: Any, default: Any) -> Any:
        if index is None or (isinstance(index, (int, sympy.Integer)) and index >= sys.maxsize):
            return default
        index, size = sympy.expand(index), sympy.expand(size)
        holds: Any = V.graph.sizevars.guard_or_false
        if holds(expr.And(expr.Ge(index, 0), expr.Le(index, size))):
            return index
        if holds(expr.And(expr.Lt(index, 0), expr.Ge(index, -size))):
            return index + size
        if holds(expr.Gt(index, size)):
            return size
        if holds(expr.Lt(index, -size)):
            return sympy.Integer(0)
        if holds(expr.Ge(index, 0)):
            return Min(index, size)
        return Max(index + size, 0) if holds(expr.Lt(index, 0)) else None

    def slice_(x: Any, dim: int = 0, start: Any = 0, end: Any = None, step: Any = 1, clamp: bool = True) -> Any:
        axis = dim % len(x.get_size())
        size = x.get_size()[axis]
        first, last = resolved(start, size, sympy.Integer(0)), resolved(end, size, size)
        if not clamp or first is None or last is None:
            return original(x, dim, start, 2**63 if end is None else end, step, clamp)
        node = V.graph.current_node
        bindings = resolve_unbacked_bindings(
            V.graph.sizevars.shape_env, node.meta.get("unbacked_bindings", {}) if node is not None else {}
        )
        for symbol, path in (bindings or {}).items():
            # Known by now, but others count with the size that the trace made up.
            if path == (CallMethodKey("size"), pytree.SequenceKey(axis)):
                made: Any = ir.DynamicSliceSize(symbol, first, last, step, size)
                made.name = V.graph.register_buffer(made)
                V.graph.register_operation(made)
        return ir.TensorBox(ir.SliceView.create(x.data, axis, first, last, step, clamp=clamp))

    return slice_
