"""A graph of ONNX as a module of torch, whose forward runs the nodes."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Sequence
from typing import Any

import torch

from aotpack.export.onnx.base.graph import Graph, Node
from aotpack.export.onnx.base.run import Runner, run_node
from aotpack.export.onnx.base.values import Known, as_tensor, known


class _Weights(torch.nn.Module):
    """Constants by the parts of their names."""


class OnnxNode(torch.nn.Module):
    """A node as a module: what is reported of a graph names modules, and so the node."""

    def forward(self, node: Node, inputs: Sequence[Any]) -> tuple[Any, ...]:
        return run_node(node, inputs)


class OnnxModule(torch.nn.Module):
    """A graph as a module. It is called with tensors, one per input of the graph, and returns a dict by output name.

    Constants are its parameters and buffers, by their names in the graph as far as names of modules can be these.

    Args:
        graph: the graph.
        fixed: values of the inputs that are constants instead; keys are names of inputs.
    """

    def __init__(self, graph: Graph, fixed: dict[str, torch.Tensor] | None = None) -> None:
        super().__init__()
        self.inputs = [name for name in graph.inputs if name not in (fixed or {})]
        self.outputs = list(graph.outputs)
        constants = {**graph.initializers, **(fixed or {})}
        self._names = {name: self._store(name, tensor) for name, tensor in constants.items()}
        self._small = {name: value for name, value in graph.constants.items() if isinstance(value, Known)}
        self._small |= {name: value for name, t in (fixed or {}).items() if (value := known(t)) is not None}
        self._types = [type(op, (OnnxNode,), {}) for op in sorted({node.op for node in graph.nodes})]
        classes = {cls.__name__: cls for cls in self._types}
        taken = set(dict(self.named_children()))
        self._modules_of: dict[int, str] = {}
        for node in graph.nodes:
            name = _unique(re.sub(r"\.", "_", node.name) or node.op, taken)
            if hasattr(self, name):
                name = _unique(f"{name}_{node.op}_", taken)
            self.add_module(name, classes[node.op]())
            self._modules_of[id(node)] = name
        self.graph = graph
        self._runner = Runner(graph, self._call)
        self.forward = self._forward_with_names()
        self.eval()

    @property
    def parameter_names(self) -> list[str]:
        """The names of the inputs as parameters of a Python function."""
        taken: set[str] = set()
        return [_unique(_identifier(name), taken) for name in self.inputs]

    def _forward_with_names(self) -> Any:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in self.parameter_names]
        signature = inspect.Signature(parameters)

        def forward(*args: Any, **kwargs: Any) -> dict[str, Any]:
            bound = signature.bind(*args, **kwargs)
            return self._run(bound.args)

        forward.__signature__ = signature  # type: ignore[attr-defined]
        return forward

    def _run(self, args: Sequence[Any]) -> dict[str, Any]:
        values: dict[str, Any] = dict(zip(self.inputs, args, strict=True))
        for name, path in self._names.items():
            tensor = _at(self, path)
            values[name] = self._numbers(name, tensor)
        results = self._runner(values)
        return {name: _result(value) for name, value in zip(self.outputs, results, strict=True)}

    def _numbers(self, name: str, tensor: torch.Tensor) -> Any:
        original = self._small.get(name)
        if original is None:
            return tensor
        return Known(original.values, original.dtype, tensor)

    def _call(self, node: Node, inputs: Sequence[Any]) -> tuple[Any, ...]:
        name = self._modules_of.get(id(node))
        if name is None:
            return run_node(node, inputs)
        module: Any = getattr(self, name)
        result: tuple[Any, ...] = module(node, inputs)
        return result

    def _store(self, name: str, tensor: torch.Tensor) -> tuple[str, ...]:
        """Where the constant is kept."""
        path = [part or "_" for part in name.split(".")]
        holder: torch.nn.Module = self
        for i, part in enumerate(path[:-1]):
            children = dict(holder.named_children())
            child = children.get(part)
            if child is None:
                if hasattr(holder, part):
                    part = path[i] = _unique(part + "_", set(dir(holder)))
                child = _Weights()
                holder.add_module(part, child)
            holder = child
        last = path[-1]
        if hasattr(holder, last):
            last = path[-1] = _unique(last + "_", set(dir(holder)))
        if tensor.is_floating_point():
            holder.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))
        else:
            holder.register_buffer(last, tensor)
        return tuple(path)


def _result(value: Any) -> Any:
    if isinstance(value, list):
        return [_result(each) for each in value]
    return as_tensor(value)


def _at(module: torch.nn.Module, path: Sequence[str]) -> torch.Tensor:
    for part in path:
        module = getattr(module, part)
    return module  # type: ignore[return-value]


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    if not text or text[0].isdigit():
        text = "_" + text
    return text + "_" if keyword.iskeyword(text) else text


def _unique(name: str, taken: set[str]) -> str:
    made, number = name, 1
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    taken.add(made)
    return made
