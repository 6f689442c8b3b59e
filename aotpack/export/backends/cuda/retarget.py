"""Moves a program to a CUDA device that does not exist: what its graph says of devices, and no data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.node import map_aggregate

from aotpack.export.backends.cuda.host_values import ITEM, HostValues, results_of
from aotpack.export.ir import regions
from aotpack.export.ir.program import Program, get_attribute
from aotpack.export.ir.rewriter import fake_mode, is_dense
from aotpack.export.torch_compat.operators import OpOverload, operator_schema
from aotpack.export.torch_compat.pytree import tree_map_only
from aotpack.export.torch_compat.triton.driver import DEVICE

aten = torch.ops.aten
_HOST = torch.device("cpu")
_Copy = Callable[[], torch.fx.Node]


def on_device(
    program: Program, *, weights_known: bool, shared: bool = False
) -> tuple[torch.fx.GraphModule, list[Any], list[str]]:
    """The graph over fake tensors on `cuda:0`, with constants as placeholders after the inputs.

    Code generation neither reads nor compares the values of inputs, so that constants of equal shapes stay apart.
    Numbers of the caller, tensors of rank 0, stay in the memory of the host, and so do those that control flow depends
    on, if they can be computed there. `fake_gpu` is active.

    Args:
        program: after all passes.
        weights_known: whether numbers among the weights may become part of the code.
        shared: whether no constants may.

    Returns:
        The graph, the values of its placeholders, and the attributes that are the constants.
    """
    module = _copied(program.graph_module)
    graph = module.graph
    placeholders = graph.find_nodes(op="placeholder")
    specs = zip(placeholders, program.signature.inputs, strict=True)
    # Ints that vary are symbols.
    numbers = [n for n, spec in specs if spec.number is not None and isinstance(n.meta["val"], torch.Tensor)]
    host = HostValues(module, numbers, lambda name: not shared and _is_literal(program, name, weights_known))
    _write_literals(program, module, host)
    with torch.no_grad(), fake_mode(program.graph_module):
        _move(module, host, [False] * len(results_of(module)), frozenset(numbers))
        attributes = list(dict.fromkeys(str(node.target) for node in regions.constants(module)))
        after = placeholders[-1] if placeholders else None
        for attribute in attributes:
            nodes = graph.find_nodes(op="get_attr", target=attribute)
            with graph.inserting_after(after) if after else graph.inserting_before(next(iter(graph.nodes))):
                after = graph.placeholder(f"constant_{nodes[0].name}")
            after.meta["val"] = _constant(get_attribute(program.graph_module, attribute))
            for node in nodes:
                node.replace_all_uses_with(after)
                graph.erase_node(node)
    module.recompile()
    values = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
    return module, values, attributes


def _copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """With graphs inside of its own, too."""
    module = regions.copied(module)
    for name in regions.region_names(module):
        setattr(module, name, _copied(regions.inner_graph(module, name)))
    return module


def _is_literal(program: Program, name: str, weights_known: bool) -> bool:
    """Whether the value of a constant may be part of the code."""
    if program.constant_info(name).mutated:
        return False
    roots = program.roots(name)
    if not weights_known and any(s in program.state_dict for r in roots for s in program.constant_info(r).sources):
        return False
    return program.load is not None or not any(program.original(root).is_meta for root in roots)


def _write_literals(program: Program, module: torch.fx.GraphModule, host: HostValues) -> None:
    """Constants that stay on the host are written into the code."""
    for node in list(regions.constants(module)):
        if node not in host:
            continue
        value = node.meta["val"]
        with module.graph.inserting_before(node):
            number = program.value(str(node.target)).item()
            written = module.graph.call_function(
                aten.full.default, ([], number), {"dtype": value.dtype, "device": _HOST}
            )
        written.meta.update(node.meta)
        node.replace_all_uses_with(written)
        module.graph.erase_node(node)
        host.replace(node, written)


def _move(
    module: torch.fx.GraphModule,
    host: HostValues,
    on_host: Sequence[bool],
    numbers: frozenset[torch.fx.Node] = frozenset(),
) -> None:
    """Moves a graph, and those inside, to the device, but for what is in `host` and for `numbers`. `on_host` says which
    of its results are in memory of the host.
    """
    for node in list(module.graph.nodes):
        if regions.calls_graphs(node):
            _move_inner(module, node, host)
            continue
        device = _HOST if node in host else DEVICE
        node.args = _moved(node.args, device)
        node.kwargs = _moved(node.kwargs, device)
        if _creates(node):
            node.update_kwarg("device", device)
        if "val" in node.meta and node not in host and node not in numbers:
            node.meta["val"] = _on_device(node.meta["val"])
    for node in list(module.graph.nodes):
        if node in host or node in numbers:
            _copy_to_readers(node, host, on_host, is_number=node in numbers)
    module.recompile()


def _move_inner(module: torch.fx.GraphModule, call: torch.fx.Node, host: HostValues) -> None:
    of_call = [host.has_result(call, i) for i in range(len(call.meta["val"]))]
    results = regions.CALLS[call.target].results
    for index, name in enumerate(regions.given_regions(call)):
        inner = regions.inner_graph(module, name)
        returned = results_of(inner)
        if index in results:
            on_host = [*of_call, *([False] * (len(returned) - len(of_call)))]
        elif call.target is torch.ops.higher_order.while_loop:
            # Whether it goes on: where the host has computed it.
            on_host = [value in host for value in returned]
        else:
            on_host = [False] * len(returned)
        _move(inner, host, on_host)
    call.meta["val"] = type(call.meta["val"])(
        value if kept else _on_device(value) for value, kept in zip(call.meta["val"], of_call, strict=True)
    )


def _copy_to_readers(node: torch.fx.Node, host: HostValues, on_host: Sequence[bool], *, is_number: bool) -> None:
    """What runs on the device reads a copy of a value of the host."""
    graph = node.graph
    copies: list[torch.fx.Node] = []

    def copy() -> torch.fx.Node:
        if not copies:
            last = graph.find_nodes(op="placeholder")[-1] if node.op == "placeholder" else node
            with graph.inserting_after(last):
                made = graph.call_function(aten._to_copy.default, (node,), {"device": DEVICE})
            made.meta.update(node.meta)
            made.meta["val"] = _on_device(node.meta["val"])
            copies.append(made)
        return copies[0]

    for user in list(node.users):
        if regions.calls_graphs(user):
            _replace_operands(user, node, host, copy)
        elif user.op == "output":
            user.args = (_returned(user.args[0], node, on_host, copy),)
        elif user not in host and user.target is not ITEM and not is_number:
            user.replace_input_with(node, copy())


def _returned(returned: Any, node: torch.fx.Node, on_host: Sequence[bool], copy: _Copy) -> Any:
    """What a graph returns, with a copy of the value of `node` where it has to be on the device."""
    if not isinstance(returned, (list, tuple)):
        return copy() if returned is node and not on_host[0] else returned
    values = [copy() if value is node and not kept else value for value, kept in zip(returned, on_host, strict=True)]
    return values if isinstance(returned, list) else tuple(values)


def _replace_operands(call: torch.fx.Node, node: torch.fx.Node, host: HostValues, copy: _Copy) -> None:
    args, first = list(call.args), 0
    for place in regions.CALLS[call.target].operands:
        operands: Any = args[place]
        new = [
            copy() if operand is node and not host.has_operand(call, first + i) else operand
            for i, operand in enumerate(operands)
        ]
        args[place] = new if isinstance(operands, list) else tuple(new)
        first += len(operands)
    call.args = tuple(args)


def _moved(arguments: Any, device: torch.device) -> Any:
    return map_aggregate(arguments, lambda a: device if isinstance(a, torch.device) else a)


def _creates(node: torch.fx.Node) -> bool:
    """Whether it makes a tensor of none, on the device by default, which is the host."""
    if not isinstance(node.target, OpOverload) or node.kwargs.get("device") is not None:
        return False
    takes_device = any(argument.name == "device" for argument in operator_schema(node.target).arguments)
    return takes_device and not any(isinstance(n.meta.get("val"), torch.Tensor) for n in node.all_input_nodes)


def _on_device(value: Any) -> Any:
    """The value of a node, with tensors of the device."""

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        # With its strides, which `to` does not keep where elements overlap.
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE)

    return tree_map_only(torch.Tensor, moved, value)


def _constant(value: torch.Tensor) -> torch.Tensor:
    """A constant as the archive holds it: dense."""
    if is_dense(value):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)
    return torch.empty(value.shape, dtype=value.dtype, device=DEVICE)
