"""Values that a loop carries and updates by index, as caches of keys and values, are updated where they lie.

TorchInductor computes each value of the next step in new memory, so that a cache would be copied for each new row. What
a loop carries is its own: where the update is the only reader of the value before, it may write to its memory.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.ir.WhileLoop.create   replaced while generating
  torch._inductor.ir.ExternKernel.copy_input
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from aotpack.export.torch_compat.patches import replaced

aten = torch.ops.aten

_IN_PLACE = {
    aten.index_put.default: aten.index_put_.default,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
}


@contextlib.contextmanager
def carried_values_updated_in_place() -> Iterator[None]:
    """While active, loops are generated so that they write to what they carry."""
    from torch._inductor import ir

    original: Any = ir.WhileLoop.create

    def create(
        cls: type[Any], cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any, stack_output: Any
    ) -> Any:
        carried = list(carried_inputs)
        if not stack_output:
            for i in update_in_place(body_fn.graph_module, len(carried)):
                # The first value may be an input, or have other readers.
                carried[i] = ir.ExternKernel.copy_input(carried[i])
        return original(cond_fn, body_fn, carried, additional_inputs, stack_output)

    with replaced(ir.WhileLoop, "create", classmethod(create)):
        yield


def update_in_place(body: torch.fx.GraphModule, count: int) -> list[int]:
    """Changes the body of a loop; returns which of the `count` values that it carries it writes to."""
    placeholders = body.graph.find_nodes(op="placeholder")
    output = body.graph.output_node()
    returned: Any = output.args[0]
    results = list(returned)
    updated = []
    for i, before in enumerate(placeholders[:count]):
        after = results[i]
        if not isinstance(after, torch.fx.Node) or after.target not in _IN_PLACE or results.count(after) != 1:
            continue
        # Read by the update alone, and there only as what is updated.
        if list(before.users) != [after] or after.args[0] is not before or before in _nodes(after.args[1:]):
            continue
        after.target = _IN_PLACE[after.target]
        results[i] = before
        updated.append(i)
    if updated:
        output.args = (tuple(results) if isinstance(returned, tuple) else results,)
        body.recompile()
    return updated


def _nodes(arguments: Any) -> list[torch.fx.Node]:
    found: list[torch.fx.Node] = []
    torch.fx.node.map_arg(arguments, found.append)
    return found
