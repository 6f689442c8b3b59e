"""Keeps TorchInductor from specializing on sizes: its code is for all sizes that an entry admits.

TorchInductor compiles for one call at a time and may *guard*: assume what holds for the example call, and compile again
where it does not. An archive is compiled once. So nothing is assumed of dynamic sizes here (torch calls that oblivious:
what is not known is answered as for sizes in general), where TorchInductor must have an answer it gets an expression,
and the lowerings that fix sizes are replaced by decompositions (aotpack/export/decompositions/).

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.sizevars.SizeVarAllocator.{evaluate_min, evaluate_max, guard_int_seq, guard_or_false}
  torch._inductor.ir.{significant_strides_equal, try_match_insignificant_strides}
  torch.utils._sympy.value_ranges.ValueRangeError
  torch._subclasses.fake_impls._compute_stride
  torch._inductor.fx_passes.reinplace.{graph_call_function, compute_overlapping_tensors}
  torch.fx.experimental._config.backed_size_oblivious
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy.functions import Max, Min
from torch.utils._sympy.value_ranges import ValueRangeError

from aotpack.export.torch_compat.inductor.size_printer import sizes_in_cpp
from aotpack.export.torch_compat.older_torch import lowering_mended
from aotpack.export.torch_compat.patches import replaced
from aotpack.export.torch_compat.symbolic_shapes import sizes_oblivious


@contextlib.contextmanager
def open_sizes() -> Iterator[None]:
    """While active, TorchInductor assumes nothing of dynamic sizes."""
    from torch._inductor import ir
    from torch._inductor.fx_passes import reinplace
    from torch._inductor.sizevars import SizeVarAllocator
    from torch._subclasses import fake_impls

    with (
        sizes_oblivious(),
        replaced(SizeVarAllocator, "evaluate_min", _or_expression(SizeVarAllocator.evaluate_min, Min)),
        replaced(SizeVarAllocator, "evaluate_max", _or_expression(SizeVarAllocator.evaluate_max, Max)),
        replaced(SizeVarAllocator, "guard_or_false", _or_false(SizeVarAllocator.guard_or_false)),
        # The lowering of convolutions asks so for the sizes of weights and biases, and has use for their number alone.
        replaced(SizeVarAllocator, "guard_int_seq", lambda _, sizes: list(sizes)),
        replaced(ir, "significant_strides_equal", _equal_for_elements(ir.significant_strides_equal)),
        replaced(ir, "try_match_insignificant_strides", _matched_for_elements(ir.try_match_insignificant_strides)),
        replaced(fake_impls, "_compute_stride", _of_all_sizes(fake_impls._compute_stride)),
        replaced(reinplace, "graph_call_function", _of_any_size(reinplace.graph_call_function)),
        replaced(reinplace, _OVERLAPPING, _for_all_sizes(getattr(reinplace, _OVERLAPPING))),
        sizes_in_cpp(),
        lowering_mended(),
    ):
        yield


def _equal_for_elements(original: Any) -> Any:
    """Whether strides are the same wherever there are elements.

    torch's strides of a dim that may be 0 are those of 1, TorchInductor's are 0. It would take what a kernel is to
    write to for another tensor (KeyError: 'op4').
    """

    @functools.wraps(original)
    def equal(strides1: Any, strides2: Any, shape: Any) -> Any:
        return original(_of_elements(strides1, shape), _of_elements(strides2, shape), shape)

    return equal


def _matched_for_elements(original: Any) -> Any:
    @functools.wraps(original)
    def match(tensor: Any, strides: Any) -> Any:
        return original(tensor, _of_elements(strides, tensor.get_size()))

    return match


def _of_elements(strides: Any, shape: Any) -> list[Any]:
    """The strides with `Max(1, size)` as the size, for the sizes of the tensor."""
    sizes = {Max(1, size): size for size in shape if isinstance(size, sympy.Expr) and not size.is_number}
    return [stride.subs(sizes) if isinstance(stride, sympy.Expr) else stride for stride in strides]


def _of_all_sizes(original: Any) -> Any:
    """The strides of a view, or None: the lowering of views asks for them with an argument by which torch compares
    dynamic sizes as they are in the example, where a batch of 1 looks like no dim at all.
    """

    @functools.wraps(original)
    def strides(old_shape: Any, old_stride: Any, new_shape: Any, size_oblivious: bool = True) -> Any:
        return original(old_shape, old_stride, new_shape, size_oblivious=True)

    return strides


def _of_any_size(original: Any) -> Any:
    """Writing to a slice, traced again: torch 2.11 then asks whether two data-dependent sizes are equal, as it did when
    the program was captured. (The functions traced are themselves the targets of nodes, found by identity: they
    must not be replaced.)
    """
    from torch._inductor.fx_passes import reinplace

    @functools.wraps(original)
    def call(graph: torch.fx.Graph, fn: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        try:
            node: torch.fx.Node = original(graph, fn, *args, **kwargs)
        except RuntimeError:
            if fn is not reinplace._generalized_scatter:
                raise
            node = graph.call_function(fn, args, kwargs)
            with V.fake_mode:
                node.meta["val"] = args[0].meta["val"].clone()
        return node

    return call


_OVERLAPPING = "compute_overlapping_tensors"


def _for_all_sizes(original: Any) -> Any:
    """Which of several tensors in one storage overlap: of dynamic ones all that may overlap for some sizes. torch would
    answer for the sizes of the example.
    """

    @functools.wraps(original)
    def overlapping(tensors: list[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        spans = [_span(tensor) for tensor in tensors]
        if all(isinstance(end, int) for span in spans for end in span):
            return original(tensors, *args, **kwargs)
        found: set[int] = set()
        for (i, (first, end)), (j, (other, last)) in itertools.combinations(enumerate(spans), 2):
            if not statically_known_true(end <= other) and not statically_known_true(last <= first):
                found |= {i, j}
        return found

    return overlapping


def _span(tensor: torch.Tensor) -> tuple[Any, Any]:
    """Where the elements of a tensor begin and end in its storage."""
    first: Any = tensor.storage_offset()
    reach = [(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return first, first + sum(reach) + 1


def _or_false(original: Any) -> Any:
    """Whether a condition is known to hold; not where torch fails to tell."""

    @functools.wraps(original)
    def guard_or_false(self: Any, *args: Any, **kwargs: Any) -> bool:
        # torch logs the failure as a warning.
        _LOGGER.addFilter(_no_warning)
        try:
            return bool(original(self, *args, **kwargs))
        except ValueRangeError:
            return False
        finally:
            _LOGGER.removeFilter(_no_warning)

    return guard_or_false


_LOGGER = logging.getLogger("torch.utils._sympy.interp")


def _no_warning(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING


def _or_expression(original: Any, function: Any) -> Any:
    """The lesser or greater of two sizes where that is known, else the expression for it."""

    @functools.wraps(original)
    def evaluate(self: Any, left: Any, right: Any) -> Any:
        a, b = sympy.sympify(left), sympy.sympify(right)
        if self.statically_known_leq(a, b):
            return left if function is Min else right
        if self.statically_known_leq(b, a):
            return right if function is Min else left
        return function(a, b)

    return evaluate
