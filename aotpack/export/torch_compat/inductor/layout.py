"""Makes TorchInductor use the layouts that the layout pass has chosen.

Two things. `aotpack::to_layout` is lowered into the loop that makes its operand, where there is one, so that nothing is
copied. And a loop's layout is decided after those of the loops that it reads: Inductor would otherwise take undecided
ones for contiguous and follow them.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.lowering.{lowerings, fallback_handler}
  torch._inductor.ir.{TensorBox, StorageBox, FlexibleLayout, Pointwise, Reduction, as_storage_and_layout}
  torch._inductor.ir.ComputedBuffer.{decide_layout, get_read_names}
  torch._inductor.virtualized.V.graph.{current_node, try_get_buffer}
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from aotpack.export import ops
from aotpack.export.torch_compat.patches import always, applied


@contextlib.contextmanager
def chosen_layouts(gm: torch.fx.GraphModule) -> Iterator[None]:
    """While code is generated for a graph; graphs without aotpack convolutions, which no pass lays out, are left alone.

    A loop whose only reader is a `to_layout` writes in that order; other loops follow what they read.
    """
    convolutions = (ops.packed_conv, ops.int8_conv, ops.depthwise_block)
    if not any(gm.graph.find_nodes(op="call_function", target=operator) for operator in convolutions):
        yield
        return
    with applied(
        {
            "torch._inductor.lowering:lowerings[torch.ops.aotpack.to_layout.default]": always(_lower),
            "torch._inductor.ir:ComputedBuffer.decide_layout": _in_order,
        }
    ):
        yield


def _in_order(original: Any) -> Any:
    @functools.wraps(original)
    def decide(self: Any) -> None:
        for buffer in _undecided(self):
            original(buffer)

    return decide


def _undecided(buffer: Any) -> list[Any]:
    """The loops without a layout that `buffer` depends on, those that are read first; `buffer` itself comes last."""
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    order: dict[int, Any] = {}
    stack = [(buffer, False)]
    while stack:
        current, complete = stack.pop()
        if id(current) in order or not isinstance(current, ir.ComputedBuffer):
            continue
        if not isinstance(current.layout, ir.FlexibleLayout):
            continue
        if complete:
            order[id(current)] = current
            continue
        stack.append((current, True))
        stack += [(V.graph.try_get_buffer(name), False) for name in current.get_read_names()]
    return list(order.values())


def _lower(x: Any, order: Sequence[int]) -> Any:
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import V

    source = V.graph.current_node.args[0]
    # Another reader of the operand was promised the order that it has by itself.
    if isinstance(source, torch.fx.Node) and len(source.users) == 1 and _is_loop(x):
        x.realize()
        if isinstance(x.get_layout(), ir.FlexibleLayout):
            ir.as_storage_and_layout(x, freeze=True, exact_strides=_strides(x.get_size(), order))
            return x
    return lowering.fallback_handler(ops.to_layout, add_to_fallback_set=False)(x, order)


def _is_loop(x: Any) -> bool:
    """Whether `x` is what a generated loop makes, itself and not a view of it."""
    from torch._inductor import ir

    if not isinstance(x, ir.TensorBox) or not isinstance(x.data, ir.StorageBox):
        return False
    made = x.data.data
    return isinstance(made, (ir.Pointwise, ir.Reduction, ir.ComputedBuffer))


def _strides(sizes: Sequence[Any], order: Sequence[int]) -> list[Any]:
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for d in reversed(order):
        strides[d] = step
        step = step * sizes[d]
    return strides
