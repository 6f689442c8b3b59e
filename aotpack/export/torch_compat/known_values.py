"""Values of graphs that are computed a second time.

Graphs are run on fake tensors after passes, as these change the strides of what others read. Most calls are as they
were traced or as another one is, with arguments described alike, and have the results that they had.

Private interfaces touched (torch 2.11 to 2.13):
  torch.fx.passes.fake_tensor_prop.FakeTensorProp.run_node
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
import torch.fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from aotpack.export.torch_compat.fake_tensors import FakeTensor
from aotpack.export.torch_compat.operators import OpOverload, operator_schema
from aotpack.export.torch_compat.tensors import storage_id

_PLAIN = (type(None), str, torch.dtype, torch.device, torch.layout, torch.memory_format)
_NUMBERS = (bool, int, float)


class KnownValues:
    """What calls of a graph return: by operator and arguments, how these are described and how the result is.

    Sizes are known, and results are memory of their own.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Hashable] = {}

    def add(self, node: torch.fx.Node) -> None:
        """Adds a call that has the right value."""
        question, answer = _question(node), _description(node.meta.get("val"))
        if question is not None and answer is not None:
            self._known[question] = answer

    def has(self, node: torch.fx.Node) -> bool:
        """Whether the node has the value that its call returns."""
        question = _question(node)
        answer = None if question is None else self._known.get(question)
        return answer is not None and answer == _description(node.meta.get("val"))


class QuickProp(FakeTensorProp):
    """Runs the calls of a graph that are not known, each once."""

    def __init__(self, module: torch.fx.GraphModule, mode: Any = None, known: KnownValues | None = None) -> None:
        super().__init__(module, mode)
        self._known = KnownValues() if known is None else known
        self._memory: set[object] = set()

    def run_node(self, n: torch.fx.Node) -> Any:
        if self._known.has(n):
            value = n.meta["val"]
            memory = storage_id(value)
            # Passes ask of values whether they share memory.
            if value.fake_mode is self._mode and memory not in self._memory:
                self._memory.add(memory)
                return value
        result = super().run_node(n)
        self._known.add(n)
        return result


def _question(node: torch.fx.Node) -> Hashable | None:
    """The operator and its arguments; None where its result may be another one's memory, or is not described."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return None
    schema = operator_schema(node.target)
    if schema.is_mutable or any(result.alias_info is not None for result in schema.returns):
        return None
    try:
        return node.target, _form(node.args), _form(tuple(sorted(node.kwargs.items())))
    except TypeError:
        return None


def _form(value: Any) -> Hashable:
    """An argument as a key that tells 1 from 1.0 and True.

    Raises:
        TypeError: it is of another kind.
    """
    if isinstance(value, torch.fx.Node):
        described = _description(value.meta.get("val"))
        if described is not None:
            return described
    elif isinstance(value, (tuple, list)):
        return tuple(map(_form, value))
    elif isinstance(value, _PLAIN):
        return value
    elif isinstance(value, _NUMBERS):
        return type(value), value
    raise TypeError(f"{type(value).__name__} is no key")


def _description(value: Any) -> Hashable | None:
    """A fake tensor of known sizes; None for what is something else."""
    if type(value) is not FakeTensor or value.layout != torch.strided:
        return None
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return (numbers, value.dtype, value.device) if all(type(number) is int for number in numbers) else None
