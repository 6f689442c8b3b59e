"""Numbers that a call passes and numbers that it returns.

Archives know tensors alone: an int, float or bool is a tensor of rank 0 and dtype int64, float64 or bool. An int that
varies is a symbol for torch, as sizes are, so that sizes may depend on it; its placeholder is that symbol. A float or
bool that varies is a tensor out of which the model gets its element. Numbers that the model returns become tensors at
the end of the graph.

Interfaces of torch used, none of them documented (2.11 to 2.13):
  SymInt.node, SymFloat.node, SymBool.node and their maybe_as_{int,float,bool}
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx

from aotpack.export.ir.rewriter import fake_mode
from aotpack.export.torch_compat import pytree

NUMBER_DTYPES = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}

# ---- arguments ------------------------------------------------------------------------------------------------------


def taking_tensors(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], numbers: Mapping[int, str]
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A module and a call that pass floats and bools that vary as tensors of rank 0. Both compute what they did.

    `numbers`: the kinds of those that vary, by leaf of `(args, kwargs)`.
    """
    given = {leaf: kind for leaf, kind in numbers.items() if kind != "int"}
    if not given:
        return module, args, kwargs
    leaves, tree = pytree.tree_flatten_with_path((args, kwargs))
    tensors = [
        torch.tensor(value, dtype=NUMBER_DTYPES[given[i]]) if i in given else value
        for i, (_, value) in enumerate(leaves)
    ]
    known = frozenset(pytree.keystr(leaves[leaf][0]) for leaf in given)
    new_args, new_kwargs = pytree.tree_unflatten(tensors, tree)

    def element(path: Any, value: Any) -> Any:
        is_number = isinstance(value, torch.Tensor) and pytree.keystr(path) in known
        return value.item() if is_number else value

    return with_arguments(module, element), new_args, new_kwargs


def with_arguments(module: torch.nn.Module, convert: Callable[[Any, Any], Any]) -> torch.nn.Module:
    """The module over the same tensors, whose forward gets `convert(path, value)` of each leaf of a call."""
    return with_call(module, lambda args, kwargs: pytree.tree_map_with_path(convert, (args, kwargs)))


def with_call(module: torch.nn.Module, convert: Callable[[Any, Any], Any]) -> torch.nn.Module:
    """The module over the same tensors, whose forward gets the arguments `convert(args, kwargs)` of a call."""
    other = copy.copy(module)
    forward: Any = module.forward
    if isinstance(forward, types.MethodType) and forward.__self__ is module:
        function: Callable[..., Any] = forward.__func__

        @functools.wraps(function)
        def method(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = convert(args, kwargs)
            return function(self, *args, **kwargs)

        replaced: Any = types.MethodType(method, other)
    else:

        @functools.wraps(forward)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = convert(args, kwargs)
            return forward(*args, **kwargs)

    other.__dict__ = module.__dict__ | {"forward": replaced}
    return other


# ---- results --------------------------------------------------------------------------------------------------------


def number_kind(value: Any) -> str | None:
    """ "int", "float" or "bool" for a number that is computed in the graph."""
    if isinstance(value, torch.SymInt):
        return "int"
    if isinstance(value, torch.SymFloat):
        return "float"
    return "bool" if isinstance(value, torch.SymBool) else None


def constant(value: Any) -> bool | int | float | None:
    """The value of a symbolic number that turned out to be the same in each call; None where it is not."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value if isinstance(value, (bool, int, float)) else None
    known = value.node.maybe_as_int() if isinstance(value, torch.SymInt) else None
    if known is not None:
        return int(known)
    known = value.node.maybe_as_float() if isinstance(value, torch.SymFloat) else None
    if known is not None:
        return float(known)
    known = value.node.maybe_as_bool() if isinstance(value, torch.SymBool) else None
    return None if known is None else bool(known)


def as_tensor(graph_module: torch.fx.GraphModule, node: torch.fx.Node, kind: str) -> torch.fx.Node:
    """A node for the tensor of rank 0 that holds a number of the graph, in front of the graph's end."""
    with graph_module.graph.inserting_before(graph_module.graph.output_node()):
        return _scalar_tensor(graph_module, node, NUMBER_DTYPES[kind])


def factors_as_tensors(graph_module: torch.fx.GraphModule) -> None:
    """Makes tensors of the symbolic numbers that tensors are multiplied and divided by.

    TorchInductor would ask for the sign of such a number where a softmax follows. In single and double precision the
    results are those of the number itself.
    """
    for node in list(graph_module.graph.nodes):
        if node.target not in (torch.ops.aten.mul.Tensor, torch.ops.aten.div.Tensor) or len(node.args) != 2:
            continue
        tensor, number = node.args
        if not isinstance(number, torch.fx.Node) or not isinstance(tensor, torch.fx.Node):
            continue
        value = tensor.meta["val"]
        if number_kind(number.meta.get("val")) not in ("int", "float") or not isinstance(value, torch.Tensor):
            continue
        # A tensor of rank 0 would have a say in the dtype of the result beside another one.
        if value.dtype in (torch.float32, torch.float64) and value.dim() > 0:
            with graph_module.graph.inserting_before(node):
                node.args = (tensor, _scalar_tensor(graph_module, number, value.dtype))


def _scalar_tensor(graph_module: torch.fx.GraphModule, node: torch.fx.Node, dtype: torch.dtype) -> torch.fx.Node:
    tensor = graph_module.graph.call_function(torch.ops.aten.scalar_tensor.default, (node,), {"dtype": dtype})
    tensor.meta = {key: value for key, value in node.meta.items() if key in ("nn_module_stack", "stack_trace")}
    with fake_mode(graph_module):
        tensor.meta["val"] = torch.empty((), dtype=dtype)
    return tensor
